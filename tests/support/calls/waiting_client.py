"""Wraps an AsyncClient for code without an event loop: each method waits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import imp_service
from imp_service import AsyncClient, SessionStep
from imp_service.api.replies import GenerationResult, Reply

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class WaitingClient:
    """Runs the client's methods on the loop of `run`."""

    def __init__(self, client: AsyncClient, run: Run) -> None:
        self._client = client
        self._run = run

    def close(self) -> None:
        """Closes the client and drops it: pytest keeps the arguments of the last test until all fixtures have ended."""
        self._run(self._client.close())
        del self._client

    def __getattr__(self, name: str) -> Any:
        info: imp_service.ModelInfo = self._run(self._client.info())
        return getattr(info, name)

    def generate(self, *arguments: Any, **options: Any) -> WaitingGeneration:
        return WaitingGeneration(self._client.generate(*arguments, **options), self._run)

    def chat(self, *arguments: Any, **options: Any) -> WaitingGeneration:
        return WaitingGeneration(self._client.chat(*arguments, **options), self._run)

    def open(self, *arguments: Any, **options: Any) -> WaitingSession:
        return WaitingSession(self._client.open(*arguments, **options), self._run)

    def decode_step(self, steps: list[SessionStep]) -> Any:
        inner = [replace(each, session=each.session.session) for each in steps]  # type: ignore[attr-defined]
        return self._run(self._client.decode_step(inner))

    def tokenize(self, *arguments: Any, **options: Any) -> Any:
        return self._run(self._client.tokenize(*arguments, **options))

    def detokenize(self, *arguments: Any, **options: Any) -> Any:
        return self._run(self._client.detokenize(*arguments, **options))


class WaitingGeneration(Iterator[Reply]):
    """Runs one generation's methods on the loop of `run`."""

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


class WaitingSession:
    """Runs one session's methods on the loop of `run`."""

    def __init__(self, session: Any, run: Run) -> None:
        self.session = session
        self._run = run

    @property
    def position(self) -> int:
        return int(self.session.position)

    @property
    def seed(self) -> int:
        return int(self.session.seed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._run(self.session.close())

    def prefill(self, *arguments: Any, **options: Any) -> Any:
        return self._run(self.session.prefill(*arguments, **options))

    def decode_step(self, *arguments: Any, **options: Any) -> Any:
        return self._run(self.session.decode_step(*arguments, **options))

    def generate(self, *arguments: Any, **options: Any) -> WaitingGeneration:
        return WaitingGeneration(self.session.generate(*arguments, **options), self._run)

    def fork(self, *arguments: Any) -> WaitingSession:
        return WaitingSession(self._run(self.session.fork(*arguments)), self._run)

    def truncate(self, position: int) -> None:
        self._run(self.session.truncate(position))
