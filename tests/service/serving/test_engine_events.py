"""The engine's events on an event loop: what one handler does wrong is not its neighbours' loss."""

from __future__ import annotations

import asyncio

import imp_service
from imp_service.core import DoneEvent, Event
from imp_service.serving.engine_events import EngineEvents


def test_a_handler_that_raises_holds_up_no_other() -> None:
    """Both answers come in one drain: nothing rings again for the second."""

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
            return await asyncio.wait_for(told, 30), reported
        finally:
            events.detach()

    with imp_service.load(None, "scheduler.max_running=2") as model:
        event, reported = asyncio.run(second_answer())
    assert isinstance(event, DoneEvent)
    assert reported == ["a bug"]
