"""Requests of gRPC that never become complete: a few are received at a time, and they give way to complete ones."""

from __future__ import annotations

import contextlib
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from imp_service.config import read_settings
from imp_service.config.derived import most_received_bytes
from imp_service.core.reserve import READING_CALLS, READING_HEALTH, reserve_bytes
from imp_service.pb import tokenizer_pb2 as pb
from imp_service.pb import tokenizer_pb2_grpc
from imp_service.rpc import message_gate
from imp_service.rpc.message_gate import PATIENCE_SECONDS, MessageGate
from service.rpc.test_planned_memory import limited_server
from support.calls.failed_calls import failed
from support.calls.incomplete_messages import IncompleteMessages
from support.calls.raw_calls import HEALTH, call
from support.calls.raw_http2 import (
    DATA,
    END_HEADERS,
    HEADERS,
    RawConnection,
    call_fields,
    fields,
    frame,
    raw_connection,
)
from support.machine.control_group import peak_bytes
from support.run.patience import HANGS_AFTER
from support.servers.served import Served, serve

TOKENIZE, CHECK = "/imp.v1.TokenizerService/Tokenize", f"/{HEALTH}/Check"
MESSAGE = 4 * 1024**2 - 10
N_INCOMPLETE = 300
# Without a bound so many incomplete requests kill a server sooner.
LOAD_SECONDS = 10.0


@pytest.fixture
def served() -> Iterator[Served]:
    with serve() as it:
        yield it


def begin(connection: RawConnection, *streams: int, path: str = TOKENIZE) -> None:
    """Begins a call on each stream, whose message never comes completely."""
    block = fields(*call_fields(path))
    for stream in streams:
        part = b"\0" + struct.pack(">I", MESSAGE) + b"a" * 10
        connection.send(frame(HEADERS, block, flags=END_HEADERS, stream=stream), frame(DATA, part, stream=stream))


def gate_of(served: Served, *, of_health: bool = False) -> MessageGate:
    path = served.server._path
    return path._health_gate if of_health else path._gate


def held(gate: MessageGate) -> tuple[int, int]:
    """Returns how many calls receive their request, and how many wait for that."""
    assert gate._n_waiting == sum(len(each) for each in gate._waiting.values())
    return len(gate._reading), gate._n_waiting


def count_on(channel: grpc.Channel) -> int:
    stub = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
    return int(stub.Tokenize(pb.TokenizeRequest(texts=["Once upon a time"]), timeout=HANGS_AFTER).results[0].count)


def test_rpc_42_one_connection_leaves_a_place_for_others(served: Served) -> None:
    gate = gate_of(served)
    with served.frozen(), raw_connection(served.address) as slow, served.connection() as channel:
        begin(slow, *range(1, 2 * N_INCOMPLETE, 2))
        served.wait_until(lambda: held(gate) == (READING_CALLS - 1, N_INCOMPLETE - READING_CALLS + 1), "all have come")
        # No time passes, so nothing has ended.
        for _ in range(20):
            assert count_on(channel) > 0
        assert held(gate) == (READING_CALLS - 1, N_INCOMPLETE - READING_CALLS + 1)
        slow.shut()
        served.wait_until(lambda: held(gate) == (0, 0), "all have left")


def test_rpc_42_slow_requests_end_where_others_wait(served: Served) -> None:
    gate = gate_of(served)
    with served.frozen(), contextlib.ExitStack() as connections:
        slow = [connections.enter_context(raw_connection(served.address)) for _ in range(READING_CALLS + 2)]
        for n, each in enumerate(slow, 1):
            begin(each, 1)
            served.wait_until(lambda n=n: sum(held(gate)) == n, "it has come")
        assert held(gate) == (READING_CALLS, 2)
        channel = connections.enter_context(served.connection())
        asked = tokenizer_pb2_grpc.TokenizerServiceStub(channel).Tokenize.future(pb.TokenizeRequest(texts=["a"]))
        served.wait_until(lambda: held(gate) == (READING_CALLS, 3), "it waits")
        served.jump(PATIENCE_SECONDS / 2)
        assert held(gate) == (READING_CALLS, 3)
        served.jump(PATIENCE_SECONDS)
        assert asked.result(HANGS_AFTER).results[0].count > 0
        served.wait_until(lambda: held(gate) == (2, 0), "two that waited have places")
        # Nobody waits for those: they may take their time.
        served.jump(100 * PATIENCE_SECONDS)
        assert held(gate) == (2, 0)
        for each in slow[:READING_CALLS]:
            ends = next(content for kind, _, _, content in each.frames() if kind == HEADERS)
            assert b"arrived too slowly" in ends
        for each in slow:
            each.shut()
        served.wait_until(lambda: held(gate) == (0, 0), "all have left")


