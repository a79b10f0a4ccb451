"""Commands that the engine answers once: flushes, profiles, forks, truncations."""

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
