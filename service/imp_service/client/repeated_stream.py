"""One generation of a session over all its calls: it is made again by the same session, and what came is left out."""

from __future__ import annotations

import logging
import math
import time
from array import array
from collections.abc import Callable

from ..pb.inference_pb2 import GenerateRequest, GenerateResponse
from .failure import CallFailure
from .patience import Patience, is_break, is_refusal, is_soon
from .stream_order import StreamOrder, require
from .target import Target

# Reasons of a server that does not have the session: the client chose its name, which shows no server.
LOST = ("SESSION_NOT_FOUND", "SESSION_LOST")

_log = logging.getLogger(__name__)


class RepeatedStream:
    """Knows no thread and no connection. A call begins with `request`; its messages go to take().

    After a failure, failed() says when to call again. Where `needs_session` then holds, the session is to be opened
    again as it was before the generation, and renamed() told its name. Its server evaluates what came again; a token
    that differs ends the stream.
    """

    def __init__(
        self,
        request: GenerateRequest,
        target: Target,
        until: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.request = request
        self.is_of_session = True
        self.metadata = ()
        # How often it went on.
        self.n_resumed = 0
        self.needs_session = False
        self._patience = Patience(target.attempts, until, clock)
        self._order = StreamOrder.of(request)
        self._told = array("I")
        # Tokens of this call that had come before.
        self._n_again = 0
        # Whether something came in any call, and in this one; and whether this one brought something new.
        self._has_started = self._is_begun = self._is_fruitful = False
        self._was_stalled = False

    @property
    def time_left(self) -> float | None:
        """Seconds for the next call."""
        return self._patience.time_left

    def take(self, message: GenerateResponse) -> GenerateResponse | None:
        """The message; None for one that had come before. Raises StreamBroken."""
        self._order.check(message)
        kind = message.WhichOneof("event")
        if kind == "started":
            return self._started(message)
        if kind == "chunk" and self._came_before(message):
            return None
        if kind == "finished":
            require(self._n_again == len(self._told), "a session ended before the tokens that had come")
        if kind == "chunk":
            self._told.extend(message.chunk.token_ids)
            self._n_again = len(self._told)
        if kind is not None:
            self._is_fruitful = True
            self._patience.renew()
        return message

    def end(self) -> None:
        """Checks that nothing is missing, after a status OK."""
        self._order.end()

    def failed(self, failure: CallFailure) -> float | None:
        """Seconds after which to call again; None if all has come. Raises the failure that ends the stream."""
        stalls = failure.reason == "STALLED" and not self._was_stalled
        is_lost = failure.reason in LOST and not self._is_begun
        has_broken = is_break(failure) or stalls or is_lost
        if not (has_broken or (is_refusal(failure) and (self._has_started or is_soon(failure)))):
            raise failure
        if self._order.is_whole:
            return None
        self._patience.note(failure, is_fruitless=has_broken and not self._is_fruitful)
        wait = self._patience.wait(failure, is_patient=failure.code == "UNAVAILABLE" or self._has_run)
        self.needs_session = has_broken or self._is_begun
        self._was_stalled = self._was_stalled or stalls
        self._is_begun = self._is_fruitful = False
        self._order, self._n_again = StreamOrder.of(self.request), 0
        return wait

    def renamed(self, name: str) -> None:
        """The session is open under this name, as it was."""
        request = GenerateRequest()
        request.CopyFrom(self.request)
        request.session_id = name
        # So that what came is told apart from what is new, whatever came together.
        request.output.max_chunk_tokens = 1
        request.output.ClearField("max_chunk_delay")
        self.request, self.needs_session = request, False

    @property
    def _has_run(self) -> bool:
        return self._has_started or self._patience.n_fruitless > 0

    def _started(self, message: GenerateResponse) -> GenerateResponse | None:
        self._is_begun = True
        if not self._has_started:
            self._has_started = True
            return message
        self.n_resumed += 1
        why = "" if self._patience.first is None else str(self._patience.first)
        _log.debug("a generation of a session is made again, %d tokens had come; it broke: %s", len(self._told), why)
        return None

    def _came_before(self, message: GenerateResponse) -> bool:
        ids, first = message.chunk.token_ids, self._n_again
        if first == len(self._told):
            return False
        self._n_again += len(ids)
        require(self._told[first : self._n_again].tolist() == list(ids), f"token {first} is another one than before")
        return True


def repeated_stream(request: GenerateRequest, target: Target, seconds: float | None) -> RepeatedStream:
    """The stream of a session's generation whose calls have so much time together."""
    return RepeatedStream(request, target, math.inf if seconds is None else time.monotonic() + seconds)
