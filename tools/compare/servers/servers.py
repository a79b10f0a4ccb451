"""The compared servers: processes on the same CPUs, with a slot for every client of a load."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from compare.caches import kv_bytes, room_of
from compare.outcome import IMP, Run
from compare.processes import OtherProcesses, settle
from compare.servers.clients import grpc_client, llama_client, openai_client
from compare.servers.goals import LLAMA_SERVER
from compare.servers.load import NATIVE, OPENAI, Ask, Load, figures_of, run_load
from imp_service.client.bench.measure import LevelRun
from support.machine.process_numbers import thread_seconds
from support.run.patience import HANGS_AFTER
from support.servers.server_process import server_process

WARM_UP_TOKENS = 4

# Opens the connections of a round.
Connect = Callable[[], AbstractAsyncContextManager[Ask]]


@dataclass(frozen=True)
class Server:
    """A server that is ready, and the seconds that its start took."""

    name: str
    pid: int
    start_seconds: float
    vocab_size: int
    clients: Mapping[str, Connect]  # by the API

    def prepare(self, load: Load) -> None:
        self._asked(dataclasses.replace(load, output_tokens=WARM_UP_TOKENS, requests=1))
        settle(self.pid)

    def run(self, load: Load) -> Run:
        others = OtherProcesses(self.pid, os.getpid())
        before, began = thread_seconds(self.pid), time.process_time()
        results = self._asked(load)
        clients = time.process_time() - began
        spent = sum(had - before.get(thread, ("", 0.0))[1] for thread, (_, had) in thread_seconds(self.pid).items())
        costs = {"client_cpu_seconds": clients, "server_cpu_seconds": spent}
        shares = {"client_cpu_share": clients / (clients + spent), "start_seconds": self.start_seconds}
        found = Run(results.seconds, others.cpus(), {**figures_of(results), **costs, **shares})
        settle(self.pid)
        return found

    def release(self) -> None:
        """Nothing is held between loads."""

    def _asked(self, load: Load) -> LevelRun:
        """Runs a load over connections that only this round uses."""

        async def run() -> LevelRun:
            async with self.clients[load.api]() as ask:
                return await run_load(load, self.vocab_size, ask)

        return asyncio.run(run())


def cells_of(load: Load) -> int:
    """Returns the tokens of all clients' sequences."""
    return load.clients * room_of(load.prompt_tokens + load.output_tokens + 1)


@contextlib.contextmanager
def imp_server(path: Path, threads: int, load: Load, vocab_size: int) -> Iterator[Server]:
    """Starts imp with default settings, except for the threads, and a cache and a batch that hold all clients.

    Without guesses: the text of random weights repeats itself, and llama-server guesses nothing by default.
    """
    settings = (
        f"device.threads={threads}",
        f"kv.bytes={kv_bytes(path, cells_of(load))}",
        f"scheduler.max_running={max(64, load.clients)}",
        f"scheduler.step_tokens={max(512, load.clients)}",
        "speculation.drafters=[]",
        "log.level=warning",
    )
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        words = ("--model", str(path), "--http", "127.0.0.1:0")
        with server_process(Path(folder), *words, settings=settings, is_traced=False) as server:
            (http,) = server.wait_until_ready()["http"]
            seconds = time.perf_counter() - started
            clients = {NATIVE: partial(grpc_client, server.address), OPENAI: partial(openai_client, http)}
            yield Server(IMP, server.pid, seconds, vocab_size, clients)


@contextlib.contextmanager
def llama_server(binary: Path, path: Path, threads: int, load: Load, vocab_size: int) -> Iterator[Server]:
    """Starts llama-server with flash attention, a slot per client and no prompt cache, otherwise with its defaults."""
    port = free_port()
    options = {
        "--model": path,
        "--threads": threads,
        "--parallel": load.clients,
        "--ctx-size": cells_of(load),
        "--flash-attn": "on",
        "--cache-ram": 0,
        "--host": "127.0.0.1",
        "--port": port,
    }
    words = [str(word) for option in options.items() for word in option]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "errors").open("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            [binary, *words, "--cont-batching", "--log-disable"],
            env={**os.environ, "OMP_PROC_BIND": "true"},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            wait_for_health(port, process, Path(errors.name))
            seconds = time.perf_counter() - started
            address = f"127.0.0.1:{port}"
            clients = {NATIVE: partial(llama_client, address), OPENAI: partial(openai_client, address)}
            yield Server(LLAMA_SERVER, process.pid, seconds, vocab_size, clients)
        finally:
            process.kill()
            process.wait()


def wait_for_health(port: int, process: subprocess.Popen[bytes], errors: Path) -> None:
    """Waits until the server reports that its model is loaded."""
    give_up = time.monotonic() + HANGS_AFTER
    while True:
        # An error means that the server does not listen yet or still loads.
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
            if json.load(answer)["status"] == "ok":
                return
        if process.poll() is not None or time.monotonic() > give_up:
            raise RuntimeError(f"llama-server does not get ready: {errors.read_text(errors='replace')[-2000:]}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.005)


def free_port() -> int:
    """Finds a port that was free a moment ago: llama-server does not report the port that it chose."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
