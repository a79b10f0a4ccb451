"""One Generate stream over all the calls that it takes: what came of it, and when to go on after a failure."""

from __future__ import annotations

import logging
import math
import time
from array import array
from collections.abc import Callable
from typing import Protocol

from ..pb.inference_pb2 import GenerateRequest, GenerateResponse, Origin, ResumedSequence
from .failure import CallFailure
from .patience import Patience, is_break, is_refusal, is_soon
from .stream_order import StreamOrder, require
from .target import RESUMES, Target

_log = logging.getLogger(__name__)


class _Connection(Protocol):
    target: Target
    # A server has answered there.
    has_answered: bool

    def seconds(self, timeout: float | None) -> float | None: ...


class JoinedStream:
    """Knows no thread and no connection. A call begins with `request`; its messages go to take().

    After a failure, failed() says when to call again. `until` is when the caller's time is over, by the clock.
    """

    def __init__(
        self,
        request: GenerateRequest,
        target: Target,
        until: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_known: bool = False,
    ) -> None:
        """`is_known`: a server has answered there before, so one that is not there is one that comes back."""
        self._request = request
        self._is_known = is_known
        # A session keeps what was generated, so its generation cannot be run again.
        self.is_of_session = request.WhichOneof("prompt") == "session_id"
        self._repeats = target.resumes
        self._resumes = target.resumes and not self.is_of_session
        self.metadata = RESUMES if self._resumes and target.has_several else ()
        self._patience = Patience(target.attempts, until, clock)
        self._order = StreamOrder.of(request)
        given = request.resume.sequences or [ResumedSequence()] * self._order.n_sequences
        self._told = [array("I", each.token_ids) for each in given]
        self._has_started = False
        # What a call that resumes this stream returns; None: the stream cannot be resumed.
        self._origin: Origin | None = None
        # The id that the server chose, or the caller: the calls that go on keep it.
        self._request_id = ""
        self._was_stalled = False
        # How often it was resumed.
        self.n_resumed = 0
        # Whether this call brought something new.
        self._is_fruitful = False

    @property
    def request(self) -> GenerateRequest:
        """What the next call asks for: all of it, or what is missing."""
        if self._origin is None:
            return self._request
        request = GenerateRequest()
        request.CopyFrom(self._request)
        request.ClearField("resume")
        request.request_id = self._request_id
        request.resume.origin.CopyFrom(self._origin)
        for index, token_ids in enumerate(self._told):
            request.resume.sequences.add(token_ids=token_ids, finished=not self._order.is_open(index))
        return request

    @property
    def time_left(self) -> float | None:
        """Seconds for the next call."""
        return self._patience.time_left

    def take(self, message: GenerateResponse) -> GenerateResponse | None:
        """The message; None for the start of a call that goes on. Raises StreamBroken."""
        self._order.check(message)
        kind = message.WhichOneof("event")
        if kind == "started":
            return self._started(message)
        if kind == "chunk":
            self._told[message.chunk.index].extend(message.chunk.token_ids)
        if kind is not None:
            self._is_fruitful = True
            self._patience.renew()
        return message

    def end(self) -> None:
        """Checks that nothing is missing, after a status OK."""
        self._order.end()

    def failed(self, failure: CallFailure) -> float | None:
        """Seconds after which to call again; None if all has come. Raises the failure that ends the stream."""
        has_broken, is_refused = self._judge(failure)
        if not (has_broken or is_refused):
            raise failure
        if self._order.is_whole:
            return None
        self._patience.note(failure, is_fruitless=has_broken and not self._is_fruitful)
        wait = self._patience.wait(failure, is_patient=self._is_patient(failure))
        self._was_stalled = self._was_stalled or failure.reason == "STALLED"
        self._is_fruitful = False
        self._order.begin_again()
        return wait

    def _started(self, message: GenerateResponse) -> GenerateResponse | None:
        started = message.started
        if not self._has_started:
            self._has_started = True
            self._origin = started.origin if self._resumes and started.HasField("origin") else None
            self._request_id = started.request_id
            return message
        require(started.origin == self._origin, "another stream came than the one to go on with")
        self.n_resumed += 1
        why = "" if self._patience.first is None else str(self._patience.first)
        _log.debug("a stream goes on behind %d tokens; it broke: %s", started.resumed_tokens, why)
        return None

    def _judge(self, failure: CallFailure) -> tuple[bool, bool]:
        """Whether the call broke, so that another may go on; and whether a server refused it, or none was there."""
        stalls = failure.reason == "STALLED" and not self._was_stalled
        has_broken, is_refused = is_break(failure) or stalls, is_refusal(failure)
        if self._has_started:
            return (has_broken, is_refused) if self._origin is not None else (False, False)
        # The server has not noticed yet that an earlier call is gone.
        is_in_use = self._patience.first is not None and failure.reason == "REQUEST_ID_IN_USE"
        return self._resumes and has_broken, self._repeats and is_soon(failure) and (is_refused or is_in_use)

    def _is_patient(self, failure: CallFailure) -> bool:
        """Whether it waits for a server; else servers refuse it as any other call."""
        has_run = self._has_started or self._patience.n_fruitless > 0
        return has_run or (self._is_known and (failure.is_unreachable or failure.reason == "LOADING"))


def joined_stream(request: GenerateRequest, connection: _Connection, timeout: float | None) -> JoinedStream:
    """The stream of a generation whose calls have this time together, or that of the connection."""
    seconds = connection.seconds(timeout)
    until = math.inf if seconds is None else time.monotonic() + seconds
    return JoinedStream(request, connection.target, until, is_known=connection.has_answered)
