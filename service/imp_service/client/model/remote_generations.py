"""Generations of several prompts on a server, for a program that waits in threads, and for a task of asyncio."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ...api.replies import GenerationResult
from ...api.several import Several, naming_prompt
from .remote_generation import Generation

if TYPE_CHECKING:
    from .remote_async_generation import AsyncGeneration

# As many as a server runs in one batch, unless its settings say otherwise.
AT_ONCE = 64


class Generations(Several[Generation]):
    """Generations of several prompts, in their order: each is a call, and the server runs them in one batch.

    Each has the tokens that its prompt has alone. `results()` waits for all; or iterate over them, or take one by its
    index. If there are many, later ones begin when earlier ones have ended.
    """

    def __init__(self, begins: Sequence[Callable[[], Generation]]) -> None:
        super().__init__(begins, AT_ONCE)
        self._lock = threading.Lock()
        self._begin()

    def results(self) -> list[GenerationResult]:
        """Waits for all, and returns the outputs in the order of the prompts.

        If one fails, its error, which names the prompt, is raised, and the others end.
        """
        # A server pauses a generation that nobody reads, so each has a reader.
        readers = ThreadPoolExecutor(min(len(self), AT_ONCE), "imp-generations")
        try:
            return [each for found in readers.map(self._results_of, range(len(self))) for each in found]
        except BaseException:
            self.close()
            raise
        finally:
            readers.shutdown(cancel_futures=True)

    def _results_of(self, index: int) -> list[GenerationResult]:
        with naming_prompt(index):
            return self[index].results()

    def _go_on(self, least: int) -> None:
        with self._lock:
            self._begin(least)


class AsyncGenerations:
    """Generations of several prompts for a task of asyncio. They begin when the results are awaited.

    Cancelling the task ends all of them.
    """

    def __init__(self, begins: Sequence[Callable[[], AsyncGeneration]]) -> None:
        self._generations = [begin() for begin in begins]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<AsyncGenerations of {len(self._generations)} prompts: await its results()>"

    async def results(self) -> list[GenerationResult]:
        """Waits for all, and returns the outputs in the order of the prompts.

        If one fails, its error, which names the prompt, is raised, and the others end.
        """
        import asyncio  # imported here: a program with threads does not need it

        free = asyncio.Semaphore(AT_ONCE)

        async def read(index: int, generation: AsyncGeneration) -> list[GenerationResult]:
            async with free:
                with naming_prompt(index):
                    return await generation.results()

        try:
            parts = await asyncio.gather(*(read(i, each) for i, each in enumerate(self._generations)))
        except BaseException:
            await self.aclose()
            raise
        return [each for found in parts for each in found]

    async def aclose(self) -> None:
        """Cancels what still runs. Replies not yet read are dropped."""
        for each in self._generations:
            await each.aclose()
