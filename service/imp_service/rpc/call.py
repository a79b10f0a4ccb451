"""One call as a servicer sees it: who calls, for how long, and a way to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message


@dataclass(slots=True)
class Call:
    """Made for each call before its servicer runs. Servicers raise what goes wrong; they never see a status."""

    method: str  # "/imp.v1.InferenceService/Generate"
    context: grpc.aio.ServicerContext[Any, Any]
    instance_id: str
    request_id: str  # the server's, until the request names its own
    tenant: str = ""
    priority: int = 0
    peer: str = ""
    is_admitted: bool = False
    approximations: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """Initial metadata of an admitted call, trailing of a refused one, so that a refusal stays retryable."""
        pairs = (("imp-request-id", self.request_id), ("imp-instance-id", self.instance_id))
        return (*pairs, ("imp-approximations", self.approximations)) if self.approximations else pairs

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline, None without one."""
        remaining: float | None = self.context.time_remaining()
        return remaining

    async def admit(self) -> None:
        """The call will be answered: what fails from here on is no transparent retry any more."""
        if not self.is_admitted:
            self.is_admitted = True
            await self.context.send_initial_metadata(self.identity)

    async def write(self, message: Message) -> None:
        """Sends a message of a stream; waits for as long as the caller does not read."""
        if not self.is_admitted:
            await self.admit()
        await self.context.write(message)
