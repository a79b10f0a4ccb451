"""Measures the server's cost of a streamed token over each transport, in turns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from compare.front_end.engine_process import served_engine
from compare.front_end.figure import CLIENT_CPU, SERVER_CPU, Figure, both
from compare.front_end.http_streams import read_http_streams, stream_request
from compare.front_end.streams import Read, read_streams, request
from imp_service.core.bench.report import Spread
from support.machine.process_numbers import thread_seconds

# Goals for the ratio of HTTP to gRPC: event loop and whole process, with one message per token and merged.
LOOP_TARGETS = {1: "at most 0.5", None: "at most 1.1"}
PROCESS_TARGETS = {1: "at most 0.6", None: ""}


class Costs:
    """The costs of one transport in each repetition."""

    def __init__(self) -> None:
        self.loop: list[float] = []
        self.process: list[float] = []
        self.speed: list[float] = []
        self.sizes: list[float] = []

    def measure(self, pid: int, read: Callable[[], Read]) -> None:
        """Adds a repetition."""
        before = thread_seconds(pid)
        done = read()
        spent = {thread: seconds for thread, (_, seconds) in spent_since(pid, before).items()}
        self.loop.append(1e6 * spent[pid] / done.n_tokens)
        self.process.append(1e6 * sum(spent.values()) / done.n_tokens)
        self.speed.append(done.n_tokens / done.seconds)
        self.sizes.append(done.n_tokens / done.n_messages)


def token_costs(n_streams: int, n_tokens: int, max_chunk_tokens: int | None, reps: int) -> Iterator[Figure]:
    """Measures a server on one core, over an engine that never waits, with a client on the other core."""
    words = "merged" if max_chunk_tokens is None else f"{max_chunk_tokens} a message"
    grpc, http = Costs(), Costs()
    with served_engine("script", cpu=SERVER_CPU) as server:
        os.sched_setaffinity(0, {CLIENT_CPU})
        messages = [request(n_tokens, 300 + i, max_chunk_tokens) for i in range(n_streams)]
        bodies = [stream_request(n_tokens, 300 + i, max_chunk_tokens) for i in range(n_streams)]
        for warm_up in (lambda: read_streams(server.grpc, messages), lambda: read_http_streams(server.http, bodies)):
            warm_up()
        for _ in range(reps):
            grpc.measure(server.pid, lambda: read_streams(server.grpc, messages))
            http.measure(server.pid, lambda: read_http_streams(server.http, bodies))
    at = f"{n_streams} stream{'s' * (n_streams > 1)}, {words}"
    yield from both(f"event loop, {at}", "µs/token", grpc.loop, http.loop, LOOP_TARGETS[max_chunk_tokens])
    name = f"process with its engine, {at}"
    yield from both(name, "µs/token", grpc.process, http.process, PROCESS_TARGETS[max_chunk_tokens])
    target = "at least 15000" if n_streams == 64 and max_chunk_tokens is None else ""
    yield Figure(f"throughput, {at}, gRPC", "tokens/s", Spread.of(grpc.speed), target)
    yield Figure(f"throughput, {at}, HTTP", "tokens/s", Spread.of(http.speed), target)
    yield Figure(f"message size, {at}, gRPC", "tokens", Spread.of(grpc.sizes))
    yield Figure(f"message size, {at}, HTTP", "tokens", Spread.of(http.sizes))


def spent_since(pid: int, before: dict[int, tuple[str, float]]) -> dict[int, tuple[str, float]]:
    """Returns each thread's name and its CPU time since `before`."""
    now = thread_seconds(pid)
    return {thread: (name, seconds - before.get(thread, ("", 0.0))[1]) for thread, (name, seconds) in now.items()}
