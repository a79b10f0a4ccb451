"""gRPC listeners: binds an address, and sets every option of its connections; none is left to gRPC's defaults."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta

import grpc

from imp_service.config import Settings
from imp_service.config.address import Address
from imp_service.config.derived import most_received_bytes, most_received_with_images
from imp_service.serving.listening import ListenError, check_all, claimed

# What a client may send of a request that is not read yet. While it is read, the window grows to the message's size.
STREAM_WINDOW_BYTES = 16 * 1024
HANDSHAKE_SECONDS = 10
# Clients that ping at the least interval are sometimes early.
PING_TOLERANCE = 0.9

Options = list[tuple[str, int]]


def channel_options(settings: Settings, *, has_channelz: bool = False, takes_images: bool = False) -> Options:
    """For grpc.aio.server."""
    limits, keepalive, connection = settings.limits, settings.keepalive, settings.connection
    most_received = most_received_with_images(limits, settings.media) if takes_images else most_received_bytes(limits)
    options: Options = [
        ("grpc.max_receive_message_length", most_received),
        ("grpc.max_send_message_length", limits.max_message_bytes),
        # Equal: between the two limits gRPC refuses at random.
        ("grpc.max_metadata_size", limits.max_metadata_bytes),
        ("grpc.absolute_max_metadata_size", limits.max_metadata_bytes),
        ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.keepalive_time_ms", _ms(keepalive.time)),
        ("grpc.keepalive_timeout_ms", _ms(keepalive.timeout)),
        # Without this gRPC waits a minute for the reply to every ping, also for keepalive.
        ("grpc.http2.ping_timeout_ms", _ms(keepalive.timeout)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", int(_ms(keepalive.min_ping_interval) * PING_TOLERANCE)),
        ("grpc.max_concurrent_streams", connection.max_streams),
        # Clients wait at max_concurrent_streams. With overload protection gRPC refuses calls that are a moment early,
        # and with a low limit of pending requests others at random, without a reason of the error table.
        ("grpc.http.overload_protection", 0),
        ("grpc.server.max_pending_requests", connection.max_connections * connection.max_streams),
        ("grpc.server.max_pending_requests_hard_limit", connection.max_connections * connection.max_streams),
        ("grpc.max_allowed_incoming_connections", connection.max_connections),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
        # A second server on the same port must fail, not take half of the connections.
        ("grpc.so_reuseport", 0),
        # Zero copy may send memory that was already reused: CVE-2024-11407.
        ("grpc.experimental.tcp_tx_zerocopy_enabled", 0),
        ("grpc.enable_channelz", int(has_channelz)),
    ]
    if connection.max_age is not None:
        options += [
            ("grpc.max_connection_age_ms", _ms(connection.max_age)),
            ("grpc.max_connection_age_grace_ms", _ms(connection.max_age_grace)),
        ]
    return options


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def bind(server: grpc.aio.Server, address: Address, credentials: grpc.ServerCredentials | None = None) -> str:
    """Binds a checked address. Returns it with the port that was chosen."""
    path = address.socket_path
    # gRPC takes everything after `unix:` as the path.
    text = address.text if path is None else f"unix:{path}"
    with nullcontext() if path is None else claimed(path):
        try:
            port = server.add_secure_port(text, credentials) if credentials else server.add_insecure_port(text)
        except RuntimeError:
            # Another process took the address after the check. gRPC does not report the system's error.
            check_all((address,))
            raise ListenError("ADDRESS_IN_USE", address.text, "cannot be bound") from None
    return address.text if path is not None else address.with_port(port)
