"""Commands in, events out: one drain of the engine serves every stream, each told by its ticket."""

from __future__ import annotations

import itertools
import select
import threading
import time
from collections.abc import Callable

from imp_service import _core

Event = _core.StartedEvent | _core.TokenEvent | _core.FinishedEvent | _core.FailedEvent | _core.DoneEvent
Handler = Callable[[Event], None]


class EngineClient:
    """Hands out ids and tickets, and passes each event to the handler of its ticket.

    Any thread may submit and wait. One waiting thread at a time drains for all; handlers run on it, briefly.
    """

    def __init__(self, engine: _core.Engine) -> None:
        self._engine: _core.Engine | None = engine
        self._sequences = itertools.count(1)
        self._tickets = itertools.count(1)
        self._handlers: dict[int, Handler] = {}
        self._changed = threading.Condition()
        self._is_polling = False
        self._readable = select.poll()
        self._readable.register(engine.event_descriptor(), select.POLLIN)

    @property
    def is_closed(self) -> bool:
        """close() was called: nothing runs any more."""
        return self._engine is None

    @property
    def engine(self) -> _core.Engine:
        """The engine, until close()."""
        if self._engine is None:
            raise RuntimeError("the model is closed")
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

    def fileno(self) -> int:
        """Readable while events wait; for a loop that calls dispatch() itself."""
        return self.engine.event_descriptor()

    def dispatch(self) -> None:
        """Passes every waiting event on. Never waits."""
        for event in self.engine.drain_events():
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
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self._is_polling = True
            try:
                if self._readable.poll(None if deadline is None else 1000 * (_remaining(deadline) or 0.0)):
                    self.dispatch()
            finally:
                with self._changed:
                    self._is_polling = False
                    self._changed.notify_all()

    def close(self) -> None:
        """Lets the engine go: its thread ends with the step that it is in. Nothing may wait here meanwhile."""
        self._handlers.clear()
        self._engine = None


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
