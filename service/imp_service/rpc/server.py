"""The gRPC servers of one process: the data listeners, made of the host's settings and the services."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from imp_service.rpc.registration import CallPath
from imp_service.rpc.services import SERVICES, make_servicers
from imp_service.serving.host import Host
from imp_service.serving.lifecycle import Phase


class Server:
    """Listens from start() to stop(). On the event loop's thread."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._server = grpc.aio.server(options=self._options())
        self._health = health_aio.HealthServicer()
        self.addresses: list[str] = []
        path = CallPath(host)
        for service, servicer in make_servicers(host).items():
            path.register(self._server, service, servicer)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if host.settings.listen.reflection:
            names = [service.full_name for service in SERVICES]
            reflection.enable_server_reflection(
                [*names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME],
                self._server,
            )

    async def start(self) -> None:
        """Binds and listens; `addresses` then has the ports that were chosen."""
        for address in self._host.settings.listen.grpc:
            port = self._server.add_insecure_port(address)
            is_unix = address.startswith("unix:")
            self.addresses.append(address if is_unix else f"{address.rpartition(':')[0]}:{port}")
        await self._server.start()
        await self.tell_health()

    async def tell_health(self) -> None:
        """Publishes whether new work should be sent here."""
        ready = self._host.lifecycle.phase is Phase.SERVING
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *(service.full_name for service in SERVICES)):
            await self._health.set(name, status)
        await self._health.set("liveness", health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_seconds: float) -> None:
        """Takes no new call; those under way have `grace_seconds` to end."""
        await self._server.stop(grace_seconds)

    def _options(self) -> list[tuple[str, Any]]:
        limits = self._host.settings.limits
        return [
            ("grpc.max_receive_message_length", limits.max_message_bytes),
            ("grpc.max_send_message_length", limits.max_message_bytes),
            ("grpc.max_metadata_size", limits.max_metadata_bytes),
            ("grpc.so_reuseport", 0),
        ]
