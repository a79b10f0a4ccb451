"""SMG, the gateway of the package `smg`, as a process in front of servers."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER
from support.servers.ray_serve import free_ports
from support.servers.server_process import ServerProcess, server_process

if TYPE_CHECKING:
    from support.calls.http_calls import HttpClient

LOOK_AGAIN = 0.1


class Gateway:
    """A running gateway."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.port = port
        self._process = process
        self._log = log

    @property
    def url(self) -> str:
        """The base URL for OpenAI's clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    @cached_property
    def client(self) -> HttpClient:
        """A client that checks every answer; needs the extra `test`."""
        from support.calls.http_calls import HttpClient

        return HttpClient(self.socket)

    def socket(self) -> socket.socket:
        """Returns a new connection."""
        return socket.create_connection(("127.0.0.1", self.port), HANGS_AFTER)

    def wait_for_workers(self, n: int) -> None:
        """Waits until the gateway routes to `n` servers."""
        give_up = time.monotonic() + HANGS_AFTER
        while self._n_workers() != n:
            assert self._process.poll() is None and time.monotonic() < give_up, self._log.read_text()[-4000:]
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK_AGAIN)

    def _n_workers(self) -> int:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) as connection:
                connection.request("GET", "/workers")
                found = json.loads(connection.getresponse().read())
            return sum(bool(worker["is_healthy"]) for worker in found["workers"])
        return -1


@contextlib.contextmanager
def gateway(folder: Path, workers: Sequence[str], *options: str) -> Iterator[Gateway]:
    """Starts SMG in front of the servers with these URLs; yields it once it routes to all of them."""
    (port, metrics_port) = free_ports(2)
    command = [sys.executable, "-m", "smg.launch_router", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--prometheus-port", str(metrics_port), "--worker-urls", *workers, *options]
    log = folder / "smg.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=clean_environment(folder), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        running = Gateway(port, process, log)
        running.wait_for_workers(len(workers))
        yield running
    finally:
        # A graceful stop would take seconds, because SMG waits for load balancers to notice.
        process.kill()
        process.wait(HANGS_AFTER)


@dataclass(frozen=True)
class Pair:
    """Two servers and the gateway in front of them."""

    servers: Sequence[ServerProcess]
    gateway: Gateway

    @property
    def http_clients(self) -> Sequence[HttpClient]:
        """A client of each server that bypasses the gateway."""
        from support.calls.http_calls import HttpClient  # imports openai, which a bench with this module does not need

        return [HttpClient(partial(_connected, server)) for server in self.servers]


def _connected(server: ServerProcess) -> socket.socket:
    host, port = _http(server).split(":")
    return socket.create_connection((host, int(port)), HANGS_AFTER)


def _http(server: ServerProcess) -> str:
    (address,) = server.wait_until_ready()["http"]
    return str(address)


@contextlib.contextmanager
def behind_grpc(folder: Path, *options: str, settings: Sequence[str] = ()) -> Iterator[tuple[ServerProcess, Gateway]]:
    """Yields a server that speaks VllmEngine behind SMG, which calls it over gRPC."""
    (folder / "server").mkdir()
    with server_process(folder / "server", settings=('listen.compat=["vllm"]', *settings)) as server:
        (address,) = server.wait_until_ready()["grpc"]
        with gateway(folder, [f"grpc://{address}"], *options) as running:
            yield server, running


@contextlib.contextmanager
def pair_behind(folder: Path, *options: str, settings: Sequence[str] = ()) -> Iterator[Pair]:
    """Yields two servers with these settings behind SMG with these options."""
    with ExitStack() as stack:
        servers = []
        for name in ("a", "b"):
            (folder / name).mkdir()
            process = server_process(folder / name, "--http", "127.0.0.1:0", settings=settings)
            servers.append(stack.enter_context(process))
        urls = [f"http://{_http(server)}" for server in servers]
        yield Pair(servers, stack.enter_context(gateway(folder, urls, *options)))
