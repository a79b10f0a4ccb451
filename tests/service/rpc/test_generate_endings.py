"""However and wherever a generation is ended: it has one status, frees its blocks within a step, and counts once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc, types_pb2
from support.calls.deadlines import deadline_beyond, let_requests_travel
from support.calls.generations import counted, result_of
from support.run.patience import HANGS_AFTER
from support.servers.gate import ALL_STEPS, HELD, Gate, gate
from support.servers.served import Served, ask, serve
from support.servers.served_models import scripted

# A stalled reader soon fills these windows.
SMALL_WINDOWS = (("grpc.http2.lookahead_bytes", 65536), ("grpc.http2.bdp_probe", 0))
LONG_TEXT = "Once upon a time there was a girl. " * 34


def endless(prompt: int | list[int], n: int | None = None, **fields: Any) -> pb.GenerateRequest:
    request = ask([prompt] if isinstance(prompt, int) else prompt, n, **fields)
    request.stop.ignore_eos = True
    return request


def chatty(prompt: int) -> pb.GenerateRequest:
    """Returns a request with large messages, so that a stalled reader is noticed soon."""
    return endless(prompt, output=types_pb2.OutputOptions(top_logprobs=20, logprobs=True))


T = TypeVar("T")


def the(maybe: T | None) -> T:
    """Returns the value, or raises LookupError where a request has none at this place."""
    if maybe is None:
        raise LookupError("not at this place")
    return maybe


@dataclass
class Held:
    """A request that is held at one place of its life."""

    served: Served
    request: pb.GenerateRequest
    metadata: tuple[tuple[str, str], ...] = ()
    # Releases what holds the request; called after its end was requested.
    release: Callable[[], None] = lambda: None
    reads: int = 0
    gate: Gate | None = None
    # Streams that hold the request back. They end by themselves after `release`.
    streams: list[Any] = field(default_factory=list)
    channel: grpc.Channel | None = None

    def wait_at_gate(self) -> None:
        the(self.gate).wait()

    def wait_until(self, holds: Callable[[Any], bool], n: int = 1) -> None:
        requests = self.served.state.requests
        self.served.wait_until(lambda: len(requests) == n and any(map(holds, requests)), "there")


@contextmanager
def reading_its_prompt() -> Iterator[Held]:
    with serve(model=scripted()) as served:
        worker = threading.Event()
        blocked = served.thread.loop.call_soon_threadsafe(
            lambda: served.thread.loop.create_task(served.state.workers.run(lambda: worker.wait(HANGS_AFTER), 2000))
        )
        assert not blocked.cancelled()
        yield Held(served, ask(LONG_TEXT, None), release=worker.set)
        worker.set()


@contextmanager
def queued() -> Iterator[Held]:
    with gate() as held, serve("scheduler.max_running=1", model=held.model()) as served:
        first = served.inference.Generate(endless(HELD - 2, 8))
        assert [next(first).WhichOneof("event") for _ in range(2)] == ["started", "chunk"]
        held.wait()
        yield Held(served, endless(300), release=lambda: held.open(ALL_STEPS), streams=[first])
        held.open(ALL_STEPS)


@contextmanager
def in_prefill() -> Iterator[Held]:
    with gate() as held, serve("scheduler.prefill_chunk=4", model=held.model()) as served:
        prompt = [300 + i for i in range(9)] + [HELD] + [400 + i for i in range(20)]
        yield Held(served, endless(prompt), release=lambda: held.open(ALL_STEPS), gate=held)
        held.open(ALL_STEPS)


@contextmanager
def decoding() -> Iterator[Held]:
    with gate() as held, serve(model=held.model()) as served:
        yield Held(served, endless(HELD - 5), release=lambda: held.open(ALL_STEPS), reads=2, gate=held)
        held.open(ALL_STEPS)


@contextmanager
def preempted() -> Iterator[Held]:
    """Two requests outgrow the cache. Each stops early; the older stops again when the newer is preempted."""
    table = [300 + i for i in range(128)]
    table[2] = table[100] = HELD
    with gate() as held, serve(model=held.model("table", table, n_blocks=8, max_context=128)) as served:
        first = served.inference.Generate(endless(5, 110))
        held.wait()
        yield Held(served, endless(6), release=lambda: held.open(ALL_STEPS), streams=[first], gate=held)
        held.open(ALL_STEPS)


def until_preempted(held: Held) -> None:
    held.wait_until(lambda each: each.stream is not None and not each.has_started, 2)
    the(held.gate).open(2)
    the(held.gate).wait()
    the(held.gate).wait()
    assert held.served.stats().n_preemptions == 1


@contextmanager
def blocked_on_its_reader() -> Iterator[Held]:
    model = scripted(max_context=4000, n_blocks=260)
    with serve("slow_client.bytes=4KiB", model=model) as served:
        yield Held(served, chatty(300), reads=1)


PLACES: dict[str, tuple[Any, Callable[[Held], None]]] = {
    "reading": (reading_its_prompt, lambda held: held.wait_until(lambda each: each.stream is None)),
    "queued": (queued, lambda held: held.wait_until(lambda each: not each.has_started, 2)),
    "prefill": (in_prefill, Held.wait_at_gate),
    "decoding": (decoding, Held.wait_at_gate),
    "preempted": (preempted, until_preempted),
    "blocked": (blocked_on_its_reader, lambda held: held.wait_until(lambda each: each.stream.is_paused)),
}


def end_by_cancel(stream: Any, _: Held) -> str:
    stream.cancel()
    return "CANCELLED"


def end_by_disconnect(stream: Any, held: Held) -> str:
    the(held.channel).close()
    return "CANCELLED"


def end_by_deadline(stream: Any, _: Held) -> str:
    assert stream.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return "DEADLINE_EXCEEDED"


def end_by_abort(stream: Any, held: Held) -> str:
    requests = held.served.state.requests
    assert held.served.call(lambda: requests.abort(["it"])) == ["it"]
    assert held.served.call(lambda: requests.abort(["it"])) == []
    return "OK"


ENDS: dict[str, Callable[[Any, Held], str]] = {
    "cancel": end_by_cancel,
    "disconnect": end_by_disconnect,
    "deadline": end_by_deadline,
    "abort": end_by_abort,
}


def leave_at(place: str) -> None:
    """Cancels a request at this place."""
    make, wait = PLACES[place]
    with make() as held:
        stream = inference_pb2_grpc.InferenceServiceStub(held.served.channel(*SMALL_WINDOWS)).Generate(held.request)
        for _ in range(held.reads):
            next(stream)
        wait(held)
        stream.cancel()
        held.served.wait_until(lambda: len(held.served.state.requests) <= len(held.streams), "gone")
        held.release()
        for other in held.streams:
            list(other)


@pytest.mark.sweep
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("place", PLACES)
def test_gen_16_gen_17_gen_18_r02_r03_r17_every_end_at_every_place(
    place: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = deadline_beyond(lambda: leave_at(place)) if end == "deadline" else None
    let_requests_travel(monkeypatch)
    make, wait = PLACES[place]
    with make() as held:
        served = held.served
        held.request.request_id = "it"
        channel = grpc.insecure_channel(served.address, options=[("grpc.use_local_subchannel_pool", 1), *SMALL_WINDOWS])
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        stream = stub.Generate(held.request, timeout=seconds)
        messages = [next(stream) for _ in range(held.reads)]
        wait(held)
        held.channel = channel
        code = ENDS[end](stream, held)
        if code == "OK":
            held.release()
            messages += list(stream)
            result = result_of(messages)
            assert result.output.reason == "ABORTED" and stream.code() is grpc.StatusCode.OK
            assert result.usage.output_tokens == len(result.output.ids)
        else:
            served.wait_until(lambda: "it" not in {each.request_id for each in served.state.requests}, "gone")
            held.release()
        for other in held.streams:
            list(other)
        channel.close()
        served.wait_for_rest()
        served.wait_for_calls()
        expected = dict.fromkeys(OUTCOMES.values(), 0.0)
        expected["finished"] += len(held.streams)
        expected[OUTCOMES[code]] += 1
        assert {
            outcome: counted(served, "imp_requests_ended_total", outcome=outcome) for outcome in expected
        } == expected


OUTCOMES = {"CANCELLED": "cancelled", "DEADLINE_EXCEEDED": "timed_out", "OK": "finished"}