def test_rpc_42_health_has_places_of_its_own(served: Served) -> None:
    gate = gate_of(served)
    with served.frozen(), contextlib.ExitStack() as connections:
        for _ in range(2 * READING_CALLS):
            begin(connections.enter_context(raw_connection(served.address)), 1, 3)
        served.wait_until(lambda: held(gate) == (READING_CALLS, 3 * READING_CALLS), "all have come")
        begin(connections.enter_context(raw_connection(served.address)), 1, 3, 5, path=CHECK)
        of_health = gate_of(served, of_health=True)
        served.wait_until(lambda: held(of_health) == (READING_HEALTH - 1, 3 - READING_HEALTH + 1), "so have those")
        with served.connection() as channel:
            for _ in range(20):
                assert call(channel, CHECK).code == "OK"
    served.wait_until(lambda: held(gate) == (0, 0), "all have left")


def test_rpc_42_more_calls_than_may_wait_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_gate, "MAX_WAITING", 5)
    gate = gate_of(served)
    with served.frozen(), contextlib.ExitStack() as connections:
        for _ in range(READING_CALLS):
            begin(connections.enter_context(raw_connection(served.address)), 1)
        served.wait_until(lambda: held(gate) == (READING_CALLS, 0), "all places are taken")
        begin(connections.enter_context(raw_connection(served.address)), *range(1, 11, 2))
        served.wait_until(lambda: held(gate) == (READING_CALLS, 5), "as many wait as may")
        with served.connection() as channel:
            refused = failed(lambda: count_on(channel))
        assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "QUEUE_FULL")
    served.wait_until(lambda: held(gate) == (0, 0), "all have left")


def test_rpc_42_calls_that_come_wait_and_leave_at_random_leave_nothing(served: Served) -> None:
    draw, gate = random.Random(5), gate_of(served)
    open_ones: list[RawConnection] = []
    with served.connection() as channel:
        for _ in range(200):
            if len(open_ones) > 8 or (open_ones and draw.random() < 0.4):
                left = open_ones.pop(draw.randrange(len(open_ones)))
                left.shut()
                left.close()
            else:
                open_ones.append(RawConnection(served.address))
                open_ones[-1].send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frame(4))
                begin(open_ones[-1], *range(1, 2 * draw.randint(1, 4), 2))
            assert served.call(lambda: held(gate)[0]) <= READING_CALLS
            if draw.random() < 0.1:
                served.jump(2 * PATIENCE_SECONDS)
        for each in open_ones:
            each.shut()
            each.close()
        assert count_on(channel) > 0
    served.wait_until(lambda: held(gate) == (0, 0), "all have left")


def test_rpc_42_the_plan_has_the_requests_that_are_received_at_once() -> None:
    small, large = (read_settings(None, (f"limits.max_message_bytes={n}MiB",)).settings for n in (1, 2))
    more = most_received_bytes(large.limits) - most_received_bytes(small.limits)
    # Four messages over HTTP, and four replies.
    assert reserve_bytes(large) - reserve_bytes(small) == (READING_CALLS + READING_HEALTH + 8) * more


@pytest.mark.long
@pytest.mark.parametrize("n_connections", [1, 3])
def test_rpc_42_incomplete_requests_stay_within_the_planned_memory(tmp_path: Path, n_connections: int) -> None:
    with limited_server(tmp_path) as (server, limit), contextlib.ExitStack() as connections:
        slow = [
            connections.enter_context(IncompleteMessages(server.address, TOKENIZE, N_INCOMPLETE, MESSAGE))
            for _ in range(n_connections)
        ]
        until = time.monotonic() + LOAD_SECONDS
        while time.monotonic() < until:
            # On new connections: the server may be gone.
            with grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                assert call(channel, CHECK).code == "OK", server.process.poll()
                assert count_on(channel) > 0
        # More than the plan has was offered, and some of it was taken.
        assert sum(sum(each.n_sent.values()) for each in slow) > READING_CALLS * 1024**2
        assert server.process.poll() is None, "killed"
        assert peak_bytes(server.pid) < limit
