"""One call as a servicer sees it: its caller, its deadline, and how to send replies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc

from imp_service.rpc.replies.encoded import Reply
from imp_service.telemetry import CallRecord

# The longest time that a request takes from the client to here.
TRAVEL_SECONDS = 0.1


@dataclass(slots=True, eq=False)
class Call:
    """Made for each call before its servicer runs. Servicers raise errors; CallPath turns them into a status."""

    method: str  # "/imp.v1.InferenceService/Generate"
    context: grpc.aio.ServicerContext[Any, Any]
    instance_id: str
    request_id: str  # the server's, until the request names its own
    peer: str
    record: CallRecord
    # Runs the call. None after its end: the task refers to its exception, whose frames refer to the call.
    task: asyncio.Task[Any] | None
    tenant: str = ""
    priority: int = 0
    is_admitted: bool = False
    approximations: str = ""
    # Of the latest request message.
    n_request_bytes: int = 0
    # Output tokens that were sent; a drain reports them if it ends the call.
    n_sent_tokens: int = 0
    # The error that end() gave the call.
    ending: Exception | None = None
    # While initial metadata is being sent, no status may be sent: end() waits for it.
    _is_admitting: bool = False

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """Initial metadata of an admitted call. A refused call gets it as trailing metadata, so it can be retried."""
        pairs = (("imp-request-id", self.request_id), ("imp-instance-id", self.instance_id))
        return (*pairs, ("imp-approximations", self.approximations)) if self.approximations else pairs

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline; None without one."""
        remaining: float | None = self.context.time_remaining()
        return remaining

    @property
    def is_late(self) -> bool:
        """The caller's deadline has passed."""
        remaining = self.time_remaining()
        return remaining is not None and remaining <= 0

    @property
    def was_ended_by_deadline(self) -> bool:
        """Whether a cancelled call has reached its deadline. The client's timer began earlier, by the travel time."""
        remaining = self.time_remaining()
        return remaining is not None and remaining <= TRAVEL_SECONDS

    async def admit(self) -> None:
        """Sends initial metadata. From here on gRPC does not retry the call transparently."""
        if self.is_admitted:
            return
        self.is_admitted = self._is_admitting = True
        try:
            await self.context.send_initial_metadata(self.identity)
        except Exception as error:
            raise _gone() from error
        self._is_admitting = False
        if self.ending is not None:
            raise self.ending

    async def write(self, message: Reply) -> None:
        """Sends a message of a stream. Waits while the caller does not read."""
        if not self.is_admitted:
            await self.admit()
        try:
            await self.context.write(message.SerializeToString())
        except Exception as error:
            raise _gone() from error

    def end(self, error: Exception) -> None:
        """Cancels the servicer; the call then ends with this error. Later errors are ignored."""
        if self.ending is None:
            self.ending = error
            if not self._is_admitting and self.task is not None:
                self.task.cancel()


def _gone() -> asyncio.CancelledError:
    """For a call whose caller has gone: gRPC is about to cancel its task."""
    return asyncio.CancelledError("nothing can be sent")
