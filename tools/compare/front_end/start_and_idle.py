"""Measures the start of `imp serve` and its idle wakeups, each without and with the HTTP listener."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from compare.front_end.figure import Figure
from compare.front_end.http_streams import read_http_streams, stream_request
from compare.front_end.streams import read_streams, request
from compare.front_end.token_costs import spent_since
from imp_service.core.bench.report import Spread
from imp_service.pb import model_pb2, model_pb2_grpc
from support.machine.process_numbers import thread_seconds, thread_switches
from support.servers.server_process import server_process

# The work after a generation has ended by then.
PAUSE_SECONDS = 1.0
# All threads, as a server has by default.
IDLE_SETTINGS = ("device.threads=auto",)
LISTENERS = {"without HTTP": "off", "with HTTP": "127.0.0.1:0"}


def start_time(reps: int) -> Iterator[Figure]:
    """Measures from the start of the process to its ready file, with the built-in model and default settings."""
    samples: dict[str, list[float]] = {name: [] for name in LISTENERS}
    with tempfile.TemporaryDirectory() as compiled:
        # The first start compiles the modules of a checkout. An installed package has them compiled.
        environment = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(reps + 1):
            for name, http in LISTENERS.items():
                with tempfile.TemporaryDirectory() as folder:
                    started = time.perf_counter()
                    options = {"environment": environment, "is_traced": False}
                    with server_process(Path(folder), "--http", http, **options) as server:
                        server.wait_until_ready()
                        samples[name].append(time.perf_counter() - started)
    for name, values in samples.items():
        yield Figure(f"process start to SERVING, built-in model, {name}", "s", Spread.of(values[1:]), "under 1.5")
    ratios = [one / other for one, other in zip(samples["with HTTP"][1:], samples["without HTTP"][1:], strict=True)]
    yield Figure("process start to SERVING, with HTTP in without", "x", Spread.of(ratios), "at most 1.05")


def idle(seconds: float) -> Iterator[Figure]:
    """Measures idle wakeups with default settings, after generations, while the client is still connected."""
    wakeups = {}
    for name, http in LISTENERS.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            server_process(Path(folder), "--http", http, settings=IDLE_SETTINGS, is_traced=False) as server,
            server.connection() as channel,
        ):
            read_streams(server.address, [request(64, 300 + i) for i in range(8)])
            if http != "off":
                read_http_streams(server.wait_until_ready()["http"][0], [stream_request(64, 300 + i) for i in range(8)])
            model_pb2_grpc.ModelServiceStub(channel).GetLoad(model_pb2.GetLoadRequest())
            threading.Event().wait(PAUSE_SECONDS)
            before, waked = thread_seconds(server.pid), thread_switches(server.pid)
            threading.Event().wait(seconds)
            spent = sum(had for _, had in spent_since(server.pid, before).values())
            waked = {thread: n - waked.get(thread, 0) for thread, n in thread_switches(server.pid).items()}
            threads = {each: sum(waked[at] for at in waked if before[at][0] == each) for each, _ in before.values()}
        share = Spread.of([100 * spent / seconds])
        yield Figure(f"an idle server, {name}, over {seconds:g} s", "% of a CPU", share, "0, below 0.5")
        yield Figure(f"its threads wake up, all of them, {name}", "1/s", Spread.of([sum(threads.values()) / seconds]))
        # The event loop's thread. The threads of gRPC wake up for their own timers.
        wakeups[name] = waked[server.pid] / seconds
        for each, n in threads.items():
            if n:
                yield Figure(f"  {each}, {name}", "1/s", Spread.of([n / seconds]))
    added = Spread.of([wakeups["with HTTP"] - wakeups["without HTTP"]])
    yield Figure("wakeups of the event loop that HTTP adds", "1/s", added, "0")
