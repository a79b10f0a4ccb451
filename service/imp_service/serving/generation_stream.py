"""A generation as a reader that awaits it sees it: unread tokens are merged, a slow reader pauses its own sequences."""

from __future__ import annotations

import asyncio

from imp_service.core import EngineClient, Event
from imp_service.generation.plan import GenerationPlan
from imp_service.generation.replies import Reply
from imp_service.generation.run import GenerationRun


class GenerationStream:
    """On the event loop's thread: events are folded as they come, whatever the reader does."""

    def __init__(self, client: EngineClient, plan: GenerationPlan) -> None:
        """Submits; raises what the engine refuses at its door."""
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._run = GenerationRun(client, plan, self._on_event)
        self._limit = (
            None
            if plan.time_limit is None
            else self._loop.call_later(plan.time_limit, lambda: self._run.end("time_limit"))
        )

    async def next_reply(self) -> Reply | None:
        """The next reply; None after the last. Raises the failure that ended it."""
        while True:
            self._run.absorb()
            reply = self._run.next_reply()
            if reply is not None:
                return reply
            if not self._run.is_open:
                if self._run.failure is not None:
                    raise self._run.failure
                return None
            self._waiter = self._loop.create_future()
            await self._waiter

    async def leave(self) -> None:
        """Cancels what still runs; a session is left with what was taken."""
        if self._limit is not None:
            self._limit.cancel()
        if self._run.begin_leaving():
            while not self._run.has_settled():
                self._waiter = self._loop.create_future()
                await self._waiter

    def _on_event(self, _: Event) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
