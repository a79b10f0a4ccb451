"""Admission: request ids, places in the queue and deadlines. A refused call can be retried transparently."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import pytest

from imp_service.client.target import Target, open_channel
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc, types_pb2
from support.calls.failed_calls import FailedCall, failed
from support.calls.generations import in_one, result_of, streamed
from support.run.patience import HANGS_AFTER
from support.servers.gate import ALL_STEPS, HELD, Gate, gate
from support.servers.served import Served, ask, serve
from support.servers.served_models import scripted

BOTH = pytest.mark.parametrize("run", [streamed, in_one])
LONG_TEXT = "Once upon a time there was a girl. " * 34


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(model=scripted()) as server:
        yield server


@contextmanager
def held_up(*settings: str, **engine: Any) -> Iterator[tuple[Served, Gate, Any]]:
    """A server whose engine is stopped within a step of one running request."""
    with gate() as held, serve(*settings, model=held.model(**engine)) as served:
        first = served.inference.Generate(ask([HELD - 2], 4))
        held.wait()
        yield served, held, first
        held.open(ALL_STEPS)
        assert result_of(list(first)).usage.output_tokens == 4
        served.wait_for_rest()


def test_rpc_8_p26_r18_an_id_is_one_running_requests_and_free_again_after_it() -> None:
    with held_up() as (served, held, _):
        stub = served.inference
        running = stub.Generate(ask([300], 2, request_id="mine"))
        served.wait_until(lambda: len(served.state.requests) == 2, "both known")
        with ThreadPoolExecutor(9) as pool:
            refusals = [failed(call) for call in [lambda: list(stub.Generate(ask([300], 2, request_id="mine")))] * 3]
            refusals += pool.map(lambda _: failed(lambda: in_one(served, ask([300], 2, request_id="mine"))), range(9))
        for refusal in refusals:
            assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "REQUEST_ID_IN_USE")
            assert refusal.metadata == {"request_id": "mine"}
        # Other tenants' ids are separate.
        other = stub.Generate(ask([300], 2, request_id="mine"), metadata=(("imp-tenant", "b"),))
        served.wait_until(lambda: len(served.state.requests) == 3, "three known")
        running.cancel()
        served.wait_until(lambda: len(served.state.requests) == 2, "the cancelled one gone")
        again = stub.Generate(ask([301], 2, request_id="mine"))
        held.open(ALL_STEPS)
        assert result_of(list(other)).started.request_id == result_of(list(again)).started.request_id == "mine"


def test_rpc_8_an_id_that_is_not_given_is_chosen(served: Served) -> None:
    streams = [served.inference.Generate(ask([300], 1)) for _ in range(2)]
    told = [(result_of(list(stream)).started.request_id, dict(stream.initial_metadata())) for stream in streams]
    assert len({name for name, _ in told}) == 2
    assert all(metadata["imp-request-id"] == name and len(name) >= 16 for name, metadata in told)


@BOTH
def test_rpc_7_more_sequences_than_may_ever_wait_are_not_asked_to_retry(run: object) -> None:
    with serve("scheduler.max_waiting=2", model=scripted()) as served:
        refused = failed(lambda: run(served, ask([300], 1, num_sequences=3)))  # type: ignore[operator]
        assert (refused.code, refused.reason) == ("INVALID_ARGUMENT", "FIELD_INVALID")
        path = "request.num_sequences" if run is in_one else "num_sequences"
        assert refused.message == f"{path}: 3, expected at most scheduler.max_waiting = 2" and refused.paths == [path]
        assert streamed(served, ask([300], 1, num_sequences=2)).usage.output_tokens == 2


@pytest.mark.long
def test_rpc_11_w29_a_refusal_has_no_initial_metadata_and_is_retried_unseen() -> None:
    """gRPC's client retries on its own, but only if it has received no header."""
    policy = {
        "methodConfig": [
            {
                "name": [{"service": "imp.v1.InferenceService"}],
                "retryPolicy": {
                    "maxAttempts": 5,
                    "initialBackoff": "0.05s",
                    "maxBackoff": "0.1s",
                    "backoffMultiplier": 1,
                    "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
                },
            }
        ]
    }
    with held_up("scheduler.max_running=1", "scheduler.max_waiting=1") as (served, held, _):
        # One tenant on two connections: another would get a place of its own in the queue.
        metadata = (("imp-tenant", "a"),)
        waiting = served.inference.Generate(ask([300], 2), metadata=metadata)
        served.wait_until(lambda: len(served.state.requests) == 2, "one waits")
        refusal = failed(lambda: list(served.inference.Generate(ask([301], 2), metadata=metadata)))
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "QUEUE_FULL")
        assert not any(key.startswith("imp-") for key in refusal.initial)
        assert refusal.trailing["imp-instance-id"] == served.state.instance_id
        assert refusal.trailing["imp-request-id"]
        assert (refusal.details.pushback_ms, refusal.details.retry_seconds) == (1000, 1.0)
        retrying = served.channel(("grpc.service_config", json.dumps(policy)))
        stream = inference_pb2_grpc.InferenceServiceStub(retrying).Generate(ask([302], 2), metadata=metadata)
        served.wait_until(lambda: refused_so_far(served) >= 2, "refused twice")
        held.open(ALL_STEPS)
        assert result_of(list(stream)).output.ids == [303, 304]
        assert dict(stream.initial_metadata())["imp-instance-id"] == served.state.instance_id
        assert result_of(list(waiting)).output.ids == [301, 302]


