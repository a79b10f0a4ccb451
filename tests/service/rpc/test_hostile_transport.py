"""Bytes that are no gRPC, and too much of it: each ends only its own connection or call."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import grpc
import pytest

from imp_service.config import read_settings
from imp_service.rpc.listeners import channel_options
from support.calls.raw_calls import HEALTH, INFERENCE, call
from support.calls.raw_http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    call_fields,
    fields,
    frame,
    raw_connection,
)
from support.run.patience import HANGS_AFTER
from support.run.release_run import repetitions
from support.servers.served import Served, ask, serve

CHECK, GENERATE, UNARY = f"/{HEALTH}/Check", f"/{INFERENCE}/Generate", f"/{INFERENCE}/GenerateUnary"
N_RESETS = repetitions(100_000, 2_000)
MESSAGE = MARGIN = 4 * 1024**2


@pytest.fixture(scope="module")
def channel(served: Served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.address, (("grpc.max_send_message_length", -1),)) as it:
        yield it


def started(served: Served) -> float:
    counter = served.state.telemetry.metrics.grpc_started
    return sum(counter.labels("server_stream", INFERENCE, "Generate")._value.get() for _ in (1,))


def opening(stream: int, pairs: list[tuple[str, str]], *, ends: bool = False) -> bytes:
    return frame(HEADERS, fields(*pairs), flags=END_HEADERS | (END_STREAM if ends else 0), stream=stream)


LONG_BLOCK = frame(HEADERS, b"", stream=1) + frame(CONTINUATION, fields(("x", "y" * 100)), stream=1) * 2000
BAD_BYTES = {
    "a web browser": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a handshake of TLS": bytes.fromhex("16030100c8010000c40303") + os.urandom(197),
    "noise": os.urandom(1024**2),
    "a header block without an end": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS) + LONG_BLOCK,
    "a frame of 16 MiB": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + frame(SETTINGS)
    + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    "a window beyond 2^31": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + frame(SETTINGS)
    + frame(WINDOW_UPDATE, struct.pack(">I", 2**31 - 1)) * 2,
    "settings on a stream": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, stream=1),
    "a compressed block that points nowhere": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + frame(SETTINGS)
    + frame(HEADERS, b"\xff\xff\xff\x7f", flags=END_HEADERS, stream=1),
}

# gRPC goes on reading: it stores nothing of an oversized part, and counts no further than it must.
WAITED_FOR = ("a header block without an end", "a window beyond 2^31")


@pytest.mark.parametrize("what", BAD_BYTES)
def test_rpc_32_w02_w08_w12_bytes_that_are_no_http2_end_their_connection(
    served: Served, channel: grpc.Channel, what: str
) -> None:
    before = started(served)
    with raw_connection(served.address, greets=False) as connection:
        connection.send(BAD_BYTES[what])
        if what not in WAITED_FOR:
            connection.read_to_end()
    assert started(served) == before
    assert call(channel, CHECK).code == "OK"


BAD_CALLS: dict[str, list[tuple[str, str]]] = {
    "no path": call_fields(GENERATE, _path=None),
    "no method": call_fields(GENERATE, _method=None),
    "another method": call_fields(GENERATE, _method="GET"),
    "a bad scheme": call_fields(GENERATE, _scheme="gopher"),
    "a bad te": call_fields(GENERATE, te="gzip"),
    "two paths": [*call_fields(GENERATE), (":path", GENERATE)],
    "a late pseudo-header": [*call_fields(GENERATE, _path=None), (":path", GENERATE)],
    "another content": call_fields(GENERATE, content_type="text/html"),
    "bytes that are no base64": call_fields(GENERATE, x_bin="%%%"),
    "an unknown encoding": call_fields(GENERATE, grpc_encoding="brotli-of-mine"),
}


# gRPC accepts these as calls: it ignores the order of headers and those it does not use.
TAKEN_FOR_CALLS = ("two paths", "a late pseudo-header", "another content")


@pytest.mark.few(2)
@pytest.mark.parametrize("what", BAD_CALLS)
def test_rpc_32_w03_w11_w13_headers_that_are_no_call_never_reach_the_model(
    served: Served, channel: grpc.Channel, what: str
) -> None:
    """Each ends its own stream: with an error, or with the reply of a call where gRPC accepts the headers."""
    admitted = served.state.telemetry.metrics.prompt_computed._value.get()
    content = ask("Once", 1).SerializeToString()
    with raw_connection(served.address) as connection:
        compressed = 1 if what == "an unknown encoding" else 0
        message = bytes((compressed,)) + struct.pack(">I", len(content)) + content
        connection.send(opening(1, BAD_CALLS[what]), frame(DATA, message, flags=END_STREAM, stream=1))
        for kind, flags, stream, _ in connection.frames():
            if kind in (GOAWAY, RST_STREAM) or (kind == HEADERS and stream == 1 and flags & END_STREAM):
                break
    if what not in TAKEN_FOR_CALLS:
        assert served.state.telemetry.metrics.prompt_computed._value.get() == admitted
    assert call(channel, CHECK).code == "OK"
    served.wait_for_rest()


def test_rpc_32_w04_w08_floods_of_resets_and_pings_do_no_work_for_the_model(
    served: Served, channel: grpc.Channel
) -> None:
    admitted = served.state.telemetry.metrics.prompt_computed._value.get()
    with raw_connection(served.address) as connection:
        for i in range(N_RESETS):
            stream = 2 * i + 1
            connection.send(opening(stream, call_fields(GENERATE)), frame(RST_STREAM, b"\0\0\0\x08", stream=stream))
        connection.send(*[frame(PING, b"12345678")] * 2000, *[frame(SETTINGS)] * 2000)
        assert call(channel, CHECK).code == "OK"
    assert served.state.telemetry.metrics.prompt_computed._value.get() == admitted
    served.wait_until(lambda: served.state.calls.n_requests == 0, "nothing is left of them")


@pytest.mark.parametrize("n_messages", [0, 2])
def test_w13_a_unary_call_of_no_message_or_two_runs_no_handler_twice(
    served: Served, channel: grpc.Channel, n_messages: int
) -> None:
    def requests() -> Iterator[bytes]:
        yield from (b"",) * n_messages

    stream = channel.stream_stream(UNARY)(requests(), timeout=HANGS_AFTER)
    with pytest.raises(grpc.RpcError) as ended:
        list(stream)
    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    served.wait_until(lambda: served.state.calls.n_requests == 0, "nothing is left of it")


def test_w10_w11_messages_and_what_they_inflate_to_have_one_limit(channel: grpc.Channel) -> None:
    for n_bytes, code, reason in (
        (MESSAGE, "INVALID_ARGUMENT", "FIELD_INVALID"),
        (MESSAGE + 1, "RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE"),
        (MESSAGE + MARGIN, "RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE"),
        (MESSAGE + MARGIN + 1, "RESOURCE_EXHAUSTED", ""),
    ):
        refused = call(channel, UNARY, b"\xff" * n_bytes)
        assert (refused.code, refused.reason) == (code, reason)
    bomb = channel.unary_unary(UNARY)
    with pytest.raises(grpc.RpcError) as refused:
        bomb(b"\0" * (64 * 1024**2), compression=grpc.Compression.Gzip, timeout=HANGS_AFTER)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_w01_metadata_has_a_limit(channel: grpc.Channel) -> None:
    for n_bytes, codes in (
        (8 * 1024, ("OK",)),
        (16 * 1024 + 1, ("RESOURCE_EXHAUSTED",)),
        (1024**2, ("RESOURCE_EXHAUSTED",)),
    ):
        assert call(channel, CHECK, b"", (("x", "y" * n_bytes),)).code in codes, n_bytes
    keys = tuple((f"key-{i}", "") for i in range(10_000))
    assert call(channel, CHECK, b"", keys).code == "RESOURCE_EXHAUSTED"


def test_w14_the_options_of_a_listener_are_those_of_the_settings() -> None:
    config = read_settings(None, ["connection.max_age=2h", "keepalive.min_ping_interval=10s"], variables={})
    options = dict(channel_options(config.settings))
    assert options["grpc.so_reuseport"] == options["grpc.experimental.tcp_tx_zerocopy_enabled"] == 0
    # imp refuses a message between limits.max_message_bytes and this size, with a reason.
    assert options["grpc.max_receive_message_length"] == MESSAGE + MARGIN
    assert options["grpc.max_send_message_length"] == MESSAGE
    assert options["grpc.max_metadata_size"] == options["grpc.absolute_max_metadata_size"] == 16 * 1024
    assert (options["grpc.keepalive_time_ms"], options["grpc.keepalive_timeout_ms"]) == (20_000, 10_000)
    # gRPC's own ping timeout is a minute, whatever its keepalive timeout is.
    assert options["grpc.http2.ping_timeout_ms"] == 10_000
    assert options["grpc.http2.min_ping_interval_without_data_ms"] <= 10_000
    assert (options["grpc.max_connection_age_ms"], options["grpc.max_connection_age_grace_ms"]) == (
        7_200_000,
        3_600_000,
    )
    assert options["grpc.max_allowed_incoming_connections"] == 512
    scheduler = config.settings.scheduler
    assert options["grpc.max_concurrent_streams"] >= scheduler.max_running + scheduler.max_waiting
    assert "grpc.max_connection_age_ms" not in dict(channel_options(read_settings(None, [], variables={}).settings))


def test_rpc_28_w05_connections_beyond_the_limit_are_closed_and_places_become_free_again() -> None:
    with serve("connection.max_connections=3") as served:
        held = [raw_connection(served.address) for _ in range(3)]
        for connection in held:
            next(connection.__enter__().frames())
        with raw_connection(served.address) as beyond:
            assert beyond.read_to_end() == b""
        for connection in held:
            connection.__exit__(None, None, None)
        with grpc.insecure_channel(served.address) as channel:
            stream = channel.stream_stream(CHECK)(iter((b"",)), wait_for_ready=True, timeout=HANGS_AFTER)
            assert list(stream) == [b"\x08\x01"]


@pytest.mark.long
def test_rpc_28_a_running_stream_outlives_the_age_of_its_connection() -> None:
    settings = ("connection.max_age=1s", "connection.max_age_grace=1h", "limits.request_time=1h")
    with serve(*settings) as served, grpc.insecure_channel(served.address) as channel:
        watch = channel.stream_stream(f"/{HEALTH}/Watch")(iter((b"",)), timeout=HANGS_AFTER)
        assert next(watch) == b"\x08\x01"
        with raw_connection(served.address) as aged:
            assert any(kind == GOAWAY for kind, _, _, _ in aged.frames())
        served.call(lambda: served.server.health.set_alive(False))
        served.call(served.state.drain.begin)
        assert next(watch) == b"\x08\x02"


@pytest.mark.long
def test_rpc_28_rpc_41_calls_beyond_the_streams_of_a_connection_wait_and_none_is_refused_by_grpc(
    served: Served,
) -> None:
    """A burst of three times as many calls as streams: a refusal by gRPC would have neither reason nor RetryInfo."""
    request = ask("a", 1).SerializeToString()
    with grpc.insecure_channel(served.address) as channel:
        unary = channel.unary_unary(CHECK)
        assert unary(b"", timeout=HANGS_AFTER) == b"\x08\x01"
        stream = channel.unary_stream(GENERATE)
        futures = [unary.future(b"", timeout=HANGS_AFTER) for _ in range(1500)]
        texts = [stream(request, timeout=HANGS_AFTER) for _ in range(40)]
        assert {future.result() for future in futures} == {b"\x08\x01"}
        assert all(len(list(text)) >= 2 for text in texts)
