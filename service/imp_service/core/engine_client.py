"""Commands in, events out: one drain of the engine serves every stream, each told by its ticket."""

from __future__ import annotations

import itertools
import select
import threading
from collections.abc import Callable

from imp_service import _core

Event = _core.StartedEvent | _core.TokenEvent | _core.FinishedEvent | _core.FailedEvent | _core.DoneEvent
Handler = Callable[[Event], None]


class EngineClient:
    """Hands out ids and tickets, and passes each event to the handler of its ticket.

    Any thread may submit and wait. One waiting thread at a time drains for all; handlers run on it, briefly.
    """

    def __init__(self, engine: _core.Engine) -> None:
        self.engine = engine
        self._sequences = itertools.count(1)
        self._tickets = itertools.count(1)
        self._handlers: dict[int, Handler] = {}
        self._turn = threading.Lock()

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

    def wait(self, done: Callable[[], bool]) -> None:
        """Drains until `done` holds."""
        while not done():
            with self._turn:
                if done():
                    return
                select.select([self.engine.event_descriptor()], [], [])
                self.dispatch()
