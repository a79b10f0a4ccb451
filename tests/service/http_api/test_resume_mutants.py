"""Mutants of what came of a stream, over both doors: refused with a reason, or the stream goes on behind them."""

from __future__ import annotations

import http.client
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError

from imp_service.pb import inference_pb2 as pb
from support.calls.cut_streams import resuming, told_of
from support.calls.failed_calls import FailedCall
from support.calls.marked_streams import resume_of, stream_bytes, units_of
from support.run.release_run import repetitions
from support.servers.http_served import HttpServed, serve_http
from support.servers.served import ask

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
SAID = [{"role": "user", "content": "Once upon a time"}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": SAID, "max_tokens": 12, "n": 2},
    COMPLETIONS: {"prompt": "Once upon a time", "max_tokens": 12, "stop": ["zqz"]},
    RESPONSES: {"input": "Once upon a time", "max_output_tokens": 12},
    MESSAGES: {"messages": SAID, "max_tokens": 12},
}
SAMPLED = {"seed": 3, "temperature": 1, "max_chunk_tokens": 1, "stream": True}
N_MUTANTS = repetitions(100_000, 150)
REFUSALS = {"FIELD_INVALID", "RESUME_MISMATCH"}
# What replaces a value.
WRONG: Sequence[Any] = (0, 1, -1, 2**31, 2**32 - 1, 2**53, 10**30, 1.5, True, None, "", "x", "0" * 16, "9" * 20, [], {})


@pytest.fixture(scope="module")
def both() -> Iterator[HttpServed]:
    with serve_http("limits.max_context=256") as it:
        yield it


class Steps:
    """Sees whether the engine made a step. It is at rest before each look."""

    def __init__(self, served: HttpServed) -> None:
        self._served = served
        self._before = 0

    def begin(self, *, may_run: bool) -> None:
        """`may_run`: the last request was not refused at once."""
        if may_run:
            self._served.served.wait_for_rest()
            self._before = self._served.served.stats().n_steps

    @property
    def is_one_made(self) -> bool:
        """Since begin()."""
        return self._served.served.stats().n_steps != self._before


def mutated_bytes(rng: random.Random, given: bytes) -> bytes:
    """With one to three bytes changed, left out or added."""
    data = bytearray(given)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at]
            case 2:
                data.insert(at, rng.randrange(256))
    return bytes(data)


def mutated_value(rng: random.Random, value: Any) -> Any:
    """With one part at a random depth changed, left out, added, moved or repeated."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        if rng.random() < 0.1:
            return {each: part for each, part in value.items() if each != name}
        return {**value, name: mutated_value(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        changed = [*value]
        match rng.randrange(5):
            case 0:
                del changed[at]
            case 1:
                changed[at:at] = [changed[at]] * rng.choice((1, 1, 2, 300))
            case 2:
                rng.shuffle(changed)
            case 3:
                del changed[at:]
            case _:
                changed[at] = mutated_value(rng, changed[at])
        return changed
    if isinstance(value, int) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, rng.randrange(2048)))
    if isinstance(value, str) and value and rng.random() < 0.5:
        at = rng.randrange(len(value))
        return value[:at] + rng.choice(("", "0", "é", value)) + value[at + rng.randrange(2) :]
    return rng.choice(WRONG)


def test_rsm_3_mutants_over_http_are_refused_before_any_step_or_go_on(both: HttpServed) -> None:
    rng, outcomes = random.Random(11), Counter[str]()
    steps = Steps(both)
    paths = {path: whole_and_cut(both, path) for path in BODIES}
    may_run = True
    with closing(http.client.HTTPConnection("localhost")) as connection:
        for n in range(N_MUTANTS):
            path = list(BODIES)[n % len(BODIES)]
            whole, cut = paths[path]
            text = json.dumps(cut).encode()
            mutant = mutated_bytes(rng, text) if n % 8 < 4 else json.dumps(mutated_value(rng, cut)).encode()
            steps.begin(may_run=may_run)
            status, content = post(both, connection, path, mutant)
            outcome = "OK" if status == 200 else reason_of(path, status, content)
            may_run = outcome != "FIELD_INVALID"
            assert may_run or not steps.is_one_made, mutant
            outcomes[outcome] += 1
            if status == 200:
                assert follows(whole, json.loads(mutant), content), mutant
    assert set(outcomes) == {"OK", *REFUSALS}, outcomes


def follows(whole: Sequence[Sequence[int]], resume: dict[str, Any] | None, content: bytes) -> bool:
    """Whether a stream is the rest of what came. Without the field, which null is too, it has no marks."""
    if resume is None:
        return b": imp" not in content
    came, more = resume.get("sequences", []), resume_of(units_of(content))["sequences"]
    for i, ids in enumerate(whole):
        told = came[i] if i < len(came) else {"token_ids": []}
        rest = more[i]["token_ids"] if i < len(more) else []
        if not goes_on(ids, told["token_ids"], rest, is_finished=told.get("finished", False)):
            return False
    return True


def goes_on(whole: Sequence[int], told: Sequence[int], more: Sequence[int], *, is_finished: bool) -> bool:
    """Whether these follow. With another token before the last one, the seam knows only that the last one follows."""
    if list(told[:-1]) != list(whole[: max(len(told) - 1, 0)]):
        return not is_finished or not more
    found = [*told, *more]
    return found == list(whole[: len(found)]) and (is_finished or len(found) == len(whole))


def whole_and_cut(both: HttpServed, path: str) -> tuple[list[list[int]], dict[str, Any]]:
    """The ids of an undisturbed stream, and what came of it before it broke."""
    units = units_of(stream_bytes(both, path, {**BODIES[path], **SAMPLED, "resume": {}}))
    return [each["token_ids"] for each in resume_of(units)["sequences"]], resume_of(units[:6])


def post(both: HttpServed, connection: http.client.HTTPConnection, path: str, resume: bytes) -> tuple[int, bytes]:
    """Sends a body with this field `resume`, over one connection while it lasts."""
    if connection.sock is None:
        connection.sock = both.socket()
    body = json.dumps({**BODIES[path], **SAMPLED}).encode()[:-1] + b', "resume": ' + resume + b"}"
    connection.request("POST", path, body, {"content-type": "application/json"})
    with connection.getresponse() as response:
        return response.status, response.read()


def reason_of(path: str, status: int, content: bytes) -> str:
    """The reason of a refusal. That of Anthropic's form is in its words."""
    assert status == 400, content
    error = json.loads(content)["error"]
    assert error["type"] == "invalid_request_error" and error["message"], content
    if path == MESSAGES:
        is_mismatch = "the stream began" in error["message"] or "draws another token" in error["message"]
        return "RESUME_MISMATCH" if is_mismatch else "FIELD_INVALID"
    # What is no JSON has no field.
    assert error["code"] in ("field_invalid", "resume_mismatch", "invalid_json"), content
    return "RESUME_MISMATCH" if error["code"] == "resume_mismatch" else "FIELD_INVALID"


