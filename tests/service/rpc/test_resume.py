"""A stream that broke goes on, here or on another server: the same tokens, text, calls, scores and ends (RSM)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from imp_service import _testing
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.cut_streams import joined, resuming, told_of, whole_of
from support.calls.failed_calls import FailedCall, failed
from support.calls.generations import counted, spelled
from support.run.release_run import repetitions
from support.servers.gate import ALL_STEPS, HELD, gate
from support.servers.served import Served, ask, serve
from support.servers.served_models import built_in
from support.text.tool_templates import HERMES

PHRASES = ("Once upon a time", "What is a tree? —", "naïve café, 日本語 🙂 🙂", "3 plus 4 is", '{"name": "cat",')
TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "maximum": 9}},
                    "required": ["city", "days"],
                    "additionalProperties": False,
                },
            },
        }
    ]
)
SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 6}}}'
N_RANDOM = repetitions(150, 12)
Messages = list[pb.GenerateResponse]
# Not the best of this CPU, which is what a server uses.
OTHER_ISA = next(isa for isa in _testing.isas_here() if isa != "generic")


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("templates") / "chat.jinja"
    path.write_text(HERMES)
    return path


@pytest.fixture(scope="module")
def served(templates: Path) -> Iterator[Served]:
    with serve(f"model.overrides.chat_template={templates}", "limits.max_context=256") as it:
        yield it


@pytest.fixture(scope="module")
def other(templates: Path) -> Iterator[Served]:
    """A server with the same model that differs in what must not matter."""
    with serve(
        f"model.overrides.chat_template={templates}",
        "limits.max_context=256",
        f"device.isa={OTHER_ISA}",
        "scheduler.prefill_chunk=7",
        "kv.prefix_cache=false",
        "speculation.drafters=[]",
    ) as it:
        yield it


def streamed(served: Served, request: pb.GenerateRequest, **call: Any) -> Messages:
    return list(served.inference.Generate(request, **call))


def random_request(rng: random.Random) -> pb.GenerateRequest:
    """Every option that has to do with outputs, alone and together."""
    request = ask(rng.choice(PHRASES), rng.randint(1, 20), num_sequences=rng.choice([1, 1, 2, 4]))
    sampling, stop, output = request.sampling, request.stop, request.output
    sampling.seed = rng.getrandbits(64)
    sampling.temperature = rng.choice([0.0, 0.8, 1.5])
    if rng.random() < 0.4:
        sampling.repetition_penalty, sampling.frequency_penalty = 1.3, 0.4
        sampling.penalty_window = rng.choice([0, 16])
        sampling.logit_bias[rng.randrange(256, 2000)] = 3.0
    if rng.random() < 0.2:
        sampling.dry.multiplier = 0.8
        sampling.dry.breakers.append(".")
    if rng.random() < 0.3:
        stop.strings.extend(rng.sample([".", " the", "a ", "and", "e t"], 2))
        stop.include_match = rng.random() < 0.5
    if rng.random() < 0.3:
        stop.token_ids.extend(rng.sample(range(256, 2000), 40))
        stop.include_match = rng.random() < 0.7
    if rng.random() < 0.2:
        stop.min_tokens = rng.randint(0, stop.max_tokens)
    stop.ignore_eos = rng.random() < 0.2
    output.logprobs = rng.random() < 0.4
    output.top_logprobs = 2 * (output.logprobs and rng.random() < 0.5)
    output.max_chunk_tokens = rng.choice([1, 2, 5])
    output.parse = rng.random() < 0.2
    kind = rng.choice(["", "", "", "regex", "schema", "choices", "tools"])
    if kind == "regex":
        request.constraint.regex = "[a-z]{2,6}( [a-z]{2,6}){0,3}"
    elif kind == "schema":
        request.constraint.json_schema = SCHEMA
    elif kind == "choices":
        request.constraint.choices.values.extend(["yes", "no", "perhaps tomorrow"])
    elif kind == "tools":
        chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="Rain?")], tools_json=TOOLS)
        request.chat.CopyFrom(chat)
        request.tool_choice = rng.choice(["required", "auto", "function:get_weather"])
        request.output.parse, request.stop.max_tokens = True, 60
    return request


@pytest.mark.parametrize("seed", range(2))
def test_rsm_1_rsm_12_random_streams_go_on_behind_any_message(served: Served, other: Served, seed: int) -> None:
    """What came and what follows are the undisturbed stream, on the same server and on one with other settings."""
    rng, seen = random.Random(seed), set()
    for n in range(N_RANDOM):
        request = random_request(rng)
        messages = streamed(served, request)
        expected = whole_of(request, messages)
        cuts = range(1, len(messages)) if n % 5 == 0 else rng.sample(range(1, len(messages)), min(3, len(messages) - 1))
        for cut in cuts:
            followed = streamed(rng.choice([served, other]), resuming(request, messages[:cut]))
            together = whole_of(request, joined(messages[:cut], followed))
            assert together == expected, (request, cut)
            seen |= {(each.reason, each.HasField("match")) for each in together.sequences}
    assert {types_pb2.FINISH_REASON_STOP, types_pb2.FINISH_REASON_MAX_TOKENS} <= {reason for reason, _ in seen}


def test_rsm_1_a_resumed_stream_breaks_again_and_goes_on(served: Served, other: Served) -> None:
    request = ask("Once upon a time", 24, num_sequences=2)
    request.sampling.temperature, request.output.max_chunk_tokens = 1.0, 1
    messages = streamed(served, request)
    expected, have = whole_of(request, messages), messages[:3]
    while len(have) < len(messages):
        followed = streamed(other, resuming(request, have))
        assert whole_of(request, joined(have, followed)) == expected
        have = joined(have, followed[:6])
    assert whole_of(request, have) == expected


def test_rsm_1_what_is_not_of_the_tokens_may_differ(served: Served, other: Served) -> None:
    """Tenant, salt, priority, chunks, drafting, the time limit, a seed that is written out."""
    request = ask("Once upon a time", 12)
    request.sampling.temperature = 1.0
    messages = streamed(served, request)
    going_on = resuming(request, messages[:4])
    going_on.cache.salt, going_on.cache.bypass_prefix = "other", True
    going_on.output.max_chunk_tokens = 3
    going_on.speculation.enabled = False
    going_on.stop.time_limit.seconds = 60
    going_on.sampling.seed = messages[0].started.origin.seed
    followed = streamed(other, going_on, metadata=(("imp-tenant", "another"), ("imp-priority", "3")))
    assert whole_of(request, joined(messages[:4], followed)) == whole_of(request, messages)


ENDS: dict[str, dict[str, Any]] = {
    "limit": {},
    "stop string": {"stop": types_pb2.StopOptions(strings=["little"], max_tokens=40)},
    "half a stop string": {"stop": types_pb2.StopOptions(strings=["little zzz"], max_tokens=9)},
    "end token": {"sampling": types_pb2.SamplingOptions(temperature=0, logit_bias={})},
    "stop token": {"stop": types_pb2.StopOptions(max_tokens=40)},
    "stop token that is kept": {"stop": types_pb2.StopOptions(max_tokens=40, include_match=True)},
    "context": {"stop": types_pb2.StopOptions(ignore_eos=True)},
    "complete constraint": {"constraint": types_pb2.Constraint(regex="[a-c]{3}")},
    "end after a call": {},
}


@pytest.mark.parametrize("end", ENDS)
def test_rsm_13_a_lost_end_comes_back(served: Served, other: Served, end: str) -> None:
    """All tokens came, and the end did not: it comes again, with its reason, match, held text and usage."""
    request = ask("Once upon a time", 8)
    request.output.max_chunk_tokens = 1
    request.MergeFrom(pb.GenerateRequest(**ENDS[end]))
    if end.startswith("stop token"):
        known = told_of(request, streamed(served, ask("Once upon a time", 12)))[0].token_ids
        request.stop.token_ids.append(next(token for token in known[5:] if token not in known[:5]))
    if end == "end token":
        request.sampling.logit_bias[min(served.state.model.eos_tokens)] = 100
    if end == "context":
        request.stop.ClearField("max_tokens")
    if end == "end after a call":
        chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="Rain?")], tools_json=TOOLS)
        request.chat.CopyFrom(chat)
        request.tool_choice, request.output.parse, request.stop.max_tokens = "required", True, 100
        request.parallel_tool_calls = False
    messages = streamed(served, request)
    whole = whole_of(request, messages)
    for server in (served, other):
        followed = streamed(server, resuming(request, messages[:-1]))
        assert [each.WhichOneof("event") for each in followed] == ["started", "finished"]
        assert whole_of(request, joined(messages[:-1], followed)) == whole
    reason = types_pb2.FinishReason.Name(whole.sequences[0].reason).removeprefix("FINISH_REASON_")
    limits = {"limit": "MAX_TOKENS", "half a stop string": "MAX_TOKENS", "context": "CONTEXT_FULL"}
    assert reason == limits.get(end, "STOP")
    kinds = {"stop string": "text", "end token": "eos_token_id", "stop token": "token_id"}
    assert whole.sequences[0].match.WhichOneof("match") == kinds.get(end.removesuffix(" that is kept"))


def test_rsm_13_a_told_end_is_not_told_again(served: Served, other: Served) -> None:
    """Also one that the other server does not know: an end by abort. Usage counts the whole outputs."""
    request = ask("Once upon a time", 12, num_sequences=3)
    request.sampling.temperature, request.sampling.seed, request.stop.strings[:] = 1.0, 7, ["a", "e"]
    messages = streamed(served, request)
    ends = [n for n, each in enumerate(messages) if each.WhichOneof("event") == "finished"]
    assert ends[0] + 1 < ends[-1]
    for cut in (ends[0] + 1, ends[1] + 1):
        followed = streamed(other, resuming(request, messages[:cut]))
        assert whole_of(request, joined(messages[:cut], followed)) == whole_of(request, messages)
    # Nothing is left to tell.
    followed = streamed(other, resuming(request, messages))
    assert [each.WhichOneof("event") for each in followed] == ["started"]
    # The second sequence was aborted behind its third token.
    told = resuming(request, messages[:1])
    outputs = told_of(request, messages)
    told.resume.sequences[1].CopyFrom(pb.ResumedSequence(token_ids=outputs[1].token_ids[:2], finished=True))
    followed = streamed(other, told)
    assert {each.finished.index for each in followed if each.WhichOneof("event") == "finished"} == {0, 2}
    assert told_of(request, followed)[1].token_ids == []
    assert followed[-1].finished.usage.output_tokens == sum(len(outputs[i].token_ids) for i in (0, 2)) + 2


def refusal(served: Served, request: pb.GenerateRequest) -> FailedCall:
    return failed(lambda: streamed(served, request))


def refused_paths(served: Served, request: pb.GenerateRequest) -> list[str]:
    found = refusal(served, request)
    assert (found.code, found.reason) == ("INVALID_ARGUMENT", "FIELD_INVALID"), found.message
    return found.paths


def cut_at_four(served: Served, **fields: Any) -> tuple[pb.GenerateRequest, pb.GenerateRequest]:
    request = ask("Once upon a time", 12, **fields)
    request.sampling.temperature, request.sampling.seed, request.output.max_chunk_tokens = 1.0, 3, 1
    return request, resuming(request, streamed(served, request)[:5])


def test_rsm_3_x01_x02_x04_wrong_told_outputs_are_refused_by_their_paths(served: Served) -> None:
    _, good = cut_at_four(served)
    n_steps = served.call(lambda: served.state.model.client.engine.stats().n_steps)

    def paths(change: Any, **fields: Any) -> list[str]:
        request = pb.GenerateRequest()
        request.CopyFrom(good)
        request.MergeFrom(pb.GenerateRequest(**fields))
        change(request.resume)
        return refused_paths(served, request)

    ids = "resume.sequences[0].token_ids"
    origin = "resume.origin"
    assert paths(lambda resume: resume.sequences.add()) == ["resume.sequences"]
    assert paths(lambda resume: resume.ClearField("sequences")) == ["resume.sequences"]
    assert paths(lambda resume: None, num_sequences=2) == ["resume.sequences"]
    assert paths(lambda resume: resume.sequences[0].token_ids.append(2**32 - 1)) == [f"{ids}[4]"]
    assert paths(lambda resume: resume.sequences[0].token_ids.extend([2] * 9)) == [ids]  # more than max_tokens
    assert paths(lambda resume: resume.sequences[0].token_ids.extend([2] * 300)) == [ids]  # more than the context
    assert paths(lambda resume: resume.sequences[0].token_ids.extend([2**31] * 700_000)) == [ids]
    assert paths(lambda resume: resume.ClearField("origin")) == [f"{origin}.server", f"{origin}.request"]
    assert paths(lambda resume: setattr(resume.origin, "server", "x" * (1 << 20))) == [f"{origin}.server"]
    assert paths(lambda resume: setattr(resume.origin, "request", resume.origin.request[:-1])) == [f"{origin}.request"]
    assert paths(lambda resume: setattr(resume.origin, "created", -1)) == [f"{origin}.created"]
    assert paths(lambda resume: setattr(resume.origin, "created", 2**62)) == [f"{origin}.created"]
    assert paths(lambda resume: setattr(resume.origin, "seed", 4)) == [f"{origin}.seed"]
    unary = pb.GenerateUnaryRequest(request=good)
    assert failed(lambda: served.inference.GenerateUnary(unary)).paths == ["request.resume"]
    good.ClearField("text")
    good.session_id = "mine"
    assert "resume" in refused_paths(served, good)
    assert served.call(lambda: served.state.model.client.engine.stats().n_steps) == n_steps


def test_rsm_3_x01_no_output_is_longer_than_the_context(served: Served) -> None:
    """C - prompt + 1 outputs fit, the last of which is not evaluated: as many may be told, and no more."""
    request = ask("Once upon a time", None)
    request.stop.ignore_eos, request.sampling.temperature = True, 1.0
    messages = streamed(served, request)
    followed = streamed(served, resuming(request, messages[:-1]))
    assert whole_of(request, joined(messages[:-1], followed)) == whole_of(request, messages)
    told = resuming(request, messages[:-1])
    assert len(told.resume.sequences[0].token_ids) == 256 - messages[0].started.prompt_tokens + 1
    told.resume.sequences[0].token_ids.append(2)
    assert refused_paths(served, told) == ["resume.sequences[0].token_ids"]


def test_rsm_3_x03_outputs_behind_an_end_or_against_the_constraint_are_refused(served: Served) -> None:
    """A control token is a token like any other, unless it ends the output."""
    ids = "resume.sequences[0].token_ids"
    end = min(served.state.model.eos_tokens)
    _, good = cut_at_four(served)
    good.resume.sequences[0].token_ids[1] = end
    assert refused_paths(served, good) == [f"{ids}[2]"]
    good.stop.ignore_eos = True
    assert refusal(served, good).metadata == {"differs": "request"}  # it was not so in the stream
    ignoring, told = cut_at_four(served, stop=types_pb2.StopOptions(ignore_eos=True))
    told.resume.sequences[0].token_ids[1] = end
    found = refusal(served, told) if streamed(served, ignoring) else None
    assert found is None or found.metadata == {"differs": "sequences[0].token_ids[3]"}
    _, told = cut_at_four(served, stop=types_pb2.StopOptions(strings=["zqz"]))
    told.resume.sequences[0].token_ids[:] = [*spelled("zqz"), 2]
    assert refused_paths(served, told) == [f"{ids}[3]"]
    for constraint in ({"regex": "[a-c]{9}"}, {"choices": types_pb2.Choices(values=["abcabcabc", "bbb"])}):
        _, told = cut_at_four(served, constraint=types_pb2.Constraint(**constraint))
        told.resume.sequences[0].token_ids[:] = [*spelled("bx"), 2]
        assert refused_paths(served, told) == [f"{ids}[1]"]
        told.resume.sequences[0].token_ids[:] = spelled("bx")
        assert refused_paths(served, told) == [f"{ids}[1]"]


def test_rsm_12_the_seam_refuses_another_token_before_the_start(served: Served, other: Served) -> None:
    _, good = cut_at_four(served, num_sequences=2)
    n_before = {kind: counted(served, "imp_resume_mismatch_total", differs=kind) for kind in ("token", "request")}
    last = len(good.resume.sequences[1].token_ids) - 1
    wrong = pb.GenerateRequest()
    wrong.CopyFrom(good)
    wrong.resume.sequences[1].token_ids[last] += 1
    found = refusal(served, wrong)
    assert (found.code, found.reason) == ("FAILED_PRECONDITION", "RESUME_MISMATCH")
    assert found.metadata == {"differs": f"sequences[1].token_ids[{last}]"}
    assert counted(served, "imp_resume_mismatch_total", differs="token") == n_before["token"] + 1
    good.sampling.temperature = 0.9
    assert refusal(other, good).metadata == {"differs": "request"}
    good.resume.origin.server = "0" * 16
    assert refusal(other, good).metadata == {"differs": "server"}


def test_rsm_12_other_bits_of_the_model_are_met_at_the_seam(served: Served, templates: Path) -> None:
    """A server that wrongly says to be the same: its model is another one."""
    request, good = cut_at_four(served)
    messages = streamed(served, request)
    rope = "model.overrides.rope_theta=20"
    settings = (f"model.overrides.chat_template={templates}", "limits.max_context=256", rope)
    with serve(*settings, model=replace(built_in(), canary=None)) as wrong:
        assert refusal(wrong, good).metadata == {"differs": "server"}
        wrong.state.model.__dict__["fingerprint"] = served.state.model.fingerprint
        outcomes = {}
        for n_told in range(1, 13):
            try:
                streamed(wrong, resuming(request, messages[: n_told + 1]))
            except grpc.RpcError as error:
                outcomes[n_told] = FailedCall(error).metadata
    assert outcomes
    assert outcomes == {n: {"differs": f"sequences[0].token_ids[{n - 1}]"} for n in outcomes}


CHANGES: dict[str, dict[str, Any]] = {
    "prompt": {"text": "Once upon a Time"},
    "sampler": {"sampling": types_pb2.SamplingOptions(top_k=40)},
    "bias": {"sampling": types_pb2.SamplingOptions(logit_bias={300: 1.0})},
    "dry": {"sampling": types_pb2.SamplingOptions(dry=types_pb2.DryOptions(multiplier=0.5))},
    "breakers": {"sampling": types_pb2.SamplingOptions(dry=types_pb2.DryOptions(breakers=["x"]))},
    "max_tokens": {"stop": types_pb2.StopOptions(max_tokens=13)},
    "min_tokens": {"stop": types_pb2.StopOptions(min_tokens=1)},
    "strings": {"stop": types_pb2.StopOptions(strings=["x"])},
    "stop tokens": {"stop": types_pb2.StopOptions(token_ids=[7])},
    "end token": {"stop": types_pb2.StopOptions(ignore_eos=True)},
    "match": {"stop": types_pb2.StopOptions(include_match=True)},
    "constraint": {"constraint": types_pb2.Constraint(regex="[^x]*")},
    "text": {"output": types_pb2.OutputOptions(text=False)},
    "special tokens": {"output": types_pb2.OutputOptions(special_tokens=True)},
    "parse": {"output": types_pb2.OutputOptions(parse=True)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_rsm_12_x05_another_option_is_another_request(served: Served, change: str) -> None:
    _, going_on = cut_at_four(served)
    going_on.MergeFrom(pb.GenerateRequest(**CHANGES[change]))
    assert refusal(served, going_on).metadata == {"differs": "request"}


def test_rsm_6_p26_a_resumed_request_takes_over_its_id() -> None:
    """The call that came last has the request; another tenant's equal id, and one without `resume`, are as before."""
    asked = ask([HELD - 20], 40, request_id="mine")
    with gate() as held, serve(model=held.model()) as served:
        first = served.inference.Generate(asked)
        going_on = resuming(asked, [next(first)])
        # Not before the first has started: it could come to the gate alone.
        alien = served.inference.Generate(asked, metadata=(("imp-tenant", "b"),))
        going_on.resume.sequences[0].token_ids.extend(range(HELD - 19, HELD - 10))
        held.wait()
        assert refusal(served, asked).reason == "REQUEST_ID_IN_USE"
        # One that is refused ends nothing.
        wrong = resuming(
            ask([HELD - 20], 41, request_id="mine"), [pb.GenerateResponse(started=going_on_started(going_on))]
        )
        assert refusal(served, wrong).metadata == {"differs": "request"}
        with ThreadPoolExecutor(10) as pool:
            calls = [pool.submit(outcome_of, served, going_on) for _ in range(10)]
            served.wait_until(lambda: sum(call.done() for call in calls) == 9, "nine are cancelled")
            held.open(ALL_STEPS)
            ends = sorted(call.result() for call in calls)
        assert ends == ["CANCELLED"] * 9 + ["OK"]
        ended = failed(lambda: list(first))
        assert (ended.code, ended.reason) == ("CANCELLED", "")
        assert len(told_of(asked, list(alien))[0].token_ids) == 40


