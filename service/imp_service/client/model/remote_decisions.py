"""Decisions of several questions on a server: each is a call, and the server runs them in one batch."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...api.decisions import Decision
from ...api.several import naming_prompt
from .remote_generations import AT_ONCE


class Decisions:
    """For a program that waits in threads."""

    def __init__(self, calls: Sequence[Callable[[], Decision]]) -> None:
        self._calls = calls

    def results(self) -> list[Decision]:
        """The answers in the order of the questions. If one fails, its error names the question."""
        callers = ThreadPoolExecutor(min(len(self._calls), AT_ONCE), "imp-decisions")
        try:
            return list(callers.map(self._result_of, range(len(self._calls))))
        finally:
            callers.shutdown(cancel_futures=True)

    def _result_of(self, index: int) -> Decision:
        with naming_prompt(index):
            return self._calls[index]()


class AsyncDecisions:
    """For a task of asyncio. Cancelling it ends all."""

    def __init__(self, calls: Sequence[Callable[[], Coroutine[Any, Any, Decision]]]) -> None:
        self._calls = calls

    async def results(self) -> list[Decision]:
        """The answers in the order of the questions. If one fails, its error names the question, and the others end."""
        import asyncio  # imported here: a program with threads does not need it

        free = asyncio.Semaphore(AT_ONCE)

        async def result_of(index: int) -> Decision:
            async with free:
                with naming_prompt(index):
                    return await self._calls[index]()

        tasks = [asyncio.create_task(result_of(i)) for i in range(len(self._calls))]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for each in tasks:
                each.cancel()
