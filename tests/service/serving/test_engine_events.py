"""The engine's events on an event loop: an error in one handler does not affect the others."""

from __future__ import annotations

import asyncio
import itertools
import select

import pytest

import imp_service
from imp_service.core import DoneEvent, Event
from imp_service.serving.engine_events import MOST_EVENTS, EngineEvents
from support.run.patience import HANGS_AFTER


def test_a_handler_that_raises_holds_up_no_other() -> None:
    """Both answers come in one drain: no second wake-up comes for the second."""

    async def second_answer() -> tuple[Event, list[str]]:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Event] = loop.create_future()
        reported: list[str] = []
        loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
        events = EngineEvents(loop, model._runtime.client, lambda _: None)

        def fail(_: Event) -> None:
            raise ValueError("a bug")

        try:
            with model._runtime.client.together():
                model._runtime.client.engine.flush(model._runtime.client.expect(fail))
                model._runtime.client.engine.flush(model._runtime.client.expect(told.set_result))
            return await asyncio.wait_for(told, HANGS_AFTER), reported
        finally:
            events.detach()

    with imp_service.load(None, "scheduler.max_running=2") as model:
        event, reported = asyncio.run(second_answer())
    assert isinstance(event, DoneEvent)
    assert reported == ["a bug"]


@pytest.mark.long
def test_rpc_30_many_events_do_not_hold_the_loop() -> None:
    """Events that come at once are handled in several steps of the loop, and none is lost."""
    n_events = 4 * MOST_EVENTS + 1

    async def answers_at_each_step() -> list[int]:
        loop = asyncio.get_running_loop()
        n_answers = 0
        at_each_step = [0]

        def count(_: Event) -> None:
            nonlocal n_answers
            n_answers += 1

        client = model._runtime.client
        last: asyncio.Future[Event] = loop.create_future()
        # The engine answers all of them at once.
        with client.together():
            for _ in range(n_events):
                client.engine.flush(client.expect(count))
            client.engine.flush(client.expect(last.set_result))
        select.select([client.fileno()], [], [])
        events = EngineEvents(loop, client, lambda _: None)
        try:
            async with asyncio.timeout(HANGS_AFTER):
                while not last.done():
                    await asyncio.sleep(0)
                    at_each_step.append(n_answers)
        finally:
            events.detach()
        assert n_answers == n_events
        return at_each_step

    with imp_service.load(None, "scheduler.max_running=2") as model:
        counts = asyncio.run(answers_at_each_step())
    assert max(later - earlier for earlier, later in itertools.pairwise(counts)) == MOST_EVENTS
