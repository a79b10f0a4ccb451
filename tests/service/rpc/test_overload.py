"""Overload: which calls are still answered, how soon the server recovers, and that it serves all clients alike."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest

from imp_service.pb import admin_pb2, inference_pb2_grpc, model_pb2, model_pb2_grpc
from imp_service.pb import inference_pb2 as pb
from support.calls.admin_calls import LISTENS, admin_of
from support.calls.endings import SMALL_WINDOW
from support.calls.failed_calls import FailedCall, failed
from support.calls.generations import in_one, result_of, streamed
from support.servers.gate import ALL_STEPS, HELD, Gate, gate
from support.servers.served import Served, ask, serve
from support.servers.served_models import ENDLESS, scripted

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
ONE = pb.GenerateUnaryRequest(request=ask([HELD], 1))


def test_o11_an_operator_is_answered_while_ten_times_too_much_is_asked() -> None:
    """The engine is stopped within one step: whatever is answered has not waited for it."""
    settings = ("scheduler.max_running=1", "scheduler.max_waiting=4", "drain.delay=0s")
    with gate() as held, serve(LISTENS, *settings, model=held.model()) as served, admin_of(served) as admin:
        streams = [served.inference.Generate(ask([HELD - 1], 3, request_id="runs"))]
        held.wait()
        streams += [served.inference.Generate(ask([300 + i], 2, request_id=f"waits-{i}")) for i in range(4)]
        served.wait_until(lambda: served.state.model.client.engine.stats().queued == 4, "the queue is full")
        for _ in range(45):
            assert failed(lambda: streamed(served, ask([400], 2))).reason == "QUEUE_FULL"
        channel = served.channel()
        health = health_pb2_grpc.HealthStub(channel)
        before = served.stats().n_steps
        assert health.Check(HealthCheckRequest()).status == SERVING
        load = model_pb2_grpc.ModelServiceStub(channel).GetLoad(model_pb2.GetLoadRequest()).load
        assert load.running == 1
        ended = admin.Abort(admin_pb2.AbortRequest(request_ids=["waits-0", "runs"])).aborted_request_ids
        assert sorted(ended) == ["runs", "waits-0"]
        drain = admin.Drain(admin_pb2.DrainRequest())
        assert next(drain).load.draining
        assert health.Check(HealthCheckRequest()).status == NOT_SERVING
        assert served.stats().n_steps == before
        held.open(ALL_STEPS)
        results = [result_of(list(stream)).output for stream in streams]
        assert [result.reason for result in results] == ["ABORTED"] * 2 + ["MAX_TOKENS"] * 3
        assert list(drain)[-1].drained
        admin.Resume(admin_pb2.ResumeRequest())


class Storm:
    """Clients that come back until they are served. A test advances the server's clock by single seconds.

    The engine serves RATE requests a second: it takes the next step when the test allows it.
    """

    RATE = 4
    TRIES = 3  # a second, by clients that ignore the advised wait

    def __init__(self, served: Served, held: Gate, n_clients: int, *, honours: bool) -> None:
        self._served = served
        self._held = held
        self._stub = served.inference
        self._honours = honours
        self._due = [0.0] * n_clients
        self._now = 0.0
        self._running: list[Any] = []
        self.n_tried = 0
        self.n_served: list[int] = []  # per second

    def second(self) -> None:
        """All clients that are due try. Up to RATE of those admitted are served, and come back in the next second."""
        for _ in range(1 if self._honours else self.TRIES):
            self._try()
        self.n_served.append(self._serve())
        self._served.jump(1.0)
        self._now += 1

    def _try(self) -> None:
        n_trying = sum(due <= self._now for due in self._due)
        self._due = [due for due in self._due if due > self._now]
        self._running += [self._stub.GenerateUnary.future(ONE) for _ in range(n_trying)]
        self.n_tried += n_trying
        requests = self._served.state.requests
        self._served.wait_until(lambda: len(requests) == sum(not call.done() for call in self._running), "all judged")
        for call in [call for call in self._running if call.done()]:
            refusal = FailedCall(call.exception())
            assert refusal.reason == "QUEUE_FULL"
            wait = refusal.details.retry_seconds
            assert wait is not None and 0 < wait < 60
            self._due.append(self._now + (wait if self._honours else 0))
            self._running.remove(call)

    def _serve(self) -> int:
        n = min(self.RATE, len(self._running))
        self._held.open(n)
        self._served.wait_until(lambda: sum(call.done() for call in self._running) == n, "some are served")
        for call in [call for call in self._running if call.done()]:
            assert len(call.result().sequences[0].output.token_ids) == 1
            self._running.remove(call)
        self._due += [self._now + 1] * n
        return n

    def ends(self) -> int:
        """Lets no client come back. Returns the seconds until the last is served."""
        self._due.clear()
        n = 0
        while self._running:
            self.second()
            self._due.clear()
            n += 1
        return n


@pytest.mark.long
@pytest.mark.parametrize("honours", [False, True], ids=["at once", "as told"])
def test_o09_clients_that_come_back_cost_no_work_and_leave_nothing_behind(honours: bool) -> None:
    settings = ("scheduler.max_running=1", "scheduler.max_waiting=4")
    with gate() as held, serve(*settings, model=held.model("table", [HELD])) as served, served.frozen():
        stub = model_pb2_grpc.ModelServiceStub(served.channel())
        storm = Storm(served, held, 40, honours=honours)
        for _ in range(12):
            storm.second()
        # Whoever tries, and however often: the engine was fully used in each second.
        assert storm.n_served == [Storm.RATE] * 12
        assert storm.n_tried < 500 if honours else storm.n_tried > 1000
        assert storm.ends() <= 5
        served.wait_for_rest()
        load = stub.GetLoad(model_pb2.GetLoadRequest()).load
        assert (load.running, load.waiting, load.waiting_tokens) == (0, 0, 0)
        # An earlier queue is no reason to refuse a new request, not even one with a short deadline.
        held.open(ALL_STEPS)
        assert len(in_one(served, ONE.request, timeout=30).output.ids) == 1


def test_o16_clients_of_single_tokens_are_served_alike() -> None:
    """64 clients send a new request after each answer, eight at a time, until they have 15 answers on average."""
    n_clients, n_total = 64, 64 * 15
    counts = [0] * n_clients

    async def client(number: int, address: str) -> None:
        async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            request = pb.GenerateUnaryRequest(request=ask([1000 + number], 1))
            while sum(counts) < n_total:
                reply = await stub.GenerateUnary(request)
                assert list(reply.sequences[0].output.token_ids) == [1001 + number]
                counts[number] += 1

    async def clients(address: str) -> None:
        await asyncio.gather(*(client(number, address) for number in range(n_clients)))

    with serve("scheduler.max_running=8", model=scripted()) as served:
        served.run(clients(served.address))
        served.wait_for_rest()
    assert sum(counts) >= n_total
    assert min(counts) >= statistics.median(counts) / 2


N_OTHERS, N_STALLED, N_TOKENS = 150, 50, 40


def steps_of_others(served: Served, held: Gate) -> int:
    """Returns the number of steps in which all others finish, if all were queued from the first step on."""
    first = served.inference.Generate(ask([HELD], 1))
    held.wait()
    stub = served.inference
    others = [stub.Generate(ask([100 + i], N_TOKENS)) for i in range(N_OTHERS)]
    served.wait_until(lambda: served.state.model.client.engine.stats().queued == N_OTHERS, "all wait")
    before = served.stats().n_steps
    held.open()
    assert result_of(list(first)).output.ids == [HELD + 1]
    for i, other in enumerate(others):
        assert result_of(list(other)).output.ids == list(range(101 + i, 101 + i + N_TOKENS))
    return served.stats().n_steps - before


def stall(served: Served, stack: ExitStack) -> Iterator[Any]:
    """Starts endless streams on connections with small windows, and reads one message of each."""
    for i in range(N_STALLED):
        channel = stack.enter_context(served.connection(*SMALL_WINDOW))
        request = ask([1000 + i], None)
        request.stop.ignore_eos = request.output.logprobs = True
        request.output.top_logprobs = 20
        stream = inference_pb2_grpc.InferenceServiceStub(channel).Generate(request)
        assert next(stream).HasField("started")
        yield stream


def test_f12_two_hundred_streams_of_which_fifty_are_not_read() -> None:
    settings = ("slow_client.bytes=4KiB", "slow_client.timeout=300s")
    with gate() as held, ExitStack() as stack, serve(*settings, model=held.model(**ENDLESS)) as served:
        alone = steps_of_others(served, held)
        stalled = list(stall(served, stack))
        served.wait_until(lambda: all(each.stream.is_paused for each in served.state.requests), "all are paused")
        beside = steps_of_others(served, held)
        assert beside * 0.95 <= alone
        for stream in stalled:
            stream.cancel()
        served.wait_for_rest()