def going_on_started(request: pb.GenerateRequest) -> pb.GenerationStarted:
    return pb.GenerationStarted(origin=request.resume.origin)


def outcome_of(served: Served, request: pb.GenerateRequest) -> str:
    try:
        streamed(served, request)
    except Exception as error:
        return FailedCall(error).code
    return "OK"


def test_rsm_7_told_outputs_are_counted_once_and_recomputed_ones_apart(served: Served, other: Served) -> None:
    _, going_on = cut_at_four(served, num_sequences=2)
    names = {
        "resumed": ("imp_resumed_total", {}),
        "output": ("imp_output_tokens_total", {}),
        "computed": ("imp_prompt_tokens_total", {"kind": "computed"}),
        "recomputed": ("imp_prompt_tokens_total", {"kind": "recomputed"}),
    }

    def numbers() -> dict[str, float]:
        return {what: counted(other, name, **labels) for what, (name, labels) in names.items()}

    before = numbers()
    followed = streamed(other, going_on)
    usage, n_prompt = followed[-1].finished.usage, followed[0].started.prompt_tokens
    other.wait_for_rest()  # until the call is counted and logged
    grown = {what: n - before[what] for what, n in numbers().items()}
    n_told = sum(len(each.token_ids) for each in going_on.resume.sequences)
    # Without a cache each sequence evaluates the prompt and what was told of it but for the last token.
    assert grown == {
        "resumed": 1,
        "output": usage.output_tokens - n_told,
        "computed": n_prompt,
        "recomputed": n_prompt + n_told - 2,
    }
    assert usage.output_tokens == 24 and usage.prompt_tokens == n_prompt
    (line,) = [line for line in map(json.loads, other.log_lines()) if line.get("id") == followed[0].started.request_id]
    assert (line["output_tokens"], line["resumed_tokens"], line["prompt_tokens"]) == (24 - n_told, n_told, n_prompt)


