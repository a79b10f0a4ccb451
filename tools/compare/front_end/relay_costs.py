"""Measures what a front costs (`imp front`): streams through it and streams to the same server directly, in turns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from compare.front_end.engine_process import EngineProcess, served_engine
from compare.front_end.figure import Figure
from compare.front_end.http_streams import COMPLETIONS, connect, post, read_http_streams, stream_request
from compare.front_end.token_costs import spent_since
from imp_service.core.bench.report import Spread
from support.machine.command_line import clean_environment
from support.machine.process_numbers import ProcessNumbers, thread_seconds
from support.run.patience import HANGS_AFTER
from support.servers.ray_serve import free_ports

FRONT = [sys.executable, "-P", "-m", "imp_service", "front"]
ASK_AGAIN_AFTER = 0.01


def relay_costs(shape: str, mix: str, n_streams: int, n_tokens: int, reps: int) -> Iterator[Figure]:
    """Measures a model of real size on all cores. Each token is an event, and comes alone on its connection."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    settings = ["device.threads=auto", "kv.bytes=1GiB", "model.overrides.max_context=512"]
    direct, through, costs = [], [], []
    with served_engine(f"{shape}:{mix}", settings) as server, _front(server) as (pid, address):
        bodies = [stream_request(n_tokens, 300 + i, 1) for i in range(n_streams)]
        for _ in range(reps + 1):  # the first one is a warm-up
            read = read_http_streams(server.http, bodies)
            direct.append(read.n_tokens / read.seconds)
            before = thread_seconds(pid)
            read = read_http_streams(address, bodies)
            through.append(read.n_tokens / read.seconds)
            costs.append(1e6 * sum(seconds for _, seconds in spent_since(pid, before).values()) / read.n_tokens)
        memory = ProcessNumbers.of(pid).resident_bytes / 1024**2
    at = f"{n_streams} streams, {shape} {mix}"
    yield Figure(f"processor time of the front, {at}", "µs/token", Spread.of(costs[1:]), "at most 75")
    yield Figure(f"throughput, {at}, directly", "tokens/s", Spread.of(direct[1:]))
    yield Figure(f"throughput, {at}, through the front", "tokens/s", Spread.of(through[1:]))
    ratios = [one / other for one, other in zip(through[1:], direct[1:], strict=True)]
    yield Figure(f"throughput, {at}, through the front in directly", "x", Spread.of(ratios), "at least 0.97")
    yield Figure("resident memory of the front", "MiB", Spread.of([memory]), "at most 80")


def relay_first_token(n_requests: int, reps: int) -> Iterator[Figure]:
    """Measures the wait for the first event of a stream, one stream at a time, over an engine that never waits."""
    directly, through = [], []
    with served_engine("script") as server, _front(server) as (_, address):
        for _ in range(reps + 1):  # the first one is a warm-up
            directly.append(asyncio.run(_median_wait(server.http, n_requests)))
            through.append(asyncio.run(_median_wait(address, n_requests)))
    yield Figure("first event, directly", "ms", Spread.of(directly[1:]))
    yield Figure("first event, through the front", "ms", Spread.of(through[1:]))
    added = [one - other for one, other in zip(through[1:], directly[1:], strict=True)]
    yield Figure("first event, that the front adds", "ms", Spread.of(added), "at most 1")


async def _median_wait(address: str, n_requests: int) -> float:
    request, waits = post(COMPLETIONS, stream_request(1, 300)), []
    async with connect(address, 1) as (connection,):
        for _ in range(n_requests):
            began = time.perf_counter()
            first, _ = await connection.stream(request)
            waits.append(1e3 * (first - began))
    return Spread.of(waits).median


@contextlib.contextmanager
def _front(server: EngineProcess) -> Iterator[tuple[int, str]]:
    """Yields the process and the address of a front before this server, once it relays."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with tempfile.TemporaryDirectory() as folder:
        command = [*FRONT, "--to", server.http, "--http", address, "--set", "log.level=warning"]
        process = subprocess.Popen(command, env=clean_environment(Path(folder)), stderr=subprocess.DEVNULL)
        try:
            _wait_until_ready(process, address)
            yield process.pid, address
        finally:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], address: str) -> None:
    give_up = time.monotonic() + HANGS_AFTER
    while time.monotonic() < give_up:
        if process.poll() is not None:
            raise RuntimeError(f"the front ended with {process.returncode}")
        with contextlib.suppress(URLError), urlopen(f"http://{address}/health", timeout=5):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ASK_AGAIN_AFTER)
    raise RuntimeError("the front does not get ready")
