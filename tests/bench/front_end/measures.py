"""What is measured of the front end, each a figure with its repetitions."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from bench.front_end.engine_process import ask_direct, direct_engine, served_engine
from bench.front_end.streams import read_streams, request
from imp_service.core.bench.report import Spread
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import model_pb2, model_pb2_grpc, types_pb2
from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from support.endings import SMALL_WINDOW
from support.process_numbers import ProcessNumbers, thread_seconds, thread_switches
from support.server_process import server_process

SERVER_CPU, CLIENT_CPU = 0, 1
# All threads there are, as a server has by default.
IDLE_SETTINGS = ("device.threads=auto",)
# Streams that nobody reads are paused at once, and stay.
# By when each has filled what it may.
PAUSE_SECONDS = 1.0
UNREAD_STAY = (
    "scheduler.max_running=512",
    "scheduler.step_tokens=512",
    "slow_client.bytes=1KiB",
    "slow_client.timeout=1h",
)


@dataclass(frozen=True)
class Figure:
    """One row of the report; `target` in words where there is one."""

    name: str
    unit: str
    spread: Spread
    target: str = ""


def token_costs(n_streams: int, n_tokens: int, max_chunk_tokens: int | None, reps: int) -> Iterator[Figure]:
    """Of a server on one core over an engine that never waits, read from the other core."""
    words = "merged" if max_chunk_tokens is None else f"{max_chunk_tokens} a message"
    loop, process, speed, sizes = [], [], [], []
    with served_engine("script", cpu=SERVER_CPU) as server:
        os.sched_setaffinity(0, {CLIENT_CPU})
        messages = [request(n_tokens, 300 + i, max_chunk_tokens) for i in range(n_streams)]
        read_streams(server.address, messages)
        for _ in range(reps):
            before = thread_seconds(server.pid)
            read = read_streams(server.address, messages)
            spent = {thread: seconds for thread, (_, seconds) in spent_since(server.pid, before).items()}
            loop.append(1e6 * spent[server.pid] / read.n_tokens)
            process.append(1e6 * sum(spent.values()) / read.n_tokens)
            speed.append(read.n_tokens / read.seconds)
            sizes.append(read.n_tokens / read.n_messages)
    at = f"{n_streams} stream{'s' * (n_streams > 1)}, {words}"
    yield Figure(f"event loop, {at}", "µs/token", Spread.of(loop))
    yield Figure(f"process with its engine, {at}", "µs/token", Spread.of(process))
    target = "at least 15000" if n_streams == 64 and max_chunk_tokens is None else ""
    yield Figure(f"throughput, {at}", "tokens/s", Spread.of(speed), target)
    yield Figure(f"message size, {at}", "tokens", Spread.of(sizes))


def spent_since(pid: int, before: dict[int, tuple[str, float]]) -> dict[int, tuple[str, float]]:
    """Thread -> its name and the processor time that it has had since `before`."""
    now = thread_seconds(pid)
    return {thread: (name, seconds - before.get(thread, ("", 0.0))[1]) for thread, (name, seconds) in now.items()}


def start_time(reps: int) -> Iterator[Figure]:
    """From starting the process to its ready file, with the built-in model and default settings."""
    samples = []
    with tempfile.TemporaryDirectory() as compiled:
        # An installed package has its modules compiled, a checkout perhaps not: the first start does that.
        environment = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(reps + 1):
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                with server_process(Path(folder), environment=environment, is_traced=False) as server:
                    server.wait_until_ready()
                    samples.append(time.perf_counter() - started)
    yield Figure("process start to SERVING, built-in model", "s", Spread.of(samples[1:]), "under 1.5")


def idle(seconds: float) -> Iterator[Figure]:
    """What `imp serve` does for nobody: with default settings, after generations, its client still connected."""
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process(Path(folder), settings=IDLE_SETTINGS, is_traced=False) as server,
        server.connection() as channel,
    ):
        read_streams(server.address, [request(64, 300 + i) for i in range(8)])
        model_pb2_grpc.ModelServiceStub(channel).GetLoad(model_pb2.GetLoadRequest())
        threading.Event().wait(PAUSE_SECONDS)
        before, waked = thread_seconds(server.pid), thread_switches(server.pid)
        threading.Event().wait(seconds)
        spent = sum(had for _, had in spent_since(server.pid, before).values())
        waked = {thread: n - waked.get(thread, 0) for thread, n in thread_switches(server.pid).items()}
        names = {name: sum(waked[at] for at in waked if before[at][0] == name) for name, _ in before.values()}
    yield Figure(
        f"an idle server, over {seconds:g} s", "% of a CPU", Spread.of([100 * spent / seconds]), "0, below 0.5"
    )
    yield Figure("its threads wake up, all of them", "1/s", Spread.of([sum(names.values()) / seconds]))
    for name, n in names.items():
        if n:
            yield Figure(f"  {name}", "1/s", Spread.of([n / seconds]))


def memory(n_streams: int, n_sessions: int, reps: int) -> Iterator[Figure]:
    """Resident memory that a stream which nobody reads, and a session, add to the server."""
    streams, sessions = [], []
    for _ in range(reps):
        with served_engine("script", UNREAD_STAY) as server:
            for _ in _unread(server.address, 10):
                before = after = ProcessNumbers.of(server.pid).resident_bytes
            for _ in _unread(server.address, n_streams):
                after = ProcessNumbers.of(server.pid).resident_bytes
            streams.append((after - before) / n_streams / 1024)
        with served_engine("script") as server:
            open_sessions(server.address, 200)
            before = ProcessNumbers.of(server.pid).resident_bytes
            open_sessions(server.address, n_sessions)
            after = ProcessNumbers.of(server.pid).resident_bytes
            sessions.append((after - before) / n_sessions / 1024)
    yield Figure(f"memory of an idle stream, of {n_streams} that nobody reads", "KiB", Spread.of(streams))
    yield Figure(f"memory of a session beside its blocks, of {n_sessions}", "KiB", Spread.of(sessions))


def _unread(address: str, n_streams: int) -> Iterator[None]:
    with grpc.insecure_channel(address, SMALL_WINDOW) as channel:
        stub, load = InferenceServiceStub(channel), model_pb2_grpc.ModelServiceStub(channel)

        def are_begun() -> bool:
            now = load.GetLoad(model_pb2.GetLoadRequest()).load
            return bool(now.running == n_streams)

        calls = [stub.Generate(request(8000, 300, max_chunk_tokens=1)) for _ in range(n_streams)]
        wait_for(are_begun)
        threading.Event().wait(PAUSE_SECONDS)
        yield
        for call in calls:
            call.cancel()


def open_sessions(address: str, n_sessions: int) -> None:
    """One after the other, each with a few tokens; nobody comes back to them."""
    with grpc.insecure_channel(address) as channel:
        stub = InferenceServiceStub(channel)
        for i in range(n_sessions):
            stub.Prefill(pb.PrefillRequest(token_ids=types_pb2.TokenIds(ids=[300 + i % 1000, 400, 500])))


def abandoned_sessions(n_sessions: int, lease_seconds: int) -> Iterator[Figure]:
    """Sessions opened and never used again: how long after the last one's lease the last of them is gone."""
    engine = served_engine("script", [f"sessions.ttl={lease_seconds}s"])
    with engine as server, grpc.insecure_channel(server.address) as channel:
        load = model_pb2_grpc.ModelServiceStub(channel)

        def n_open() -> int:
            return int(load.GetLoad(model_pb2.GetLoadRequest()).load.sessions)

        before = ProcessNumbers.of(server.pid).resident_bytes
        started = time.monotonic()
        open_sessions(server.address, n_sessions)
        ended = time.monotonic()
        most = n_open()
        wait_for(lambda: n_open() == 0)
        late = time.monotonic() - ended - lease_seconds
        after = ProcessNumbers.of(server.pid).resident_bytes
    yield Figure("sessions opened a second, one caller", "1/s", Spread.of([n_sessions / (ended - started)]))
    yield Figure(f"open at once, of {n_sessions} with a lease of {lease_seconds} s", "sessions", Spread.of([most]))
    yield Figure("the last is gone, after its lease", "s", Spread.of([late]))
    yield Figure("memory kept afterwards", "MiB", Spread.of([(after - before) / 1024**2]))


