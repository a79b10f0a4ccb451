"""Every field, set alone, has an effect: in the reply of each method that has it, or in an error that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.generations import Result, in_one, streamed
from support.calls.request_fields import APART, leaves, put, seconds
from support.calls.session_calls import SessionCalls
from support.calls.status_details import read_details
from support.servers.served import Served, serve

PROMPT = "the cat sat. the cat sat. the cat sat. the cat sat. the cat sat. the cat sat. the cat"
EOS = 2047


@dataclass(frozen=True)
class Case:
    """A value of one field, and the other fields that it needs to have a visible effect."""

    value: Any
    beside: dict[str, Any] = field(default_factory=dict)
    # The error, if the field is refused.
    refusal: tuple[str, str] | None = None
    # Checks the sizes of the stream's messages, if the field only changes those.
    shows: Callable[[list[int]], bool] = lambda chunks: False


# Sampling chooses among a few tokens: penalized tokens come soon, and change the probabilities of the others.
FEW: dict[str, Any] = {"sampling.logit_bias": dict.fromkeys(range(300, 306), 100.0)}
TWO: dict[str, Any] = {"sampling.logit_bias": dict.fromkeys((300, 301), 100.0)}
DRY: dict[str, Any] = {**TWO, "sampling.dry.multiplier": 2.0}
SAMPLING = {
    "sampling.temperature": Case(0.0),
    "sampling.top_k": Case(1),
    "sampling.top_p": Case(0.01),
    "sampling.min_p": Case(1.0),
    "sampling.repetition_penalty": Case(3.0, FEW),
    "sampling.frequency_penalty": Case(2.0, FEW),
    "sampling.presence_penalty": Case(2.0, FEW),
    "sampling.logit_bias": Case({300: 100.0}),
    "sampling.seed": Case(8),
    "sampling.penalty_window": Case(1, {**FEW, "sampling.frequency_penalty": 2.0}),
    "sampling.typical_p": Case(0.01),
    "sampling.dry.multiplier": Case(2.0, TWO),
    "sampling.dry.base": Case(4.0, DRY),
    "sampling.dry.allowed_length": Case(50, DRY),
    "sampling.dry.window": Case(2, DRY),
    "sampling.dry.breakers": Case(["ay", " in"], DRY),
}
SWITCHED_OFF = ("FEATURE_DISABLED", "FAILED_PRECONDITION")
CASES = {
    **SAMPLING,
    "request_id": Case("mine"),
    "model": Case("nosuch", refusal=("MODEL_NOT_SERVED", "NOT_FOUND")),
    "stop.max_tokens": Case(3),
    "stop.min_tokens": Case(5, {"sampling.logit_bias": {EOS: 100.0}}),
    "stop.strings": Case(["a", "e", "t"]),
    "stop.token_ids": Case(list(range(300, 556))),
    "stop.ignore_eos": Case(True, {"sampling.logit_bias": {EOS: 100.0}}),
    "stop.include_match": Case(True, {"sampling.logit_bias": {EOS: 100.0}}),
    "stop.time_limit": Case(seconds(0, 1), {"stop.max_tokens": 200}),
    "output.text": Case(False),
    "output.logprobs": Case(True),
    "output.top_logprobs": Case(3),
    "output.prompt_logprobs": Case(True),
    "output.prompt_token_ids": Case(True),
    "output.max_chunk_tokens": Case(
        2, {"output.max_chunk_delay": seconds(10)}, shows=lambda chunks: set(chunks) <= {1, 2} and sum(chunks) == 24
    ),
    "output.max_chunk_delay": Case(
        seconds(10), {"output.max_chunk_tokens": 1024}, shows=lambda chunks: len(chunks) <= 2 and sum(chunks) == 24
    ),
    "output.special_tokens": Case(True, {"sampling.logit_bias": {EOS: 100.0}, "stop.ignore_eos": True}),
    "output.parse": Case(True, {"constraint.regex": "<think>a</think>b"}),
    "cache.bypass_prefix": Case(True),
    "cache.salt": Case("other"),
    "num_sequences": Case(2),
    "sparse_prefill.policy": Case(3, refusal=SWITCHED_OFF),
    "sparse_prefill.keep": Case(0.5, refusal=SWITCHED_OFF),
    "sparse_prefill.backbone": Case(0.5, refusal=SWITCHED_OFF),
    "speculation.enabled": Case(True, refusal=SWITCHED_OFF),
    "speculation.max_draft_tokens": Case(4, refusal=SWITCHED_OFF),
    "speculation.drafters": Case(["ngram"], refusal=SWITCHED_OFF),
    "max_reasoning_tokens": Case(3, {"text": f"{PROMPT} <think>"}),
    "tool_choice": Case("required", refusal=("FIELD_INVALID", "INVALID_ARGUMENT")),
}
# These fields divide a stream into messages. A unary reply is one message.
FRAMING = {"output.max_chunk_tokens", "output.max_chunk_delay"}


@pytest.fixture
def served() -> Iterator[Served]:
    sampling = ("model.overrides.default_sampling.temperature=1", "model.overrides.default_sampling.top_p=1")
    with serve(*sampling, "model.overrides.dialect=hermes", "speculation.drafters=[]") as server:
        yield server


def outcome(result: Result) -> tuple[Any, ...]:
    """Returns all that a caller sees, except times and the division into messages."""
    started = result.started
    return (
        started.request_id,
        started.seed,
        started.prompt_tokens,
        started.cached_prompt_tokens,
        started.prompt.SerializeToString(),
        result.outputs,
    )


def request_with(*fields: dict[str, Any]) -> pb.GenerateRequest:
    request = pb.GenerateRequest(request_id="r", text=PROMPT)
    for each in ({"sampling.seed": 7, "stop.max_tokens": 24}, *fields):
        for path, value in each.items():
            if isinstance(value, list | dict):
                clear(request, path)
            put(request, path, value)
    return request


def clear(message: Any, path: str) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        message = getattr(message, parent)
    message.ClearField(name)


@pytest.mark.long
@pytest.mark.parametrize("run", [streamed, in_one])
def test_rpc_4_p33_every_field_of_a_generation_shows(
    served: Served, run: Callable[[Served, pb.GenerateRequest], Result]
) -> None:
    # After this request all others find the same cached prefix.
    run(served, request_with({}))
    is_whole = run is in_one
    shown = []
    for path, case in CASES.items():
        request = request_with(case.beside, {path: case.value})
        if case.refusal is not None:
            with pytest.raises(grpc.RpcError) as raised:
                run(served, request)
            details = read_details(raised.value.trailing_metadata())
            assert (details.reason, raised.value.code().name) == case.refusal
            assert ("request." if is_whole else "") + path in details.message
        elif path in FRAMING:
            if not is_whole:
                assert case.shows(run(served, request).chunks)
        else:
            base, changed = outcome(run(served, request_with(case.beside))), outcome(run(served, request))
            if path == "request_id":
                assert (base[0], changed[0]) == ("r", "mine")
            assert base != changed, path
        shown.append(path)
    assert {path for path, _ in leaves(pb.GenerateRequest.DESCRIPTOR)} - APART == set(shown)


def steps_of(served: Served, method: str, sampling: types_pb2.SamplingOptions, n: int = 14) -> list[int]:
    """Returns the tokens of a session whose sampler is set on Prefill, on a step, or on a step of a stream."""
    calls = SessionCalls(served)
    opened = pb.PrefillRequest(text=PROMPT, step=pb.StepOptions(sample=False))
    if method == "Prefill":
        opened.sampling.CopyFrom(sampling)
        opened.step.Clear()
        first = calls.stub.Prefill(opened)
        ids = [first.output.token_id]
        while len(ids) < n:
            ids.append(calls.step(first.session_id).token_id)
        calls.release(first.session_id)
        return ids
    last = served.state.model.tokenizer.encode(" cat")[-1:]
    first = calls.stub.Prefill(opened)
    one = pb.SessionStep(session_id=first.session_id, token_ids=last, sampling=sampling)
    more = pb.SessionStep(session_id=first.session_id)
    requests = [pb.DecodeStepRequest(steps=[step]) for step in (one, *[more] * (n - 1))]
    if method == "DecodeStep":
        replies = [calls.stub.DecodeStep(request) for request in requests]
    else:
        stream = calls.stub.DecodeStream(iter([pb.DecodeStreamRequest(step=request) for request in requests]))
        replies = [reply.step for reply in stream]
    calls.release(first.session_id)
    return [reply.results[0].output.token_id for reply in replies]


@pytest.mark.long
@pytest.mark.parametrize("method", ["Prefill", "DecodeStep", "DecodeStream"])
def test_rpc_4_p33_every_field_of_a_sampler_shows_in_sessions(served: Served, method: str) -> None:
    known: dict[bytes, list[int]] = {}

    def sampled(*fields: dict[str, Any]) -> list[int]:
        sampling = request_with(*fields).sampling
        key = sampling.SerializeToString(deterministic=True)
        if key not in known:
            known[key] = steps_of(served, method, sampling)
        return known[key]

    for path, case in SAMPLING.items():
        assert sampled(case.beside) != sampled(case.beside, {path: case.value}), path
    names = {path for path, _ in leaves(types_pb2.SamplingOptions.DESCRIPTOR)}
    assert names == {path.removeprefix("sampling.") for path in SAMPLING}


MASK = bytes(37) + b"\x10" + bytes(218)  # only token 300
STEP_EFFECTS: dict[str, tuple[Any, Callable[[pb.StepOutput], bool]]] = {
    "sample": (False, lambda output: not output.HasField("token_id")),
    "top_logprobs": (3, lambda output: len(output.candidates.items) == 3),
    "logits": (True, lambda output: len(output.logits) == 4 * 2048),
    "scores": (True, lambda output: len(output.scores.token_ids) >= 1),
    "allowed_token_mask": (MASK, lambda output: output.token_id == 300),
}


def test_rpc_4_p33_every_field_of_a_step_shows(served: Served) -> None:
    assert {descriptor.name for descriptor in pb.StepOptions.DESCRIPTOR.fields} == STEP_EFFECTS.keys()
    calls = SessionCalls(served)
    for name, (value, shows) in STEP_EFFECTS.items():
        options = pb.StepOptions(**{name: value})
        opened = calls.stub.Prefill(pb.PrefillRequest(text="the cat", step=options))
        assert shows(opened.output), name
        plain = calls.stub.Prefill(pb.PrefillRequest(text="the cat"))
        assert not shows(plain.output), name
        request = pb.DecodeStepRequest(
            steps=[pb.SessionStep(session_id=plain.session_id, token_ids=[301, 302], step=options)]
        )
        [result] = calls.stub.DecodeStep(request).results
        assert shows(result.output), name
        [reply] = calls.stub.DecodeStream(iter([pb.DecodeStreamRequest(step=request)]))
        assert shows(reply.step.results[0].output), name
        calls.release(opened.session_id), calls.release(plain.session_id)