def refused_so_far(served: Served) -> float:
    registry = served.state.telemetry.metrics.registry
    return registry.get_sample_value("imp_requests_ended_total", {"outcome": "refused"}) or 0.0


def code_of(stream: Any) -> str:
    """Reads a stream to its end and returns its status code."""
    try:
        list(stream)
    except grpc.RpcError as error:
        return FailedCall(error).code
    return "OK"


def test_nothing_lossy_took_part_so_no_reply_says_so(served: Served) -> None:
    stream = served.inference.Generate(ask([300], 2))
    list(stream)
    _, unary = served.inference.GenerateUnary.with_call(pb.GenerateUnaryRequest(request=ask([300], 2)))
    opened, prefill = served.inference.Prefill.with_call(pb.PrefillRequest(token_ids=types_pb2.TokenIds(ids=[300])))
    step = pb.DecodeStepRequest(steps=[pb.SessionStep(session_id=opened.session_id)])
    _, stepped = served.inference.DecodeStep.with_call(step)
    for call in (stream, unary, prefill, stepped):
        assert {key for key, _ in call.initial_metadata() if key.startswith("imp-")} == {
            "imp-request-id",
            "imp-instance-id",
        }
    served.inference.ReleaseSession(pb.ReleaseSessionRequest(session_id=opened.session_id))
    served.wait_for_rest()


@BOTH
def test_sch_8_o02_a_full_queue_refuses_before_a_prompt_is_read(run: Any) -> None:
    with held_up("scheduler.max_running=1", "scheduler.max_waiting=2") as (served, _, __):
        waiting = [served.inference.Generate(ask([300 + i], 1)) for i in range(2)]
        served.wait_until(lambda: served.state.model.client.engine.stats().queued == 2, "two wait")
        read: list[int] = []
        work = served.state.workers.run
        served.state.workers.run = lambda job, n_bytes: read.append(n_bytes) or work(job, n_bytes)  # type: ignore[method-assign, func-returns-value]
        for prompt in (LONG_TEXT, [300] * 200):
            refusal = failed(lambda prompt=prompt: run(served, ask(prompt, 1)))
            assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "QUEUE_FULL")
            assert refusal.metadata == {"bound": "scheduler.max_waiting"}
        assert read == []
        assert len(waiting) == 2


