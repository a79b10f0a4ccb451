"""Runs the generations of one request, one for each prompt, and merges their replies as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from imp_service.api.options import GenerationRequest
from imp_service.api.replies import Reply
from imp_service.serving.generation_stream import GenerationStream

# The number of a prompt, and a reply of its generation.
Numbered = tuple[int, Reply]
Start = Callable[[int, GenerationRequest], AbstractAsyncContextManager[GenerationStream]]


@asynccontextmanager
async def replies_of(requests: Sequence[GenerationRequest], start: Start) -> AsyncIterator[AsyncIterator[Numbered]]:
    """The replies of all generations. Leaving the `async with` block cancels what still runs."""
    if len(requests) == 1:
        async with start(0, requests[0]) as generation:
            yield _replies(0, generation)
    else:
        async with _all(requests, start) as replies:
            yield replies


async def _replies(prompt: int, generation: GenerationStream) -> AsyncIterator[Numbered]:
    while (reply := await generation.next_reply()) is not None:
        yield prompt, reply


@asynccontextmanager
async def _all(requests: Sequence[GenerationRequest], start: Start) -> AsyncIterator[AsyncIterator[Numbered]]:
    # One element: while the caller does not read, no generation is read.
    taken: asyncio.Queue[Numbered | Exception | None] = asyncio.Queue(1)

    async def run(prompt: int, request: GenerationRequest) -> None:
        try:
            async with start(prompt, request) as generation:
                async for numbered in _replies(prompt, generation):
                    await taken.put(numbered)
        except Exception as error:
            await taken.put(error)
        else:
            await taken.put(None)

    tasks = [asyncio.create_task(run(i, request)) for i, request in enumerate(requests)]
    try:
        yield _taken(taken, len(tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _taken(queue: asyncio.Queue[Numbered | Exception | None], n_running: int) -> AsyncIterator[Numbered]:
    while n_running:
        found = await queue.get()
        if found is None:
            n_running -= 1
        elif isinstance(found, Exception):
            raise found
        else:
            yield found
