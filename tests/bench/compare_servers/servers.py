"""The compared servers: processes on the same CPUs, with a slot for every client of a load."""

from __future__ import annotations

import contextlib
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

from bench.compare_peers.engines.imp_engine import kv_bytes
from bench.compare_peers.engines.protocol import Task
from bench.compare_servers.grpc_client import grpc_client
from bench.compare_servers.http_client import http_client
from bench.compare_servers.load import NATIVE, OPENAI, Ask, Load
from bench.compare_servers.openai_client import openai_client
from support.patience import HANGS_AFTER
from support.server_process import server_process

CELLS = 256  # the tokens of a sequence are rounded up to a multiple of this


# Opens the connections of a round.
Connect = Callable[[], AbstractAsyncContextManager[Ask]]


@dataclass(frozen=True)
class Server:
    """A server that is ready, and the seconds that its start took."""

    name: str
    pid: int
    start_seconds: float
    clients: Mapping[str, Connect]  # by the API


def room_of(load: Load) -> int:
    """Returns the tokens of one client's sequence."""
    return -(-(load.prompt_tokens + load.output_tokens + 1) // CELLS) * CELLS


@contextlib.contextmanager
def imp_server(path: Path, threads: int, load: Load) -> Iterator[Server]:
    """Starts imp with default settings, except for the threads, and a cache and a batch that hold all clients.

    Without guesses: the text of random weights repeats itself, and llama-server guesses nothing by default.
    """
    task = Task(path, threads, load.clients * room_of(load), 0)
    settings = (
        f"device.threads={threads}",
        f"kv.bytes={kv_bytes(task)}",
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
            yield Server("imp", server.pid, seconds, clients)


@contextlib.contextmanager
def llama_server(binary: Path, path: Path, threads: int, load: Load) -> Iterator[Server]:
    """Starts llama-server with flash attention, a slot per client and no prompt cache, otherwise with its defaults."""
    port = free_port()
    options = {
        "--model": path,
        "--threads": threads,
        "--parallel": load.clients,
        "--ctx-size": load.clients * room_of(load),
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
            clients = {NATIVE: partial(http_client, address), OPENAI: partial(openai_client, address)}
            yield Server("llama-server", process.pid, seconds, clients)
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
