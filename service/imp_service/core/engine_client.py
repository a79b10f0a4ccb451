"""Sends commands to the engine and passes its events to handlers. A command has a ticket, which its events carry."""

from __future__ import annotations

import itertools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from imp_service import _core
from imp_service.core.errors import Error, make_error

# The ticket of events that answer no command: the FailedEvent of a session that the engine had to close.
UNASKED = 0

Event = (
    _core.StartedEvent
    | _core.TokenEvent
    | _core.DraftedEvent
    | _core.FinishedEvent
    | _core.FailedEvent
    | _core.DoneEvent
    | _core.ProfileEvent
)
Handler = Callable[[Event], None]
DEVICE_FAULT = "DEVICE_FAULT"


class EngineClient:
    """Issues ids and tickets, and passes each event to the handler of its ticket.

    Any thread may submit and wait. One waiting thread at a time reads the events of all; handlers run on it, briefly.
    """

    def __init__(self, engine: _core.Engine) -> None:
        self._engine: _core.Engine | None = engine
        self._sequences = itertools.count(1)
        self._tickets = itertools.count(1)
        self._handlers: dict[int, Handler] = {}
        self._drained: deque[Event] = deque()
        self._changed = threading.Condition()
        self._is_polling = False
        self._readable = select.poll()
        self._readable.register(engine.event_descriptor(), select.POLLIN)
        # Becomes readable when the client closes, so that a polling thread returns.
        self._closing = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_closing = False
        # The first fault of the device. Results of the device are not valid after it.
        self.fault: Error | None = None
        self._readable.register(self._closing, select.POLLIN)

    @property
    def is_closed(self) -> bool:
        """close() was called, and nothing runs any more."""
        return self._engine is None

    @property
    def engine(self) -> _core.Engine:
        """The engine, until close()."""
        if self._engine is None:
            raise make_error("CANCELLED", "the model is closed")
        return self._engine

    def next_sequence(self) -> int:
        """A new sequence id."""
        return next(self._sequences)

    def expect(self, handler: Handler) -> int:
        """A new ticket. Its events go to `handler` until forget()."""
        ticket = next(self._tickets)
        self._handlers[ticket] = handler
        return ticket

    def forget(self, ticket: int) -> None:
        """Ignores later events of a ticket."""
        self._handlers.pop(ticket, None)

    def set_unrequested_handler(self, handler: Handler) -> None:
        """Sets the one handler of events that answer no command, and of commands without a ticket of their own."""
        self._handlers[UNASKED] = handler

    @contextmanager
    def together(self) -> Iterator[None]:
        """The engine takes commands submitted within the `with` block at once: they begin in the same step."""
        engine = self.engine
        engine.hold()
        try:
            yield
        finally:
            engine.release()

    def fileno(self) -> int:
        """A descriptor that is readable while events wait, for an event loop that calls dispatch() itself."""
        return self.engine.event_descriptor()

    def dispatch(self, most: int | None = None) -> bool:
        """Passes waiting events to their handlers, at most `most` of them. True if events are left. Never waits."""
        # Kept, so that an exception in between loses no event of another stream.
        self._drained.extend(self.engine.drain_events())
        n_passed = 0
        while self._drained and (most is None or n_passed < most):
            n_passed += 1
            event = self._drained.popleft()
            if isinstance(event, _core.FailedEvent) and event.reason == DEVICE_FAULT and self.fault is None:
                self.fault = make_error(event.reason, event.message, event.details)
            handler = self._handlers.get(event.ticket)
            if handler is not None:
                handler(event)
        return bool(self._drained)

    def wait(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Passes events on until done() is true. False if `timeout` seconds pass first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._changed:
                # One thread polls for all. The others check done() after each of its reads.
                while self._is_polling and not done():
                    if not self._changed.wait(_remaining(deadline)):
                        return done()
                if done():
                    return True
                if self._is_closing:
                    raise make_error("CANCELLED", "the model was closed")
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self._is_polling = True
            try:
                remaining_ms = None if deadline is None else 1000 * (_remaining(deadline) or 0.0)
                ready = self._drained or self._readable.poll(remaining_ms)
                if ready and not self._is_closing:
                    self.dispatch()
            finally:
                with self._changed:
                    self._is_polling = False
                    self._changed.notify_all()

    def close(self) -> None:
        """Releases the engine, whose thread ends after its current step. Threads that wait get CANCELLED."""
        with self._changed:
            if self._is_closing:
                return
            self._is_closing = True
            os.eventfd_write(self._closing, 1)
            self._changed.wait_for(lambda: not self._is_polling)
            self._engine = None
            self._handlers.clear()
            self._changed.notify_all()
        os.close(self._closing)


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
