"""grpc.health.v1 of one server: readiness under "" and each service of imp.v1, and whether the process should live."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1.health_pb2 import DESCRIPTOR, HealthCheckRequest, HealthCheckResponse

from imp_service.rpc.call import Call
from imp_service.serving.lifecycle import Lifecycle

LIVENESS = "liveness"
# All listeners together. A watcher costs a task and a stream, and nobody needs many.
MAX_WATCHERS = 512

_SERVING = HealthCheckResponse.SERVING
_NOT_SERVING = HealthCheckResponse.NOT_SERVING
_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


class Health:
    """The servicer of every listener. On the event loop's thread."""

    def __init__(self, lifecycle: Lifecycle, services: Iterable[str]) -> None:
        self._lifecycle = lifecycle
        self._services = ("", *services)
        self._is_alive = True
        self._n_watchers = 0
        # Replaced at each change; whoever waits holds the one that was current.
        self._changed: asyncio.Future[None] | None = None
        lifecycle.watch(lambda _: self._tell())

    def set_alive(self, is_alive: bool) -> None:
        """Whether a supervisor should leave the process alone: not of loading, load, or a drain."""
        if is_alive != self._is_alive:
            self._is_alive = is_alive
            self._tell()

    def statuses(self) -> dict[str, int]:
        """Every name with its status now."""
        ready = _SERVING if self._lifecycle.is_ready else _NOT_SERVING
        return {**dict.fromkeys(self._services, ready), LIVENESS: _SERVING if self._is_alive else _NOT_SERVING}

    async def Check(self, request: HealthCheckRequest, call: Call) -> HealthCheckResponse:  # noqa: N802
        status = self.statuses().get(request.service)
        if status is None:
            await call.context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return HealthCheckResponse(status=status)

    async def List(self, request: Message, call: Call) -> Message:  # noqa: N802
        # A method of the newer releases of grpcio-health-checking, which bring its message; the older ones never call.
        kind: Any = DESCRIPTOR.services_by_name["Health"].methods_by_name["List"].output_type
        reply: Any = GetMessageClass(kind)()
        for name, status in self.statuses().items():
            reply.statuses[name].status = status
        return cast(Message, reply)

    async def Watch(self, request: HealthCheckRequest, call: Call) -> None:  # noqa: N802
        if self._n_watchers >= MAX_WATCHERS:
            await call.context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHERS} watch already")
        self._n_watchers += 1
        try:
            told = None
            while True:
                # Statuses that came and went while the last one was being sent are not told.
                status = self.statuses().get(request.service, _UNKNOWN)
                if status != told:
                    told = status
                    await call.write(HealthCheckResponse(status=status))
                else:
                    await self._wait()
        finally:
            self._n_watchers -= 1

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def _tell(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)
