"""grpc.health.v1: readiness as "" and each service of imp.v1, and liveness as "liveness"."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1.health_pb2 import DESCRIPTOR, HealthCheckRequest, HealthCheckResponse

from imp_service.rpc.call import GrpcCall
from imp_service.serving.lifecycle import Lifecycle

LIVENESS = "liveness"
# Over all listeners. Each watcher takes a task and a stream.
MAX_WATCHERS = 512

_SERVING = HealthCheckResponse.SERVING
_NOT_SERVING = HealthCheckResponse.NOT_SERVING
_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


class Health:
    """One servicer for all listeners. On the event loop's thread."""

    def __init__(self, lifecycle: Lifecycle, services: Iterable[str]) -> None:
        self._lifecycle = lifecycle
        self._services = ("", *services)
        self._is_alive = True
        self._n_watchers = 0
        # Done at the next change, and then replaced.
        self._changed: asyncio.Future[None] | None = None
        lifecycle.watch(lambda _: self._notify())

    def set_alive(self, is_alive: bool) -> None:
        """Sets liveness: false if the process should be restarted. Loading, load and drains do not change it."""
        if is_alive != self._is_alive:
            self._is_alive = is_alive
            self._notify()

    def statuses(self) -> dict[str, int]:
        """The current status of every name."""
        ready = _SERVING if self._lifecycle.is_ready else _NOT_SERVING
        return {**dict.fromkeys(self._services, ready), LIVENESS: _SERVING if self._is_alive else _NOT_SERVING}

    async def Check(self, request: HealthCheckRequest, call: GrpcCall) -> HealthCheckResponse:  # noqa: N802
        status = self.statuses().get(request.service)
        if status is None:
            await call.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return HealthCheckResponse(status=status)

    async def List(self, request: Message, call: GrpcCall) -> Message:  # noqa: N802
        # Only newer releases of grpcio-health-checking have this method, and its message.
        kind: Any = DESCRIPTOR.services_by_name["Health"].methods_by_name["List"].output_type
        reply: Any = GetMessageClass(kind)()
        for name, status in self.statuses().items():
            reply.statuses[name].status = status
        return cast(Message, reply)

    async def Watch(self, request: HealthCheckRequest, call: GrpcCall) -> None:  # noqa: N802
        if self._n_watchers >= MAX_WATCHERS:
            await call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHERS} calls already watch health")
        self._n_watchers += 1
        try:
            last = None
            while True:
                # A status that came and went while the last one was being sent is skipped.
                status = self.statuses().get(request.service, _UNKNOWN)
                if status != last:
                    last = status
                    await call.write(HealthCheckResponse(status=status))
                else:
                    await self._wait()
        finally:
            self._n_watchers -= 1

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def _notify(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)
