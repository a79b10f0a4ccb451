"""One generation as an iterator of replies. Leaving it early cancels it; its blocks are free within one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from imp_service.core import EngineClient
from imp_service.generation.plan import GenerationPlan
from imp_service.generation.replies import Reply
from imp_service.generation.run import GenerationRun

Clock = Callable[[], float]


class Generation(Iterator[Reply]):
    """Yields Started, Chunks and one Finished per sequence. For one thread.

    On a session it keeps the session to what was delivered, whenever it is left.
    """

    def __init__(self, client: EngineClient, plan: GenerationPlan, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._deadline = None if plan.time_limit is None else clock() + plan.time_limit
        self._run: GenerationRun | None = GenerationRun(client, plan)

    def __next__(self) -> Reply:
        run = self._run
        while run is not None:
            reply = run.next_reply()
            if reply is not None:
                return reply
            if not run.is_open:
                self._run = None
                if run.failure is not None:
                    raise run.failure
                break
            self._wait(run)
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        # It may run inside any call of this thread, so it must not wait.
        run = getattr(self, "_run", None)
        if run is not None:
            run.leave()

    def pause(self, is_paused: bool) -> None:
        """Holds it at its next step, or lets it go on; its tokens stay the same."""
        if self._run is not None and self._run.is_open:
            self._run.pause(is_paused)

    def close(self) -> None:
        """Cancels what still runs. Replies not yet taken are dropped."""
        run, self._run = self._run, None
        if run is not None and run.begin_leaving():
            self._client.wait(run.has_settled)

    def _wait(self, run: GenerationRun) -> None:
        """Until something can be told, or the time limit has passed."""
        try:
            remaining = None if self._deadline is None else max(0.0, self._deadline - self._clock())
            self._client.wait(lambda: run.has_events, remaining)
            if self._deadline is not None and self._clock() >= self._deadline:
                self._deadline = None
                run.end("time_limit")
        except BaseException:
            self._run = None
            run.leave()
            raise
        run.absorb()
