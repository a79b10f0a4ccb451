"""An AsyncClient as a program without an event loop sees it: each method waits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self

import imp_service
from imp_service import AsyncClient
from imp_service.api.replies import GenerationResult, Reply

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class WaitingClient:
    """Runs what it is asked for on the loop of `run`."""

    def __init__(self, client: AsyncClient, run: Run) -> None:
        self._client = client
        self._run = run

    def __getattr__(self, name: str) -> Any:
        info: imp_service.ModelInfo = self._run(self._client.info())
        return getattr(info, name)

    def generate(self, *arguments: Any, **options: Any) -> WaitingGeneration:
        return WaitingGeneration(self._client.generate(*arguments, **options), self._run)

    def chat(self, *arguments: Any, **options: Any) -> WaitingGeneration:
        return WaitingGeneration(self._client.chat(*arguments, **options), self._run)

    def tokenize(self, *arguments: Any, **options: Any) -> Any:
        return self._run(self._client.tokenize(*arguments, **options))

    def detokenize(self, *arguments: Any, **options: Any) -> Any:
        return self._run(self._client.detokenize(*arguments, **options))


class WaitingGeneration(Iterator[Reply]):
    """The same for one generation."""

    def __init__(self, generation: Any, run: Run) -> None:
        self._generation = generation
        self._run = run

    def __next__(self) -> Reply:
        reply: Reply | None = self._run(self._next())
        if reply is None:
            raise StopIteration
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._run(self._generation.aclose())

    def result(self) -> GenerationResult:
        result: GenerationResult = self._run(self._generation.result())
        return result

    def results(self) -> list[GenerationResult]:
        results: list[GenerationResult] = self._run(self._generation.results())
        return results

    async def _next(self) -> Reply | None:
        return await anext(self._generation, None)
