"""Asks the engine for what it answers once: a flush, a profile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from imp_service.core import EngineClient, Event, FailedEvent, make_error


async def engine_answer(client: EngineClient, submit: Callable[[int], None]) -> Event:
    """The answer to what `submit(ticket)` commands, on the event loop. Raises its failure."""
    told: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

    def take(event: Event) -> None:
        if not told.done():
            told.set_result(event)

    ticket = client.expect(take)
    try:
        submit(ticket)
        event = await told
    finally:
        client.forget(ticket)
    if isinstance(event, FailedEvent):
        raise make_error(event.reason, event.message, event.details)
    return event