DATED = "{% for m in messages %}{{ m.content }}{% endfor %} Today is {{ strftime_now('%d %B %Y %H:%M:%S') }}. "


def test_rsm_11_a_prompt_with_a_date_is_the_same_after_midnight(tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text(DATED)
    chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="Hello.")])
    request = pb.GenerateRequest(
        chat=chat, stop=types_pb2.StopOptions(max_tokens=10), output=types_pb2.OutputOptions(prompt_token_ids=True)
    )
    with serve(f"model.overrides.chat_template={path}") as served:
        midnight = datetime(2031, 5, 7).timestamp()
        now = [midnight - 0.25]
        served.state.model.wall = lambda: now[0]
        messages = streamed(served, request)
        started = messages[0].started
        tokenizer = served.state.model.tokenizer
        assert "Today is 06 May 2031 23:59:59." in tokenizer.decode(list(started.prompt.token_ids))
        assert started.origin.created == midnight - 1
        now[0] += 3600
        followed = streamed(served, resuming(request, messages[:5]))
        assert whole_of(request, joined(messages[:5], followed)) == whole_of(request, messages)
        assert followed[0].started.prompt.token_ids == started.prompt.token_ids
        fresh = streamed(served, request)[0].started
        assert "Today is 07 May 2031 00:59:59." in tokenizer.decode(list(fresh.prompt.token_ids))
        changed = resuming(request, messages[:5])
        changed.resume.origin.created += 1
        assert refusal(served, changed).metadata == {"differs": "request"}


