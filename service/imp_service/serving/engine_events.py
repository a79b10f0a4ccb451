"""Brings the engine's events into the event loop, and sends commands that the engine answers with one event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from imp_service.core import EngineClient, Error, Event, FailedEvent, make_error

Submit = Callable[[int], None]


def begin_command(client: EngineClient, submit: Submit, on_answer: Callable[[Event], None]) -> None:
    """Commands what `submit(ticket)` does, and passes its one answer on, whoever still waits for it.

    Raises what the engine refuses at its door; then there is no answer.
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
    """The answer to a command, on the event loop. Raises its failure."""
    told: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

    def tell(event: Event) -> None:
        if not told.done():
            told.set_result(event)

    begin_command(client, submit, tell)
    event = await told
    if (failure := failure_in(event)) is not None:
        raise failure
    return event


def failure_in(event: Event) -> Error | None:
    """What went wrong with the command that this answers, as an exception."""
    return make_error(event.reason, event.message, event.details) if isinstance(event, FailedEvent) else None


class EngineEvents:
    """Attached for as long as the client is open."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, client: EngineClient, on_fault: Callable[[Error], None]
    ) -> None:
        """`on_fault` is called once, where the device breaks."""
        self._loop = loop
        self._client = client
        self._on_fault = on_fault
        self._has_told_fault = False
        self._descriptor = client.fileno()
        loop.add_reader(self._descriptor, self._dispatch)

    def _dispatch(self) -> None:
        if self._client.is_closed:
            return
        try:
            self._client.dispatch()
        except Exception:
            # One stream's bug; the events behind it are others', and the descriptor does not ring for them again.
            self._loop.call_soon(self._dispatch)
            raise
        if self._client.fault is not None and not self._has_told_fault:
            self._has_told_fault = True
            self._on_fault(self._client.fault)

    def detach(self) -> None:
        """Before the client is closed: its descriptor goes with it."""
        self._loop.remove_reader(self._descriptor)
