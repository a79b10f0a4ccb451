"""One call as a servicer sees it: who calls, for how long, and a way to answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc

from imp_service.rpc.replies.encoded import Reply
from imp_service.telemetry import CallRecord

# The longest that a request is thought to be under way.
TRAVEL_SECONDS = 0.1


@dataclass(slots=True, eq=False)
class Call:
    """Made for each call before its servicer runs. Servicers raise what goes wrong; they never see a status."""

    method: str  # "/imp.v1.InferenceService/Generate"
    context: grpc.aio.ServicerContext[Any, Any]
    instance_id: str
    request_id: str  # the server's, until the request names its own
    peer: str
    record: CallRecord
    # Runs the call; None once it has ended, since the task keeps what was raised, and the frames of that keep the call.
    task: asyncio.Task[Any] | None
    tenant: str = ""
    priority: int = 0
    is_admitted: bool = False
    approximations: str = ""
    # Of the request, or of the one that was read last.
    n_request_bytes: int = 0
    # Output tokens that were written: told where the call is ended before it ends.
    n_sent_tokens: int = 0
    # What the call was told to end with.
    ending: Exception | None = None
    # While headers are under way, no status may be sent: an end waits for them.
    _is_admitting: bool = False

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """Initial metadata of an admitted call, trailing of a refused one, so that a refusal stays retryable."""
        pairs = (("imp-request-id", self.request_id), ("imp-instance-id", self.instance_id))
        return (*pairs, ("imp-approximations", self.approximations)) if self.approximations else pairs

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline, None without one."""
        remaining: float | None = self.context.time_remaining()
        return remaining

    @property
    def is_late(self) -> bool:
        """The caller's deadline has passed."""
        remaining = self.time_remaining()
        return remaining is not None and remaining <= 0

    @property
    def was_ended_by_deadline(self) -> bool:
        """Of a cancelled call: the caller's own timer started before ours, by what the request took to come here."""
        remaining = self.time_remaining()
        return remaining is not None and remaining <= TRAVEL_SECONDS

    async def admit(self) -> None:
        """The call will be answered: what fails from here on is no transparent retry any more."""
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
        """Sends a message of a stream; waits for as long as the caller does not read."""
        if not self.is_admitted:
            await self.admit()
        try:
            await self.context.write(message.SerializeToString())
        except Exception as error:
            raise _gone() from error

    def end(self, error: Exception) -> None:
        """Interrupts the servicer where it waits; the call then ends with this error. The first one counts."""
        if self.ending is None:
            self.ending = error
            if not self._is_admitting and self.task is not None:
                self.task.cancel()


def _gone() -> asyncio.CancelledError:
    """Nothing can be sent any more: its caller has gone, and the task is about to be cancelled for that."""
    return asyncio.CancelledError("nothing can be sent")