def test_rsm_1_x04_a_stream_whose_tokens_depend_on_the_cache_has_no_origin() -> None:
    """Sparse prefill chooses by the time and the cache. A dense prompt of the same server has an origin."""
    with serve("sparse_prefill.enabled=true", "sparse_prefill.threshold=200") as served:
        request = ask([400 + i * 7 % 900 for i in range(400)], 6)
        messages = streamed(served, request)
        followed = streamed(served, resuming(request, messages[:3]))
        assert whole_of(request, joined(messages[:3], followed)) == whole_of(request, messages)
        request.sparse_prefill.policy = types_pb2.SPARSE_PREFILL_POLICY_AUTO
        assert not streamed(served, request)[0].started.HasField("origin")
        assert refused_paths(served, resuming(request, messages[:3])) == ["resume"]


def test_x01_many_callers_at_once_are_done_at_last(served: Served, other: Served) -> None:
    """After a server's death all its streams come back at once: refused with a delay, or done."""
    request, going_on = cut_at_four(served)
    expected = whole_of(request, streamed(served, request))

    def persist(_: int) -> str:
        while True:
            try:
                return str(streamed(other, going_on)[-1].finished.usage.output_tokens)
            except Exception as error:
                assert FailedCall(error).reason == "QUEUE_FULL"

    with ThreadPoolExecutor(16) as pool:
        ends = set(pool.map(persist, range(repetitions(10_000, 200))))
    assert ends == {str(expected.usage.output_tokens)}
