"""Listen addresses: who can connect, which two are the same, and how local clients reach them."""

from __future__ import annotations

from pathlib import Path

import pytest

from imp_service.config.address import Address


@pytest.mark.parametrize(
    ("text", "host", "port", "is_local", "local_text"),
    [
        ("127.0.0.1:50051", "127.0.0.1", 50051, True, "127.0.0.1:50051"),
        ("127.8.0.1:1", "127.8.0.1", 1, True, "127.8.0.1:1"),
        ("localhost:0", "localhost", 0, True, "localhost:0"),
        ("[::1]:7", "::1", 7, True, "[::1]:7"),
        ("0.0.0.0:50051", "0.0.0.0", 50051, False, "127.0.0.1:50051"),
        ("[::]:50051", "::", 50051, False, "[::1]:50051"),
        ("[2001:db8::1]:9", "2001:db8::1", 9, False, "[2001:db8::1]:9"),
        ("imp.example:443", "imp.example", 443, False, "imp.example:443"),
    ],
)
def test_a_port(text: str, host: str, port: int, is_local: bool, local_text: str) -> None:
    address = Address(text)
    assert (address.host, address.port, address.socket_path) == (host, port, None)
    assert (address.is_local, address.local_text) == (is_local, local_text)
    assert Address(address.with_port(12)).port == 12
    assert Address(address.with_port(12)).host == host


def test_a_socket() -> None:
    address = Address("unix:///run/imp:1/imp.sock")
    assert address.socket_path == Path("/run/imp:1/imp.sock")
    assert (address.is_local, address.local_text) == (True, address.text)


@pytest.mark.parametrize(
    ("one", "other", "collide"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("localhost:1", "127.0.0.1:1", True),
        ("0.0.0.0:1", "10.0.0.1:1", True),
        ("[::]:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:1", "10.0.0.1:1", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("unix:///a", "unix:///a", True),
        ("unix:///a", "unix:///b", False),
        ("unix:///a", "0.0.0.0:1", False),
    ],
)
def test_two_that_cannot_be_listened_on_at_once(one: str, other: str, collide: bool) -> None:
    assert Address(one).collides_with(Address(other)) == Address(other).collides_with(Address(one)) == collide
