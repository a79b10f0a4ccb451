"""Runs the generations of one call, one for each prompt, and merges their replies as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from imp_service.api.options import GenerationRequest
from imp_service.api.replies import Reply
from imp_service.core import Error
from imp_service.generation.limits import ASK_AGAIN
from imp_service.serving.generation_stream import GenerationStream
from imp_service.serving.refusal import Refusal

# The number of a prompt, and a reply of its generation.
Numbered = tuple[int, Reply]
Start = Callable[[int, GenerationRequest], AbstractAsyncContextManager[GenerationStream]]


@asynccontextmanager
async def replies_of(
    requests: Sequence[GenerationRequest], start: Start, max_waiting: int
) -> AsyncIterator[AsyncIterator[Numbered]]:
    """The replies of all generations. Leaving the `async with` block cancels what still runs.

    At most `max_waiting` of their sequences wait for the engine.
    """
    if len(requests) == 1:
        async with start(0, requests[0]) as generation:
            yield _replies(0, generation)
    else:
        n_sequences = max(request.num_sequences for request in requests)
        async with _Batch(start, max_waiting // n_sequences).running(requests) as replies:
            yield replies


async def _replies(prompt: int, generation: GenerationStream) -> AsyncIterator[Numbered]:
    while (reply := await generation.next_reply()) is not None:
        yield prompt, reply


class _Batch:
    def __init__(self, start: Start, n_waiting: int) -> None:
        self._start = start
        # Places of generations that have not begun. At least one: if that one finds the queue full, it is refused.
        self._places = asyncio.Semaphore(max(1, n_waiting))
        # The first generation has a place in the queue. If it gets none, the whole batch is refused.
        self._first_has_place = asyncio.Event()
        # One element: while the caller does not read, no generation is read.
        self._taken: asyncio.Queue[Numbered | Exception | None] = asyncio.Queue(1)

    @asynccontextmanager
    async def running(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[AsyncIterator[Numbered]]:
        """The replies of all generations."""
        tasks = [asyncio.create_task(self._run(i, request)) for i, request in enumerate(requests)]
        try:
            yield self._replies(len(tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _replies(self, n_running: int) -> AsyncIterator[Numbered]:
        while n_running:
            found = await self._taken.get()
            if found is None:
                n_running -= 1
            elif isinstance(found, Exception):
                raise found
            else:
                yield found

    async def _run(self, prompt: int, request: GenerationRequest) -> None:
        try:
            if prompt:
                await self._first_has_place.wait()
            async with AsyncExitStack() as stack:
                async with self._places:
                    generation = await self._begun(prompt, request, stack)
                    first = await generation.next_reply()
                if first is not None:
                    await self._taken.put((prompt, first))
                async for numbered in _replies(prompt, generation):
                    await self._taken.put(numbered)
        except Exception as error:
            await self._taken.put(error)
        else:
            await self._taken.put(None)

    async def _begun(self, prompt: int, request: GenerationRequest, stack: AsyncExitStack) -> GenerationStream:
        """The generation, once the queue has a place for it."""
        while True:
            try:
                generation = await stack.enter_async_context(self._start(prompt, request))
            except Exception as error:
                if not prompt or not _is_queue_full(error):
                    raise
                await asyncio.sleep(ASK_AGAIN)
            else:
                self._first_has_place.set()
                return generation


def _is_queue_full(error: Exception) -> bool:
    """Whether others fill the queue. A deadline that is too near stays too near."""
    if not isinstance(error, Refusal | Error) or error.reason != "QUEUE_FULL":
        return False
    return error.details.get("bound") != "deadline"
