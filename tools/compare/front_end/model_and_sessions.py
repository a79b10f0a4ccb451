"""Measures abandoned sessions, and the share of the front end with a model of real size."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import grpc

from compare.front_end.engine_process import ask_direct, direct_engine, served_engine
from compare.front_end.figure import Figure
from compare.front_end.memory import open_sessions, wait_for
from compare.front_end.streams import read_streams, request
from compare.front_end.token_costs import spent_since
from imp_service.core.bench.report import Spread
from imp_service.pb import model_pb2, model_pb2_grpc
from support.machine.process_numbers import ProcessNumbers, thread_seconds


def abandoned_sessions(n_sessions: int, lease_seconds: int) -> Iterator[Figure]:
    """Opens sessions and abandons them. Measures how long after the last lease the last session is gone."""
    engine = served_engine("script", [f"sessions.ttl={lease_seconds}s"])
    with engine as server, grpc.insecure_channel(server.grpc) as channel:
        load = model_pb2_grpc.ModelServiceStub(channel)

        def n_open() -> int:
            return int(load.GetLoad(model_pb2.GetLoadRequest()).load.sessions)

        before = ProcessNumbers.of(server.pid).resident_bytes
        started = time.monotonic()
        last = open_sessions(server.grpc, n_sessions)
        ended = time.monotonic()
        most = n_open()
        wait_for(lambda: n_open() == 0)
        late = time.monotonic() - last - lease_seconds
        after = ProcessNumbers.of(server.pid).resident_bytes
    yield Figure("sessions opened a second, one caller", "1/s", Spread.of([n_sessions / (ended - started)]))
    yield Figure(f"open at once, of {n_sessions} with a lease of {lease_seconds} s", "sessions", Spread.of([most]))
    yield Figure("the last is gone, after its lease", "s", Spread.of([late]))
    yield Figure("memory kept afterwards", "MiB", Spread.of([(after - before) / 1024**2]))


def model_share(shape: str, mix: str, n_streams: int, n_tokens: int, *, reps: int, target: float) -> Iterator[Figure]:
    """Measures tokens per second with and without gRPC, in turns, of a model of real size on all cores."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    engine, settings = f"{shape}:{mix}", ["device.threads=auto", "kv.bytes=1GiB", "model.overrides.max_context=512"]
    served, direct, shares, at_work = [], [], [], []
    with served_engine(engine, settings) as server, direct_engine(engine, settings) as process:
        messages = [request(n_tokens, 300 + i) for i in range(n_streams)]
        for rep in range(reps + 1):
            before = thread_seconds(server.pid)
            read = read_streams(server.grpc, messages)
            spent = spent_since(server.pid, before)
            alone = ask_direct(process, n_streams, n_tokens)
            if rep > 0:  # the first one is a warm-up
                served.append(read.n_tokens / read.seconds)
                direct.append(alone)
                shares.append(100 * (1 - served[-1] / alone))
                # The event loop and gRPC's threads. The other threads compute.
                busy = sum(s for thread, (name, s) in spent.items() if thread == server.pid or "event" in name)
                at_work.append(100 * busy / read.seconds)
    at = f"{shape} {mix}, {n_streams} stream{'s' * (n_streams > 1)}"
    yield Figure(f"over gRPC, {at}", "tokens/s", Spread.of(served))
    yield Figure(f"engine alone, {at}", "tokens/s", Spread.of(direct))
    yield Figure(f"throughput lost to the front end, {at}", "%", Spread.of(shares), f"at most {target:g}")
    yield Figure(f"front end at work, share of the time, {at}", "%", Spread.of(at_work), f"at most {target:g}")
