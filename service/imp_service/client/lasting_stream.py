"""A generation over all its calls: what came of it, and when to go on after a failure."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod

from ..pb.inference_pb2 import GenerateRequest, GenerateResponse, GenerationStarted
from .failure import CallFailure
from .patience import Patience, is_break
from .stream_order import StreamOrder

_log = logging.getLogger(__name__)


class LastingStream(ABC):
    """Knows no thread and no connection. A call begins with `request`; its messages go to take().

    After a failure, failed() says when to call again.
    """

    def __init__(self, request: GenerateRequest, patience: Patience) -> None:
        self._patience = patience
        self._order = StreamOrder.of(request)
        # How often another call went on.
        self.n_resumed = 0
        # Whether a call has started, and whether this one brought something new.
        self._has_started = self._is_fruitful = False
        self._was_stalled = False

    @property
    @abstractmethod
    def request(self) -> GenerateRequest:
        """What the next call asks for."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Of the next call."""
        return self._patience.metadata

    @property
    def time_left(self) -> float | None:
        """Seconds for the next call."""
        return self._patience.time_left

    def take(self, message: GenerateResponse) -> GenerateResponse | None:
        """The message; None for one that the caller has. Raises StreamBroken."""
        self._order.check(message)
        kind = message.WhichOneof("event")
        if kind == "started":
            return message if self._is_first(message.started) else None
        if not self._is_new(message):
            return None
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
        has_broken, is_refused = self._judge(failure, has_broken=is_break(failure) or stalls)
        if not (has_broken or is_refused):
            raise failure
        if self._order.is_whole:
            return None
        is_fruitless = has_broken and not self._is_fruitful
        wait = self._patience.wait(failure, is_fruitless=is_fruitless, is_patient=self._is_patient(failure))
        self._was_stalled = self._was_stalled or stalls
        self._is_fruitful = False
        self._begin_again(has_broken=has_broken)
        return wait

    def _is_first(self, started: GenerationStarted) -> bool:
        is_first, self._has_started = not self._has_started, True
        self._begun(started, is_first=is_first)
        if not is_first:
            self.n_resumed += 1
            why = "" if self._patience.first is None else str(self._patience.first)
            _log.debug("a stream goes on behind %d tokens; it broke: %s", self._n_told, why)
        return is_first

    @property
    @abstractmethod
    def _n_told(self) -> int:
        """The number of tokens that came."""

    @abstractmethod
    def _begun(self, started: GenerationStarted, *, is_first: bool) -> None:
        """A call has started. Raises StreamBroken if it does not go on with the stream."""

    @abstractmethod
    def _is_new(self, message: GenerateResponse) -> bool:
        """Records a message, unless it came before. Raises StreamBroken."""

    @abstractmethod
    def _judge(self, failure: CallFailure, *, has_broken: bool) -> tuple[bool, bool]:
        """Whether the call broke, so that another may go on; and whether a server refused it, or none was there."""

    @abstractmethod
    def _is_patient(self, failure: CallFailure) -> bool:
        """Whether it waits for a server; else servers refuse it as any other call."""

    @abstractmethod
    def _begin_again(self, *, has_broken: bool) -> None:
        """Another call will go on."""
