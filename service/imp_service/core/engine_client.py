"""Commands in, events out: one drain of the engine serves every stream, each told by its ticket."""

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

# What the engine tells of itself, in answer to no command: FailedEvent of a session that it had to close.
UNASKED = 0

Event = (
    _core.StartedEvent
    | _core.TokenEvent
    | _core.FinishedEvent
    | _core.FailedEvent
    | _core.DoneEvent
    | _core.ProfileEvent
)
Handler = Callable[[Event], None]
DEVICE_FAULT = "DEVICE_FAULT"


class EngineClient:
    """Hands out ids and tickets, and passes each event to the handler of its ticket.

    Any thread may submit and wait. One waiting thread at a time drains for all; handlers run on it, briefly.
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
        # Readable once the client is closing, so that whoever polls comes back.
        self._closing = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_closing = False
        # What a broken device said first: nothing that runs on it can be trusted from then on.
        self.fault: Error | None = None
        self._readable.register(self._closing, select.POLLIN)

    @property
    def is_closed(self) -> bool:
        """close() was called: nothing runs any more."""
        return self._engine is None

    @property
    def engine(self) -> _core.Engine:
        """The engine, until close()."""
        if self._engine is None:
            raise make_error("CANCELLED", "the model is closed")
        return self._engine

    def next_sequence(self) -> int:
        """A sequence id that was never used."""
        return next(self._sequences)

    def expect(self, handler: Handler) -> int:
        """A new ticket whose events go to `handler` until forget()."""
        ticket = next(self._tickets)
        self._handlers[ticket] = handler
        return ticket

    def forget(self, ticket: int) -> None:
        """Drops later events of a ticket."""
        self._handlers.pop(ticket, None)

    def set_unrequested_handler(self, handler: Handler) -> None:
        """Passes on what the engine tells of itself, and the answers that nobody waits for. One handler at a time."""
        self._handlers[UNASKED] = handler

    @contextmanager
    def together(self) -> Iterator[None]:
        """Commands submitted within are taken at once: what they begin joins the same step."""
        engine = self.engine
        engine.hold()
        try:
            yield
        finally:
            engine.let_go()

    def fileno(self) -> int:
        """Readable while events wait; for a loop that calls dispatch() itself."""
        return self.engine.event_descriptor()

    def dispatch(self) -> None:
        """Passes every waiting event on. Never waits."""
        # Kept, so that an interrupt in between loses no event of another stream.
        self._drained.extend(self.engine.drain_events())
        while self._drained:
            event = self._drained.popleft()
            if isinstance(event, _core.FailedEvent) and event.reason == DEVICE_FAULT and self.fault is None:
                self.fault = make_error(event.reason, event.message, event.details)
            handler = self._handlers.get(event.ticket)
            if handler is not None:
                handler(event)

    def wait(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Drains until `done` holds; False where `timeout` seconds passed first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._changed:
                # Whoever polls serves all; the others look again after each drain, since it may have been for them.
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
        """Lets the engine go: its thread ends with the step that it is in. Whoever waits gets CANCELLED."""
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