def test_sch_8_o09_retry_info_of_a_full_queue_is_the_estimated_wait() -> None:
    """One waiting request starts every 20 seconds: with two ahead the wait is 40. gRPC must not repeat."""
    with held_up("scheduler.max_running=1", "scheduler.max_waiting=2") as (served, _, __):
        waiting = [served.inference.Generate(ask([300 + i], 1)) for i in range(2)]
        served.wait_until(lambda: served.state.model.client.engine.stats().queued == 2, "two wait")
        for _ in range(3):
            served.call(lambda: served.state.admission.began(1, 2))
            began = served.state.clock()
            served.jump(20.0)
        refusal = failed(lambda: in_one(served, ask([300], 1)))
        extra = served.state.clock() - began - 20
        assert (refusal.reason, refusal.metadata) == ("QUEUE_FULL", {"bound": "scheduler.max_waiting"})
        told = refusal.details.retry_seconds or 0
        assert 40 <= told <= 40 + 4 * extra
        assert refusal.details.pushback_ms == -1  # gRPC would wait for so long without a word
        assert len(waiting) == 2


def test_o02_a_burst_of_long_prompts_holds_a_bounded_number_of_places() -> None:
    """The text worker is blocked: requests with a place wait for it, all others are refused at once."""
    with serve("scheduler.max_waiting=3", model=scripted()) as served:
        release = threading.Event()
        served.thread.loop.call_soon_threadsafe(
            lambda: served.thread.loop.create_task(served.state.workers.run(lambda: release.wait(HANGS_AFTER), 2000))
        )
        stub = served.inference
        calls = [stub.Generate(ask(LONG_TEXT, 1)) for _ in range(60)]
        served.wait_until(lambda: refused_so_far(served) == 57, "all but three refused")
        assert served.call(lambda: served.state.admission.n_reading) == 3
        release.set()
        codes = [code_of(call) for call in calls]
        assert (codes.count("OK"), codes.count("RESOURCE_EXHAUSTED")) == (3, 57)
        served.wait_for_rest()


def test_o02_prompts_in_reading_are_bounded_in_bytes() -> None:
    with serve("scheduler.max_waiting_bytes=3KiB", model=scripted()) as served:
        release = threading.Event()
        served.thread.loop.call_soon_threadsafe(
            lambda: served.thread.loop.create_task(served.state.workers.run(lambda: release.wait(HANGS_AFTER), 2000))
        )
        refusal = failed(lambda: streamed(served, ask(LONG_TEXT, 1)))
        assert (refusal.reason, refusal.metadata) == ("QUEUE_FULL", {"bound": "scheduler.max_waiting_bytes"})
        release.set()


@pytest.mark.parametrize("n_sequences", [1, 8])
def test_o05_what_can_never_fit_is_refused_for_good(n_sequences: int) -> None:
    """Eight sequences of almost a whole context do not fit a cache of one context. A single sequence does."""
    with serve(model=scripted(n_blocks=16, max_context=256)) as served:
        request = ask([300] * 100, 150, num_sequences=n_sequences)
        if n_sequences == 1:
            assert streamed(served, request).output.reason == "MAX_TOKENS"
            return
        refusal = failed(lambda: streamed(served, request))
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "KV_FULL")
        assert int(refusal.metadata["needed"]) > int(refusal.metadata["available"]) == 16
        assert set(refusal.metadata) == {"needed", "available"}
        assert (refusal.details.retry_seconds, refusal.details.pushback_ms) == (None, -1)
        assert streamed(served, ask([300], 4)).output.ids == [301, 302, 303, 304]


def test_o05_w29_a_client_that_retries_asks_once_for_what_can_never_fit() -> None:
    """The call uses the retry policy of imp's own client, which retries RESOURCE_EXHAUSTED."""
    with serve(model=scripted(n_blocks=16, max_context=256)) as served, open_channel(Target(served.address)) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        refusal = failed(lambda: list(stub.Generate(ask([300] * 100, 150, num_sequences=8), timeout=HANGS_AFTER)))
        assert refusal.reason == "KV_FULL"
        asked = served.state.telemetry.metrics.grpc_started.labels(
            "server_stream", "imp.v1.InferenceService", "Generate"
        )
        assert served.call(asked._value.get) == 1


