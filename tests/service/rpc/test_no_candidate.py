"""A sequence without any token to draw ends alone, whatever else forbids tokens."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.failed_calls import failed
from support.calls.generations import byte_tokens, streamed
from support.calls.session_calls import SessionCalls
from support.servers.served import Served, ask, serve
from support.servers.served_models import scripted

A = byte_tokens()[ord("a")]
NEVER = [A, 700, 701]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server that never draws some tokens: a mask that allows only these leaves no candidate."""
    with serve(model=scripted(suppressed_tokens=NEVER)) as server:
        yield server


def mask(served: Served, *tokens: int) -> bytes:
    bits = bytearray(-(-served.state.model.vocab_size // 8))
    for token in tokens:
        bits[token // 8] |= 1 << token % 8
    return bytes(bits)


def test_d17_smp_18_a_step_without_a_candidate_fails_alone_and_changes_nothing(served: Served) -> None:
    """A bias on forbidden tokens does not help this step. The others draw the same tokens as without it."""
    calls = SessionCalls(served)
    for name, token in (("left", 300), ("empty", 400), ("right", 500)):
        assert calls.prefill([token], name, position=0).output.token_id == token + 1
    biased = types_pb2.SamplingOptions(temperature=0.0, logit_bias={400: 100.0, 700: 100.0})
    nothing = pb.StepOptions(allowed_token_mask=mask(served, *NEVER))
    left, empty, right = calls.steps(
        pb.SessionStep(session_id="left"),
        pb.SessionStep(session_id="empty", sampling=biased, step=nothing),
        pb.SessionStep(session_id="right", step=pb.StepOptions(allowed_token_mask=mask(served, 502, *NEVER))),
    ).results
    assert (left.output.token_id, right.output.token_id) == (302, 502)
    assert (empty.error.code, empty.error.reason) == (grpc.StatusCode.FAILED_PRECONDITION.value[0], "NO_CANDIDATE")
    alone = failed(lambda: calls.step("empty", step=nothing))
    assert (alone.code, alone.reason) == ("FAILED_PRECONDITION", "NO_CANDIDATE")
    assert set(alone.metadata) == {"position"}
    # Its pending token is unchanged.
    assert (calls.step("empty").token_id, calls.step("empty").position) == (402, 3)


@pytest.mark.long
@pytest.mark.parametrize("min_tokens", [0, 5])
def test_d17_smp_18_a_generation_without_a_candidate_fails_alone(served: Served, min_tokens: int) -> None:
    """The constraint requires a token that is never drawn, and min_tokens forbids the end."""
    beside = served.inference.Generate(ask([300], 60))
    assert next(beside).WhichOneof("event") == "started"
    request = ask([400], 8, constraint=types_pb2.Constraint(choices=types_pb2.Choices(values=["a"])))
    request.stop.min_tokens = min_tokens
    request.sampling.logit_bias[A] = 100.0
    refused = failed(lambda: streamed(served, request))
    assert (refused.code, refused.reason) == ("FAILED_PRECONDITION", "NO_CANDIDATE")
    assert refused.metadata == {"position": "1"}
    ids = [token for message in beside for token in message.chunk.token_ids]
    assert ids == list(range(301, 361))
    served.wait_for_rest()
