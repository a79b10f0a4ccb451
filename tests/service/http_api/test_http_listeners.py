"""The HTTP listeners: their addresses, and when aiohttp is imported."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from imp_service.config import read_settings
from imp_service.config.address import Address
from imp_service.http_api.server import HttpServer
from imp_service.serving.listening import checked_addresses
from imp_service.serving.security.access import Access
from imp_service.serving.server_state import ServerState
from support.machine.listening import listening_addresses
from support.machine.name_spaces import name_space
from support.run.patience import HANGS_AFTER
from support.servers.loop_thread import loop_thread
from support.servers.served import DEFAULTS
from support.servers.served_models import built_in
from support.servers.server_process import server_process

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
READY = LIVE.replace(b"/live", b"")
MODELS = LIVE.replace(b"/health/live", b"/v1/models")
# Starts loopback in its own network namespace, and then becomes the command.
OWN_LOOPBACK = """
import fcntl, os, socket, struct, sys
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
fcntl.ioctl(socket.socket(), SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_htp_1_without_any_address_both_listen_on_loopback(tmp_path: Path) -> None:
    inside = [*name_space("--net"), sys.executable, "-c", OWN_LOOPBACK]
    with server_process(tmp_path, listen=(), inside=inside, is_traced=False) as server:
        facts = server.wait_until_ready()
        assert (facts["grpc"], facts["http"]) == (["127.0.0.1:50051"], ["127.0.0.1:8000"])
        found = {address.replace("[::ffff:127.0.0.1]", "127.0.0.1") for address in listening_addresses(server.pid)}
        assert found == {"tcp 127.0.0.1:50051", "tcp 127.0.0.1:8000"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "n_tcp", "unix"),
    [
        (("--listen", "127.0.0.1:0"), 1, []),
        (("--listen", "127.0.0.1:0", "--http", "off"), 1, []),
        (("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"), 2, []),
        (("--listen", "127.0.0.1:0", "--http", "unix://FOLDER/http.sock"), 1, ["http.sock"]),
        (("--listen", "unix://FOLDER/grpc.sock", "--http", "127.0.0.1:0"), 1, ["grpc.sock"]),
        (("--listen", "127.0.0.1:0", "--set", "listen.metrics=unix://FOLDER/m.sock"), 1, ["m.sock"]),
    ],
)
def test_htp_1_exactly_the_given_addresses_are_listened_on(
    tmp_path: Path, words: tuple[str, ...], n_tcp: int, unix: list[str]
) -> None:
    given = [word.replace("FOLDER", str(tmp_path)) for word in words]
    with server_process(tmp_path, *given, is_traced=False) as server:
        facts = server.wait_until_ready()
        found = listening_addresses(server.pid)
        named = [*facts["grpc"], *(facts["http"] or [])]
        ports = {address.rpartition(":")[2] for address in found if address.startswith("tcp ")}
        assert ports == {str(Address(text).port) for text in named if not text.startswith("unix:")}
        assert len(ports) == n_tcp
        assert {address for address in found if address.startswith("unix ")} == {
            f"unix {tmp_path}/{name}" for name in unix
        }
        # HTP-9: only a server with an HTTP listener imports aiohttp.
        listeners = [*(facts["http"] or []), *([facts["metrics"]] if facts["metrics"] else [])]
        for listener in listeners:
            assert status(ask(listener, LIVE)) in (b"200", b"404")
        assert ("/aiohttp/" in Path(f"/proc/{server.pid}/maps").read_text()) is bool(listeners)


@contextmanager
def loading(import_delay: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HttpServer, Callable[[], None]]]:
    """Yields the HTTP listener of a server, and a function that loads the model. The test starts the answers itself."""
    monkeypatch.setattr("imp_service.http_api.server.IMPORT_DELAY", import_delay)
    loop = loop_thread()
    config = read_settings(None, [*DEFAULTS, 'listen.http=["127.0.0.1:0"]', 'listen.grpc=["127.0.0.1:0"]'])

    async def bind() -> tuple[ServerState, HttpServer]:
        state = ServerState(config, clock=loop.clock, wall=loop.clock.wall)
        server = HttpServer(state, Access(state))
        server.bind(checked_addresses(config.settings.listen, state.telemetry.log))
        return state, server

    async def adopt() -> None:
        state.adopt(await asyncio.to_thread(built_in().make, config, loop.clock))

    state, server = loop.run(bind())
    try:
        yield server, lambda: loop.run(adopt())
    finally:
        loop.run(server.stop(0))
        loop.call(state.close)


def ask(address: str, request: bytes) -> socket.socket:
    path = Address(address).socket_path
    made = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
    made.settimeout(HANGS_AFTER)
    made.connect(("127.0.0.1", Address(address).port) if path is None else str(path))
    made.sendall(request)
    return made


def status(connection: socket.socket) -> bytes:
    with closing(connection):
        return connection.recv(65536)[9:12]


def test_htp_9_requests_wait_until_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with loading(3600, monkeypatch) as (server, load):
        early = [ask(server.addresses[0], request) for request in (LIVE, MODELS)]
        loop_thread().call(server.start)
        early[0].settimeout(0.1)
        with pytest.raises(TimeoutError):
            early[0].recv(1)
        early[0].settimeout(HANGS_AFTER)
        load()
        assert [status(connection) for connection in early] == [b"200", b"200"]


@pytest.mark.long
def test_htp_9_requests_are_answered_while_the_model_loads_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with loading(0.01, monkeypatch) as (server, load):
        early = [ask(server.addresses[0], request) for request in (LIVE, READY, MODELS)]
        loop_thread().call(server.start)
        assert [status(connection) for connection in early] == [b"200", b"503", b"503"]
        load()
        assert [status(ask(server.addresses[0], request)) for request in (READY, MODELS)] == [b"200", b"200"]