def test_o12_a_deadline_shorter_than_the_wait_is_refused_at_once() -> None:
    """Admission sees one start every 20 seconds while three requests wait. Then no more start."""
    with held_up("scheduler.max_running=1") as (served, _, __):
        waiting = [served.inference.Generate(ask([300 + i], 1)) for i in range(3)]
        served.wait_until(lambda: served.state.model.client.engine.stats().queued == 3, "three wait")
        began = served.state.clock()
        for _ in range(3):
            served.call(lambda: served.state.admission.began(1, 3))
            served.jump(20.0)
        refusal = failed(lambda: in_one(served, ask([300], 1), timeout=50))
        # The real time that the lines above took, which the clock counts too.
        extra = served.state.clock() - began - 60
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "QUEUE_FULL")
        assert refusal.metadata["bound"] == "deadline"
        assert 60_000 <= int(refusal.metadata["estimated_wait_ms"]) <= 60_000 + 3000 * extra
        assert 9 < (refusal.details.retry_seconds or 0) <= 10 + 4 * extra
        patient = served.inference.Generate(ask([310], 1), timeout=500)
        served.wait_until(lambda: served.state.model.client.engine.stats().queued == 4, "the patient one waits")
        assert len(waiting) == 3 and patient.is_active()


@BOTH
def test_o14_eight_sequences_count_as_eight(run: Any) -> None:
    with held_up("scheduler.max_running=8", "scheduler.max_waiting=10") as (served, _, __):
        eight = served.inference.Generate(ask([300], 1, num_sequences=8))
        served.wait_until(lambda: served.state.model.client.engine.stats().queued == 8, "eight wait")
        refusal = failed(lambda: run(served, ask([301], 1, num_sequences=3)))
        assert (refusal.reason, refusal.metadata) == ("QUEUE_FULL", {"bound": "scheduler.max_waiting"})
        two = served.inference.Generate(ask([301], 1, num_sequences=2))
        served.wait_until(lambda: served.state.model.client.engine.stats().queued == 10, "ten wait")
        assert eight.is_active() and two.is_active()


@pytest.mark.long
def test_rpc_30_o03_long_prompts_are_read_beside_a_running_stream() -> None:
    """A stream and other short requests go on while a worker reads prompts near the limit of a request's text."""
    text = "Once upon a time there was a little girl who lived near the farm. " * 14_000
    with serve("text.threads=1") as served, ExitStack() as streams:
        assert 900_000 < len(text) < 1024**2
        canary = served.model.canary
        pool = streams.enter_context(ThreadPoolExecutor(2))
        reading = [pool.submit(lambda: failed(lambda: streamed(served, ask(text, 1)))) for _ in range(2)]
        served.wait_until(lambda: served.state.workers.n_bytes > 900_000, "one is read")
        n_answered = 0
        while n_answered < 3:
            result = streamed(served, ask(canary.prompt_ids, 20))  # type: ignore[union-attr]
            assert result.output.ids == list(canary.output_ids[:20])  # type: ignore[union-attr]
            # On a busy machine an answer may take longer than reading a prompt.
            n_answered += any(not call.done() for call in reading)
            if all(call.done() for call in reading):
                reading += [pool.submit(lambda: failed(lambda: streamed(served, ask(text, 1)))) for _ in range(2)]
        assert {call.result().reason for call in reading} == {"CONTEXT_TOO_LONG"}


def test_a_short_prompt_whose_breakers_take_long_is_planned_beside_the_event_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time to find the tokens that contain a breaker grows with the vocabulary."""
    threads: list[str] = []

    def found(text: str) -> list[int]:
        threads.append(threading.current_thread().name)
        return []

    monkeypatch.setattr(served.state.model.options, "_tokens_with", found)
    request = ask([300], 2)
    request.sampling.dry.breakers.append("x")
    assert streamed(served, request).usage.output_tokens == 2
    loops = served.call(lambda: threading.current_thread().name)
    assert len(threads) == 1 and loops not in threads