def model_share(shape: str, mix: str, n_streams: int, n_tokens: int, *, reps: int, target: float) -> Iterator[Figure]:
    """Tokens a second with and without gRPC, in turns, of a model of real size on all cores."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    engine, settings = f"{shape}:{mix}", ["device.threads=auto", "kv.bytes=1GiB", "model.overrides.max_context=512"]
    served, direct, shares, at_work = [], [], [], []
    with served_engine(engine, settings) as server, direct_engine(engine, settings) as process:
        messages = [request(n_tokens, 300 + i) for i in range(n_streams)]
        for rep in range(reps + 1):
            before = thread_seconds(server.pid)
            read = read_streams(server.address, messages)
            spent = spent_since(server.pid, before)
            alone = ask_direct(process, n_streams, n_tokens)
            if rep > 0:  # the first warms up
                served.append(read.n_tokens / read.seconds)
                direct.append(alone)
                shares.append(100 * (1 - served[-1] / alone))
                # The event loop and gRPC's own threads; the others compute.
                busy = sum(s for thread, (name, s) in spent.items() if thread == server.pid or "event" in name)
                at_work.append(100 * busy / read.seconds)
    at = f"{shape} {mix}, {n_streams} stream{'s' * (n_streams > 1)}"
    yield Figure(f"over gRPC, {at}", "tokens/s", Spread.of(served))
    yield Figure(f"engine alone, {at}", "tokens/s", Spread.of(direct))
    yield Figure(f"throughput lost to the front end, {at}", "%", Spread.of(shares), f"at most {target:g}")
    yield Figure(f"front end at work, share of the time, {at}", "%", Spread.of(at_work), f"at most {target:g}")


def wait_for(holds: Callable[[], bool]) -> None:
    """Asks until it holds; every question is a call, so that the server is not asked faster than it answers."""
    give_up = time.monotonic() + 300
    while not holds():
        if time.monotonic() > give_up:
            raise RuntimeError("never came to hold")
