"""An abandoned step leaves its session before or after it, and a retry returns its reply."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from support.calls.session_calls import WARM, SessionCalls, details_of, prefill, reason
from support.run.patience import HANGS_AFTER
from support.servers.served import Served, serve

PROMPT = [300 + 11 * i % 90 for i in range(40)]
LONG = [300 + 7 * i % 80 for i in range(300)]
TEXT = "Once upon a time there was a cat. " * 40  # long enough for a worker to read it


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    # A prefill takes many steps of the engine, so that a cancel can fall between them.
    with serve("scheduler.prefill_chunk=16", "kv.prefix_cache=false") as running:
        yield running


def again(call: Any, request: Any) -> Any:
    """Repeats a call until the session is free, and returns the reply."""
    while True:
        try:
            return call(request, timeout=HANGS_AFTER)
        except grpc.RpcError as error:
            if details_of(error).reason != "SESSION_BUSY":
                raise


def cancel_at(served: Served, started: Any, n_steps: int) -> None:
    """Cancels a call after the engine has made `n_steps` more steps."""
    before = served.stats().n_steps
    served.wait_until(
        lambda: started.done() or served.state.model.client.engine.stats().n_steps >= before + n_steps,
        "the engine steps",
    )
    started.cancel()


@pytest.mark.long
@pytest.mark.parametrize("point", range(10))
def test_ses_29_s11_a_cancelled_step_is_done_or_not(calls: SessionCalls, point: int) -> None:
    undisturbed = calls.prefill(PROMPT, sampling=WARM).session_id
    extension = prefill(LONG, undisturbed, position=40)
    expected = [calls.stub.Prefill(extension).output]
    expected.append(calls.step(undisturbed, LONG[:150], position=340))

    name = calls.prefill(PROMPT, sampling=WARM).session_id
    (held,) = [each for each in calls.served.state.sessions.held() if each.session_id == name]
    extension.session_id = name
    step = pb.DecodeStepRequest(steps=[pb.SessionStep(session_id=name, token_ids=LONG[:150], position=340)])
    for call, request, position, output in (
        (calls.stub.Prefill, extension, 40, lambda reply: reply.output),
        (calls.stub.DecodeStep, step, 340, lambda reply: reply.results[0].output),
    ):
        started = call.future(request)
        cancel_at(calls.served, started, 2 * point)
        after = position + (300 if call is calls.stub.Prefill else 150)
        assert calls.served.call(lambda: held.position) in (position, after)
        reply = again(call, request)
        assert output(reply) == expected[0 if position == 40 else 1]
        assert calls.served.call(lambda: held.position) == after
        # A retry evaluates and draws nothing.
        n_steps = calls.served.stats().n_steps
        assert call(request).SerializeToString() == reply.SerializeToString()
        assert calls.served.stats().n_steps == n_steps


@pytest.mark.few(2)
@pytest.mark.parametrize("timeout", [0.0005, 0.002, 0.005, 0.01, 0.02])
def test_ses_29_a_deadline_leaves_the_session_before_or_after(calls: SessionCalls, timeout: float) -> None:
    name = calls.prefill(PROMPT).session_id
    request = prefill(LONG, name, position=40)
    try:
        calls.stub.Prefill(request, timeout=timeout)
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]
    assert again(calls.stub.Prefill, request).output == calls.prefill([*PROMPT, *LONG]).output


@pytest.mark.long
def test_ses_29_an_opening_is_safe_to_repeat_where_the_caller_named_it(calls: SessionCalls) -> None:
    expected = calls.prefill(LONG).output
    for point in range(6):
        request = prefill(LONG, f"mine-{point}", position=0)
        cancel_at(calls.served, calls.stub.Prefill.future(request), 3 * point)
        assert again(calls.stub.Prefill, request).output == expected
    assert len(calls.served.state.sessions) == 7


@pytest.mark.long
@pytest.mark.parametrize("prompt", [LONG, TEXT], ids=["ids", "text"])
def test_ses_29_an_opening_whose_name_nobody_learned_leaves_nothing(calls: SessionCalls, prompt: Any) -> None:
    for point in range(6):
        started = calls.stub.Prefill.future(prefill(prompt))
        cancel_at(calls.served, started, 3 * point)
        # On the same connection: the server has received the cancel before this call.
        assert reason(lambda: calls.step("nobody")) == "SESSION_NOT_FOUND"
        state, sessions = calls.served.state, calls.served.state.sessions
        calls.served.wait_until(
            lambda: state.calls.n_requests == 0 and not any(held.is_busy for held in sessions.held()),  # noqa: B023
            "the call has ended",
        )
        # A session whose reply was already on its way stays until its ttl.
        assert all(not held.is_new for held in sessions.held())
        calls.served.jump(61)
        calls.served.wait_for_rest()


def test_s11_a_released_session_takes_its_step_with_it(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    started = calls.stub.Prefill.future(prefill(LONG, name))
    calls.served.wait_until(lambda: calls.served.state.sessions.held()[0].is_busy or started.done(), "it has begun")
    assert calls.release(name) is True
    calls.served.wait_for_rest()
    assert started.exception() is None or reason(started.result) == "SESSION_NOT_FOUND"


@pytest.mark.long
def test_s11_a_batch_that_nobody_waits_for_is_done_for_each(calls: SessionCalls) -> None:
    names = [calls.prefill(PROMPT, sampling=WARM).session_id for _ in range(3)]
    expected = calls.step(names[0], LONG[:150], position=40)
    steps = [pb.SessionStep(session_id=name, token_ids=LONG[:150], position=40) for name in names]
    request = pb.DecodeStepRequest(steps=steps)
    cancel_at(calls.served, calls.stub.DecodeStep.future(request), 2)
    while True:
        results = calls.steps(*steps).results
        if not any(each.error.reason == "SESSION_BUSY" for each in results):
            break
    # Repeats: what the cancelled call had begun ran once.
    assert [each.output for each in results] == [expected] * 3
