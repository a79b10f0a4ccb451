"""Keys whose effect is an option of gRPC's server, in gRPC's own unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import grpc

from imp_service.config import read_settings
from imp_service.rpc.server import GrpcServer
from imp_service.serving.listening import checked_addresses
from imp_service.serving.security.access import Access
from imp_service.serving.server_state import ServerState
from support.key_effects.core_keys import Asked
from support.key_effects.effect import Effect, Observe
from support.servers.loop_thread import loop_thread


def server_argument(settings: tuple[str, ...]) -> dict[str, Any]:
    """Returns the arguments of `grpc.aio.server`."""
    asked: dict[str, Any] = {}

    def take(**arguments: Any) -> None:
        asked.update(arguments)
        raise Asked

    async def start() -> None:
        state = ServerState(read_settings(None, ['listen.grpc=["127.0.0.1:0"]', *settings]))
        try:
            addresses = checked_addresses(state.settings.listen, state.telemetry.log)
            await GrpcServer(state, Access(state)).start(addresses)
        except Asked:
            pass
        finally:
            state.close()

    with mock.patch.object(grpc.aio, "server", take):
        loop_thread().run(start())
    return asked


def option(name: str) -> Observe:
    """Observes one of the options; None if gRPC's default applies."""
    return lambda _, settings: dict(server_argument(settings)["options"]).get(f"grpc.{name}")


def compression(_: Path, settings: tuple[str, ...]) -> str:
    """Returns the compression of replies."""
    chosen = server_argument(settings)["compression"]
    return "none" if chosen is None else str(chosen.name)


SECONDS = 1000
AGED = ("connection.max_age=30s",)
WIRE_EFFECTS: dict[str, Effect] = {
    # gRPC accepts more, so that imp itself refuses requests beyond the limit.
    "limits.max_message_bytes": Effect("2MiB", option("max_receive_message_length"), 8 * 1024**2, 4 * 1024**2),
    "limits.max_metadata_bytes": Effect("32KiB", option("max_metadata_size"), 16 * 1024, 32 * 1024),
    "keepalive.time": Effect("7s", option("keepalive_time_ms"), 20 * SECONDS, 7 * SECONDS),
    "keepalive.timeout": Effect("4s", option("keepalive_timeout_ms"), 10 * SECONDS, 4 * SECONDS),
    "keepalive.min_ping_interval": Effect(
        "5s", option("http2.min_ping_interval_without_data_ms"), 9 * SECONDS, 4.5 * SECONDS
    ),
    "connection.max_age": Effect("90s", option("max_connection_age_ms"), None, 90 * SECONDS),
    "connection.max_age_grace": Effect(
        "2h", option("max_connection_age_grace_ms"), 3600 * SECONDS, 7200 * SECONDS, AGED
    ),
    "connection.max_connections": Effect("5", option("max_allowed_incoming_connections"), 512, 5),
    "connection.max_streams": Effect("6", option("max_concurrent_streams"), 512, 6),
    "connection.compression": Effect("gzip", compression, "none", "Gzip"),
}
