"""A step is refused before it runs if its reply is too large to send. At the limit it runs, and its reply arrives."""

from collections.abc import Callable, Iterator

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from support.calls.session_calls import SessionCalls, details_of, prefill
from support.servers.served import Served, serve

MESSAGE_BYTES = 64 * 1024


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(f"limits.max_message_bytes={MESSAGE_BYTES}") as running:
        yield running


def is_too_large(call: Callable[[], object], field: str) -> bool:
    """Reports whether a call is refused for the size of its reply, in `field`. It allows no other error."""
    try:
        call()
    except grpc.RpcError as error:
        found = details_of(error)
        assert (found.reason, found.paths[0].endswith(field)) == ("FIELD_INVALID", True)
        assert "limits.max_message_bytes" in found.message
        return True
    return False


@pytest.mark.long
def test_rpc_35_logits_of_many_sessions(served: Served) -> None:
    calls = SessionCalls(served)
    names = [calls.prefill([300 + i, 301]).session_id for i in range(30)]
    each = {"token_ids": [302], "step": pb.StepOptions(logits=True)}
    steps = [pb.SessionStep(session_id=name, **each) for name in names]
    n = 1
    while not is_too_large(lambda: calls.steps(*steps[: n + 1]), "].step.logits"):  # noqa: B023
        n += 1
    # The largest accepted batch is within a row and the reply's overhead of the limit.
    row = 4 * served.state.model.vocab_size
    assert n * (row + 1024) > MESSAGE_BYTES - 2 * row
    before = served.stats().n_steps
    assert is_too_large(lambda: calls.steps(*steps[: n + 1]), "].step.logits")
    request = pb.DecodeStreamRequest(step=pb.DecodeStepRequest(steps=steps[: n + 1]))
    (answer,) = calls.stub.DecodeStream(iter([request]))
    assert answer.error.reason == "FIELD_INVALID" and "].step.logits" in answer.error.message
    assert served.stats().n_steps == before
    assert calls.steps(*steps[:n]).ByteSize() <= MESSAGE_BYTES


@pytest.mark.long
def test_rpc_35_scores_of_a_long_prefill(served: Served) -> None:
    calls = SessionCalls(served)
    options = pb.StepOptions(scores=True, top_logprobs=20)
    prompt = [300 + i % 70 for i in range(500)]
    n_sessions, n_rows = len(served.state.sessions), served.stats().n_prefill_rows
    n = len(prompt)
    while is_too_large(lambda: calls.prefill(prompt[:n], "scored", position=0, step=options), "step.scores"):  # noqa: B023
        assert (len(served.state.sessions), served.stats().n_prefill_rows) == (n_sessions, n_rows)
        n -= 1
    (answer,) = calls.stub.DecodeStream(iter([pb.DecodeStreamRequest(prefill=prefill(prompt[: n + 1], step=options))]))
    assert answer.error.reason == "FIELD_INVALID" and "prefill.step.scores" in answer.error.message
    reply = calls.prefill(prompt[:n], "scored", position=0, step=options)
    assert len(reply.output.scores.candidates) == n < len(prompt)
    assert MESSAGE_BYTES // 2 < reply.ByteSize() <= MESSAGE_BYTES
