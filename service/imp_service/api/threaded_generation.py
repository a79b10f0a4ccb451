"""Generations for an asyncio task. In a module of its own, because importing asyncio takes long."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from .errors import left_early
from .replies import GenerationResult, Reply

T = TypeVar("T")


class Waiting(Protocol):
    """One generation or several, which wait in the thread of their reader."""

    def results(self) -> list[GenerationResult]:
        """Waits for the end."""

    def cancel(self) -> None:
        """Ends it, from any thread."""

    def close(self) -> None:
        """Ends it and drops what was not read."""


class ThreadedGeneration(Waiting, Protocol):
    """One generation."""

    def __next__(self) -> Reply: ...

    def __iter__(self) -> Iterator[Reply]: ...

    def result(self) -> GenerationResult:
        """Waits for the end."""


W = TypeVar("W", bound=Waiting)


class InThread(ABC, Generic[W]):
    """Waits in a thread of its own, so the event loop goes on. Begins when it is read."""

    def __init__(self, begin: Callable[[], W]) -> None:
        self._begin = begin
        self._generation: W | None = None
        self._thread = ThreadPoolExecutor(1, "imp-generation")
        self._is_left = False
        self._closed: Future[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "left" if self._is_left else "not begun" if self._generation is None else "begun"
        return f"<{type(self).__name__}, {state}: {self._how}>"

    @property
    @abstractmethod
    def _how(self) -> str:
        """How to get the output."""

    async def results(self) -> list[GenerationResult]:
        """As `ThreadedGeneration.results()`."""
        return await self._in_thread(lambda: self._begun().results())

    async def aclose(self) -> None:
        """Cancels what still runs. Replies not yet read are dropped."""
        await asyncio.shield(asyncio.wrap_future(self._leave()))

    def _begun(self) -> W:
        if self._generation is None:
            self._generation = self._begin()
            if self._is_left:  # meanwhile
                self._generation.cancel()
        return self._generation

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._is_left:
            raise left_early()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except asyncio.CancelledError:
            self._leave()
            raise

    def _leave(self) -> Future[None]:
        """Ends it without waiting. The future is done when the thread is."""
        self._is_left = True
        if self._closed is None:
            if self._generation is not None:
                self._generation.cancel()
            self._closed = self._thread.submit(self._close)
            self._thread.shutdown(wait=False)
        return self._closed

    def _close(self) -> None:
        if self._generation is not None:
            self._generation.close()


class AsyncGeneration(InThread[ThreadedGeneration], AsyncIterator[Reply]):
    """A generation for a task of asyncio. A thread does what waits, so the event loop goes on. Begins when it is read.

    Cancelling the task ends the generation within one step.

    >>> async def tell():
    ...     async for reply in model.generate_async("Once upon a time", max_tokens=8, temperature=0):
    ...         print(reply.text, end="")
    >>> asyncio.run(tell())
    , in a little house near the farm
    """

    async def __anext__(self) -> Reply:
        reply = None if self._is_left else await self._in_thread(lambda: next(self._begun(), None))
        if reply is None:
            raise StopAsyncIteration
        return reply

    @property
    def _how(self) -> str:
        return "read it by `async for`, or await its result()"

    async def result(self) -> GenerationResult:
        """As `ThreadedGeneration.result()`."""
        return await self._in_thread(lambda: self._begun().result())


class AsyncGenerations(InThread[Waiting]):
    """Generations of several prompts for a task of asyncio. They begin when the results are awaited.

    Cancelling the task ends all of them.

    >>> asked = model.generate_async(["Once upon a time", "The weather today"], max_tokens=3, temperature=0)
    >>> [result.text for result in asyncio.run(asked.results())]
    [', in a', ' is snowy.']
    """

    @property
    def _how(self) -> str:
        return "await its results()"
