"""Connections that are slow on purpose are closed in time; idle ones that answer pings stay. Nobody else waits."""

from __future__ import annotations

import math
import select
import socket
import time
from collections.abc import Iterator

import pytest

from imp_service.rpc import listeners
from support.calls.raw_http2 import (
    ACK,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    frame,
    raw_connection,
)
from support.run.patience import HANGS_AFTER
from support.run.release_run import repetitions
from support.servers.served import Served, ask, serve, tokens_of
from support.servers.served_models import scripted

N_CONNECTIONS = repetitions(1000, 120)
# These limits apply to the canary too. Those on its answers leave it the time that a busy machine may take; the others
# are the shortest that the settings allow.
SETTINGS_OF_TESTS = ("keepalive.time=1s", "keepalive.timeout=10s", "keepalive.min_ping_interval=1s")
HANDSHAKE_SECONDS = 5
# Each connection sends a byte this often.
PACE_SECONDS = 0.05
# The headers of a call. Their announced length never arrives completely.
LONG_HEADERS = b"\x00\x20\x00" + bytes((HEADERS, END_HEADERS)) + b"\x00\x00\x00\x01" + b"\x00" * 8192
# What each kind sends at once, and what it then sends byte by byte.
KINDS = {
    "says nothing": (b"", b""),
    "is slow in its handshake": (b"", PREFACE + frame(SETTINGS, bytes(6 * 100))),
    "answers no ping": (PREFACE + frame(SETTINGS), b""),
}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(listeners, "HANDSHAKE_SECONDS", HANDSHAKE_SECONDS)
    limit = f"connection.max_connections={N_CONNECTIONS + 50}"
    with serve(*SETTINGS_OF_TESTS, limit, model=scripted()) as server:
        yield server


class Slow:
    """A client that keeps a connection as long as it can. It reads, but answers nothing."""

    def __init__(self, address: str, at_once: bytes, slowly: bytes) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), HANGS_AFTER)
        self.socket.setblocking(False)
        self.socket.send(at_once)
        self._slowly = iter(slowly)

    def dribble(self) -> None:
        byte = next(self._slowly, None)
        if byte is not None:
            try:
                self.socket.send(bytes((byte,)))
            except OSError:
                return  # closed meanwhile: the next read shows it

    def is_closed(self) -> bool:
        try:
            while content := self.socket.recv(65536):
                del content
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_w07_rpc_32_slow_connections_are_closed_and_honest_ones_are_served(served: Served, kind: str) -> None:
    hold_and_watch(served, *KINDS[kind])


def test_w07_rpc_28_a_connection_that_is_slow_in_a_frame_ends_with_its_age() -> None:
    """gRPC takes every byte as activity and sends no ping: only connection.max_age ends the connection."""
    ages = ("connection.max_age=1s", "connection.max_age_grace=4s", "limits.request_time=4s")
    with serve(*SETTINGS_OF_TESTS, *ages, model=scripted()) as served:
        hold_and_watch(served, PREFACE + frame(SETTINGS), LONG_HEADERS)


def hold_and_watch(served: Served, at_once: bytes, slowly: bytes) -> None:
    """Holds N_CONNECTIONS such connections until the last is closed, while a canary generates again and again."""
    held = [Slow(served.address, at_once, slowly) for _ in range(N_CONNECTIONS)]
    try:
        with served.canary() as canary:
            give_up = time.monotonic() + HANGS_AFTER
            while held:
                assert time.monotonic() < give_up, f"{len(held)} connections are still open"
                select.select([each.socket for each in held], [], [], PACE_SECONDS)
                still = [each for each in held if not each.is_closed()]
                for each in set(held) - set(still):
                    each.socket.close()
                held = still
                for each in held:
                    each.dribble()
        assert canary.n_runs >= 1
    finally:
        for each in held:
            each.socket.close()
    # Every place is free again.
    assert tokens_of(list(served.inference.Generate(ask([300], 3)))) == [301, 302, 303]


def pings(address: str, n: int, gap: float) -> int:
    """Returns how many of `n` pings an idle client gets answered before GOAWAY.

    It sends each `gap` seconds after the last answer, so the server sees them at least that far apart.
    """
    with raw_connection(address) as connection:
        frames = connection.frames()
        for i in range(n):
            sent = b"%08d" % i
            connection.send(frame(PING, sent))
            over = math.inf
            while time.monotonic() < over:
                if over < math.inf and not connection.is_readable(max(0.0, over - time.monotonic())):
                    continue
                kind, flags, _, content = next(frames, (GOAWAY, 0, 0, b""))
                if kind == GOAWAY:
                    return i
                if kind == PING and not flags:  # the server's own ping
                    connection.send(frame(PING, content, flags=ACK))
                elif kind == PING and content == sent:
                    over = time.monotonic() + gap
    return n


def test_w09_an_idle_client_that_pings_as_often_as_it_may_is_kept(served: Served) -> None:
    """More frequent pings are a flood: gRPC tolerates two pings that come too early."""
    assert pings(served.address, 4, gap=1.0) == 4
    assert pings(served.address, 20, gap=0.0) < 5
    assert tokens_of(list(served.inference.Generate(ask([300], 3)))) == [301, 302, 303]
