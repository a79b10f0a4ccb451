"""listen.http = fd:N: listening sockets that a process inherits."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from imp_service.config.address import Address
from imp_service.config.server_settings import ADDRESS, HTTP_ADDRESS, HttpSettings
from imp_service.http_api.exchange import Exchange
from imp_service.http_api.listener import Listener, Server
from imp_service.serving.listening import ListenError, bind_socket, check_all, is_abstract


def listening(family: int, name: Any) -> int:
    with socket.socket(family) as made:
        made.bind(name)
        made.listen()
        return made.detach()


def test_iso_17_a_tcp_socket_has_its_address_and_a_unix_socket_none(tmp_path: Path) -> None:
    tcp = listening(socket.AF_INET, ("127.0.0.1", 0))
    unix = listening(socket.AF_UNIX, str(tmp_path / "s"))
    abstract = listening(socket.AF_UNIX, "")
    for number, is_unix, has_no_file in ((tcp, False, False), (unix, True, False), (abstract, True, True)):
        address = Address(f"fd:{number}")
        check_all([address])
        taken, text = bind_socket(address)
        with taken:
            assert (Address(text).is_unix, is_abstract(taken)) == (is_unix, has_no_file)
            assert Address(text).is_local and Address(text).socket_path is None
            if not is_unix:
                assert taken.getsockname()[1] == Address(text).port > 0
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(number)  # the listener alone keeps the address


OTHERS: dict[str, Callable[[Path], int]] = {
    "nothing": lambda _: 65_000,
    "a file": lambda folder: os.open(folder / "file", os.O_CREAT | os.O_RDWR),
    "a socket that does not listen": lambda _: socket.socket().detach(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_iso_17_anything_else_is_refused(tmp_path: Path, name: str) -> None:
    number = OTHERS[name](tmp_path)
    for use in (lambda address: check_all([address]), bind_socket):
        with pytest.raises(ListenError) as refused:
            use(Address(f"fd:{number}"))
        assert refused.value.reason == "CANNOT_CREATE" and f"fd:{number}: " in refused.value.message
    if number != 65_000:
        os.close(number)


def test_iso_17_only_http_takes_one() -> None:
    assert HTTP_ADDRESS.read("fd:3") == "fd:3"
    for kind, text in ((ADDRESS, "fd:3"), (HTTP_ADDRESS, "fd:"), (HTTP_ADDRESS, "fd:-1"), (HTTP_ADDRESS, "fd:123456")):
        with pytest.raises(Exception, match="host:port"):
            kind.read(text)


def peer_of(user: int) -> Any:
    """A transport to a process of this user."""
    credentials = SimpleNamespace(getsockopt=lambda *_: struct.pack("3i", 1, user, 1))
    return SimpleNamespace(get_extra_info=lambda _: credentials)


def test_iso_17_a_socket_without_a_file_is_for_the_same_user() -> None:
    async def scene() -> None:
        server = Server(None, HttpSettings(), 8, 8192)  # type: ignore[arg-type]
        assert server.places.admits(peer_of(12345))  # a file has rights, which the kernel checks
        server.places.is_for_own_user = True
        assert [server.places.admits(peer_of(user)) for user in (os.geteuid(), 0, 12345)] == [True, True, False]

    asyncio.run(scene())


@pytest.mark.parametrize("is_for_front", [True, False])
def test_iso_18_only_the_front_of_a_process_says_who_its_clients_are(is_for_front: bool) -> None:
    async def run() -> tuple[str, str]:
        peers = []

        async def handle(exchange: Exchange) -> None:
            peers.append(exchange.peer)
            await exchange.reply(HTTPStatus.OK, (), b"{}")

        server = Server(handle, HttpSettings(), 8, 8192)
        server.is_for_front = is_for_front
        made, text = bind_socket(Address("127.0.0.1:0"))
        listener = Listener(made, server, None)
        await listener.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", Address(text).port)
        writer.write(b"GET /x HTTP/1.1\r\nhost: a\r\nimp-peer: ipv4:10.9.9.9:1\r\nconnection: close\r\n\r\n")
        await reader.read()
        port = writer.get_extra_info("sockname")[1]
        writer.close()
        await listener.stop(0.0)
        return peers[0], f"ipv4:127.0.0.1:{port}"

    peer, own = asyncio.run(run())
    assert peer == ("ipv4:10.9.9.9:1" if is_for_front else own)
