"""One call as its handler sees it, for every transport: its caller, its deadline, and how it ends."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from imp_service.tables import LIMITS
from imp_service.telemetry import CallRecord

# The longest time that a request takes from the client to this server.
TRAVEL_SECONDS = 0.1
# The most ignored fields that a reply names, and the most bytes of each.
MAX_NAMED, MAX_NAMED_BYTES = 16, 64


@dataclass(slots=True, eq=False, kw_only=True)
class Call(ABC):
    """Made for each call before its handler runs. Handlers raise errors; CallPath turns them into failures.

    Each transport has a subclass, which also sends replies.
    """

    method: str  # "/imp.v1.InferenceService/Generate"
    instance_id: str
    request_id: str  # the server's, until the request names its own
    peer: str
    record: CallRecord
    # Runs the call. None after its end: the task refers to its exception, whose frames refer to the call.
    task: asyncio.Task[Any] | None
    tenant: str = ""
    priority: int = 0
    reply_has_begun: bool = False
    approximations: str = ""
    # Paths of what was ignored of the request.
    ignored: list[str] = field(default_factory=list)
    # The size of the latest request message.
    n_request_bytes: int = 0
    # Output tokens that were sent; a drain reports them if it ends the call.
    n_sent_tokens: int = 0
    # The error that end() gave the call.
    ending: Exception | None = None
    # Its caller goes on with another server: a drain need not wait for it.
    goes_on_elsewhere: bool = False
    # Its caller wants to know at once that this server has it.
    acknowledge: bool = False
    # Other running requests may have the same id.
    shares_id: bool = False
    # By which the caller resumes the answer, if that is not the request's id.
    answer_name: str = ""
    # The code of a call that its handler itself has ended, without a reason of the error table.
    own_code: str = ""
    # While the identity is being sent, no failure may be sent: end() waits for it.
    _is_beginning: bool = False

    @property
    def payer(self) -> str:
        """Who shares the engine with others: the tenant, or without a name the connection. Names have no spaces."""
        return self.tenant or f" {self.peer}"[: LIMITS.tenant_bytes]

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """Metadata in the head of every reply, including that of a refused call, so it can be retried."""
        pairs = (("imp-request-id", self.request_id), ("imp-instance-id", self.instance_id))
        lossy = (("imp-approximations", self.approximations),) if self.approximations else ()
        ignored = ", ".join(map(_quoted, self.ignored[:MAX_NAMED]))
        return (*pairs, *lossy, *((("imp-ignored", ignored),) if ignored else ()))

    def ignore(self, paths: Iterable[str]) -> None:
        """Names fields of the request that have no effect. Before the head of the reply is sent."""
        self.ignored += [path for path in paths if path not in self.ignored]

    def approximate(self, feature: str) -> None:
        """Names a lossy feature that takes part in the reply. Before the head of the reply is sent."""
        named = self.approximations.split(",") if self.approximations else []
        if feature not in named:
            self.approximations = ",".join([feature, *named])

    @abstractmethod
    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline; None without one."""

    @abstractmethod
    async def _send_identity(self) -> None:
        """Sends the head of the reply. The call can no longer be refused then."""

    @property
    def is_late(self) -> bool:
        """Whether the caller's deadline has passed."""
        remaining = self.time_remaining()
        return remaining is not None and remaining <= 0

    @property
    def was_ended_by_deadline(self) -> bool:
        """Whether a cancelled call has reached its deadline. The client's timer began earlier, by the travel time."""
        remaining = self.time_remaining()
        return remaining is not None and remaining <= TRAVEL_SECONDS

    async def begin_reply(self) -> None:
        """Sends the head of the reply, unless it was sent."""
        if self.reply_has_begun:
            return
        self.reply_has_begun = self._is_beginning = True
        try:
            await self._send_identity()
        except Exception as error:
            raise caller_has_gone() from error
        self._is_beginning = False
        if self.ending is not None:
            raise self.ending

    def end(self, error: Exception) -> None:
        """Cancels the handler; the call then ends with this error. Later errors are ignored."""
        if self.ending is None:
            self.ending = error
            if not self._is_beginning and self.task is not None:
                self.task.cancel()


def _quoted(path: str) -> str:
    """A path as a JSON string in ASCII, shortened: callers choose the names of members."""
    text = json.dumps(path)
    return text if len(text) <= MAX_NAMED_BYTES else f"{text[:MAX_NAMED_BYTES]}..."


def caller_has_gone() -> asyncio.CancelledError:
    """For a call whose caller has gone: the transport is about to cancel its task."""
    return asyncio.CancelledError("nothing can be sent")
