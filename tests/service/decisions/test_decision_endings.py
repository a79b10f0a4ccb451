"""How a decision ends early: cancelled, late, aborted, or refused by a full queue. Nothing of it is left."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc

from imp_service.pb import admin_pb2, types_pb2
from imp_service.pb import inference_pb2 as pb
from support.calls.failed_calls import failed
from support.run.patience import HANGS_AFTER
from support.servers.gate import ALL_STEPS, HELD, Gate, gate
from support.servers.http_served import HttpServed, serve_http
from support.servers.served import ask

# Evaluating it blocks.
HOLDS = types_pb2.TokenIds(ids=[5, HELD])
LABELS = ["first", "second", "third"]


def held_up(stack: ExitStack, *settings: str) -> tuple[HttpServed, Gate]:
    """A server whose engine blocks where it evaluates HELD."""
    held = stack.enter_context(gate())
    http = stack.enter_context(serve_http(*settings, model=held.model(table=[300])))
    stack.callback(held.open, ALL_STEPS)
    return http, held


def test_dec_8_a_cancelled_call_frees_all_that_it_holds() -> None:
    with ExitStack() as stack:
        http, held = held_up(stack)
        call = http.served.inference.Decide.future(pb.DecideRequest(token_ids=HOLDS, labels=LABELS))
        held.wait()
        call.cancel()
        http.served.wait_until(lambda: len(http.served.state.requests) == 0, "the request gone")
        held.open(ALL_STEPS)
        http.wait_for_rest()
        assert call.code() is grpc.StatusCode.CANCELLED


def test_dec_8_a_deadline_ends_a_decision() -> None:
    with ExitStack() as stack:
        http, held = held_up(stack)
        request = pb.DecideRequest(token_ids=HOLDS, labels=LABELS)
        late = failed(lambda: http.served.inference.Decide(request, timeout=0.3))
        assert late.code == "DEADLINE_EXCEEDED"
        held.open(ALL_STEPS)
        http.wait_for_rest()


def test_dec_8_an_abort_ends_a_decision() -> None:
    with ExitStack() as stack:
        http, held = held_up(stack, "listen.admin=127.0.0.1:0")
        request = pb.DecideRequest(token_ids=HOLDS, labels=LABELS, request_id="mine")
        call = http.served.inference.Decide.future(request)
        held.wait()
        aborted = http.served.admin.Abort(admin_pb2.AbortRequest(request_ids=["mine"]))
        assert aborted.aborted_request_ids == ["mine"]
        held.open(ALL_STEPS)
        assert failed(lambda: call.result(timeout=HANGS_AFTER)).code == "CANCELLED"
        http.wait_for_rest()


def test_dec_8_a_full_queue_refuses_a_decision() -> None:
    with ExitStack() as stack:
        http, held = held_up(stack, "scheduler.max_running=1", "scheduler.max_waiting=1")
        stub = http.served.inference
        first = stub.Generate(ask([HELD], 1))
        held.wait()
        waiting = stub.Decide.future(pb.DecideRequest(text="a", labels=LABELS))
        http.served.wait_until(lambda: len(http.served.state.requests) == 2, "a waiting decision")
        full = failed(lambda: stub.Decide(pb.DecideRequest(text="b", labels=LABELS)))
        assert (full.code, full.reason) == ("RESOURCE_EXHAUSTED", "QUEUE_FULL")
        held.open(ALL_STEPS)
        assert waiting.result(timeout=HANGS_AFTER).label in LABELS
        list(first)
        http.wait_for_rest()


def test_dec_8_more_rows_than_the_queue_has_places_wait_for_them() -> None:
    with serve_http("scheduler.max_running=2", "scheduler.max_waiting=2") as http:
        labels = [f"{a} {b}" for a in ("one", "two", "six", "ten") for b in ("cats", "dogs", "cows", "hens")]
        requests = [pb.DecideRequest(text="I have ", labels=labels)] * 3
        found = http.served.inference.Decide(requests[0])
        assert found.evaluations > 8
        question = {"type": "choice", "instructions": "x", "choices": [{"value": str(i)} for i in range(40)]}
        reply = http.client.post("/v1/decisions", {"input": "y", "questions": [question] * 5})
        assert len(reply.json["answers"]) == 5
        http.wait_for_rest()


def test_dec_8_many_cancelled_decisions_leave_nothing() -> None:
    with serve_http() as http, ThreadPoolExecutor(4) as pool:

        def cancel_at(milliseconds: int) -> None:
            request = pb.DecideRequest(text=f"{milliseconds} is ", range=pb.IntegerRange(low=0, high=300))
            call = http.served.inference.Decide.future(request)
            try:
                call.result(timeout=milliseconds / 1000)
            except grpc.FutureTimeoutError:
                call.cancel()

        list(pool.map(cancel_at, range(1, 40, 2)))
        http.wait_for_rest()