def mutated_message(rng: random.Random, given: pb.Resume) -> pb.Resume | None:
    """A mutant of the bytes or of the parts; None if its bytes are no message."""
    if rng.random() < 0.5:
        try:
            return pb.Resume.FromString(mutated_bytes(rng, given.SerializeToString()))
        except DecodeError:
            return None
    mutant = pb.Resume()
    mutant.CopyFrom(given)
    one = rng.choice(list(mutant.sequences))
    match rng.randrange(7):
        case 0:
            one.token_ids[rng.randrange(len(one.token_ids))] = rng.choice((0, 1, 2**31, 2**32 - 1, rng.randrange(2100)))
        case 1:
            del one.token_ids[rng.randrange(len(one.token_ids)) :]
        case 2:
            one.token_ids.extend(rng.choices(range(2048), k=rng.choice((1, 2, 8, 300))))
        case 3:
            one.finished = True
        case 4:
            mutant.sequences.add()
        case 5:
            del mutant.sequences[rng.randrange(len(mutant.sequences))]
        case 6:
            name = rng.choice(("server", "request"))
            setattr(mutant.origin, name, rng.choice(("", "0" * 16, "0" * 32, getattr(given.origin, name)[::-1])))
    return mutant


def test_rsm_3_mutants_over_grpc_are_refused_before_any_step_or_go_on(both: HttpServed) -> None:
    rng, outcomes = random.Random(7), Counter[str]()
    request = ask("Once upon a time", 12, num_sequences=2)
    request.sampling.temperature, request.sampling.seed, request.output.max_chunk_tokens = 1.0, 3, 1
    messages = list(both.served.inference.Generate(request))
    good, expected, steps = resuming(request, messages[:6]), told_of(request, messages), Steps(both)
    may_run = True
    while outcomes.total() < N_MUTANTS:
        mutant = mutated_message(rng, good.resume)
        if mutant is None:
            continue
        asked = pb.GenerateRequest()
        asked.CopyFrom(good)
        asked.resume.CopyFrom(mutant)
        steps.begin(may_run=may_run)
        try:
            followed = list(both.served.inference.Generate(asked))
        except grpc.RpcError as error:
            outcome = FailedCall(error).reason
            may_run = outcome != "FIELD_INVALID"
            assert outcome in REFUSALS and (may_run or not steps.is_one_made), mutant
            outcomes[outcome] += 1
            continue
        may_run = True
        outcomes["OK"] += 1
        for told, more, whole in zip(mutant.sequences, told_of(request, followed), expected, strict=True):
            assert goes_on(whole.token_ids, told.token_ids, more.token_ids, is_finished=told.finished), mutant
    assert set(outcomes) == {"OK", *REFUSALS}, outcomes
