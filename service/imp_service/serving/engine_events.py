"""Brings the engine's events into the event loop, and sends commands that the engine answers with one event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from imp_service.core import EngineClient, Error, Event, FailedEvent, make_error

Submit = Callable[[int], None]
# The events that one step of the event loop handles, so that it does not hold up other calls.
MOST_EVENTS = 256


def begin_command(client: EngineClient, submit: Submit, on_answer: Callable[[Event], None]) -> None:
    """Submits a command with `submit(ticket)`; `on_answer` gets its one event, even if the caller has left.

    Raises if the engine refuses the command; then there is no event.
    """

    def take(event: Event) -> None:
        client.forget(ticket)
        on_answer(event)

    ticket = client.expect(take)
    try:
        submit(ticket)
    except BaseException:
        client.forget(ticket)
        raise


async def engine_answer(client: EngineClient, submit: Submit) -> Event:
    """The event that answers a command. Raises the command's failure."""
    answer: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

    def on_answer(event: Event) -> None:
        if not answer.done():
            answer.set_result(event)

    begin_command(client, submit, on_answer)
    event = await answer
    if (failure := failure_in(event)) is not None:
        raise failure
    return event


def failure_in(event: Event) -> Error | None:
    """The failure that an event reports, as an exception; None if the command succeeded."""
    return make_error(event.reason, event.message, event.details) if isinstance(event, FailedEvent) else None


class EngineEvents:
    """Watches the engine's descriptor until detach(), and passes each event to its handler on the event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, client: EngineClient, on_fault: Callable[[Error], None]
    ) -> None:
        """`on_fault` is called once if the device fails."""
        self._loop = loop
        self._client = client
        self._on_fault = on_fault
        self._has_reported_fault = False
        self._descriptor = client.fileno()
        loop.add_reader(self._descriptor, self._dispatch)

    def _dispatch(self) -> None:
        if self._client.is_closed:
            return
        has_more = True  # also if a handler raises, which is a bug of one stream: others wait behind it
        try:
            has_more = self._client.dispatch(MOST_EVENTS)
        finally:
            if has_more:  # the descriptor is not signalled again for events that were read
                self._loop.call_soon(self._dispatch)
        if self._client.fault is not None and not self._has_reported_fault:
            self._has_reported_fault = True
            self._on_fault(self._client.fault)

    def detach(self) -> None:
        """Call it before the client is closed, which closes the descriptor."""
        self._loop.remove_reader(self._descriptor)
