"""One generation for its reader: an iterator of replies. Leaving it early cancels it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from imp_service.api.errors import invalid
from imp_service.api.replies import GenerationResult, Reply, progress_text, results_of
from imp_service.api.several import Several
from imp_service.core import EngineClient, Error
from imp_service.generation.run import GenerationPlan, GenerationRun
from imp_service.generation.runtime import Clock, ModelRuntime


class Generation(Iterator[Reply]):
    """The replies of a generation: `Started`, `Chunk`s, and one `Finished` for each sequence. For one thread.

    Each reply has a `text`; joined they are the output. Close it, or use it in a `with` block, to end it early: its
    memory is free within one step. A session then holds what was read.

    >>> with model.generate("Once upon a time", max_tokens=8, temperature=0) as generation:
    ...     print("".join(reply.text for reply in generation))
    , in a little house near the farm
    >>> generation.result().finish_reason
    'max_tokens'
    """

    def __init__(
        self, runtime: ModelRuntime, plan: GenerationPlan, peers: Callable[[], Generations | None] = lambda: None
    ) -> None:
        """`peers` are the generations that go on while this one is waited for, as long as somebody holds them."""
        self._client = runtime.client
        self._peers = peers
        self._clock = runtime.clock
        self._deadline = None if plan.time_limit is None else runtime.clock() + plan.time_limit
        self._replies: list[Reply] = []
        plan.images.decode_here()
        self._run: GenerationRun | None = GenerationRun(runtime.client, plan)

    def __next__(self) -> Reply:
        run = self._run
        while run is not None:
            reply = run.next_reply()
            if reply is not None:
                self._replies.append(reply)
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

    def __repr__(self) -> str:
        return f"<Generation: {progress_text(self._replies, is_open=self._run is not None)}>"

    @property
    def is_open(self) -> bool:
        """Whether it still runs. Replies may wait to be read."""
        return self._run is not None and self._run.is_open

    def result(self) -> GenerationResult:
        """Waits for the end and returns the whole output, with what was read before.

        >>> result = model.generate("Once upon a time", max_tokens=8, temperature=0).result()
        >>> result.text, len(result.token_ids), result.finish_reason
        (', in a little house near the farm', 8, 'max_tokens')
        """
        results = self.results()
        if len(results) != 1:
            raise invalid("num_sequences", f"{len(results)}, expected 1: results() returns all")
        return results[0]

    def results(self) -> list[GenerationResult]:
        """Waits for the end and returns the output of each sequence.

        >>> generation = model.generate("Once upon a time", num_sequences=3, max_tokens=4)
        >>> [len(result.token_ids) for result in generation.results()]
        [4, 4, 4]
        """
        for _ in self:
            pass
        return results_of(self._replies)

    def pause(self, is_paused: bool) -> None:
        """Pauses the generation at its next step, or resumes it. Its tokens stay the same."""
        if self._run is not None and self._run.is_open:
            self._run.pause(is_paused)

    def cancel(self) -> None:
        """Ends the generation, from any thread.

        Its reader gets the output so far, and a `Finished` with the reason `cancelled`.
        """
        run = self._run
        if run is not None and run.is_open:
            run.end("cancelled")

    def close(self) -> None:
        """Cancels what still runs. Replies not yet read are dropped."""
        run, self._run = self._run, None
        if run is not None and run.begin_leaving():
            self._client.wait(run.has_settled)

    def _wait(self, run: GenerationRun) -> None:
        """Until there is something to read, of this one or of a peer, or the time limit has passed."""
        peers = self._peers()
        if peers is not None:
            peers._wait()
            return
        _wait_for_any(self._client, self._clock, [self])
        run.absorb()

    def _end_if_late(self) -> None:
        if self._deadline is not None and self._clock() >= self._deadline and self._run is not None:
            self._deadline = None
            self._run.end("time_limit")

    def _absorb(self) -> None:
        """Folds what has come. An error is kept for the reader."""
        if self._run is not None:
            try:
                self._run.absorb()
            except Error as error:
                self._run.failure = error

    def _leave(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.leave()


class Generations(Several[Generation]):
    """Generations of several prompts, in their order: they run in one batch. For one thread.

    Each has the tokens that its prompt has alone. `results()` waits for all; or iterate over them, or take one by its
    index. If there are many, later ones begin when earlier ones have ended.

    >>> generations = model.generate(["Once upon a time", "The weather today"], max_tokens=8, temperature=0)
    >>> [result.text for result in generations.results()]
    [', in a little house near the farm', ' is snowy. Snow is falling']
    """

    def __init__(self, runtime: ModelRuntime, plans: Sequence[GenerationPlan]) -> None:
        scheduler, peers = runtime.config.settings.scheduler, weakref.ref(self)
        begins = [partial(Generation, runtime, plan, peers) for plan in plans]
        # Half of the queue is left to other callers.
        super().__init__(begins, scheduler.max_running + scheduler.max_waiting // 2)
        self._client, self._clock = runtime.client, runtime.clock
        with self._client.together():
            self._begin()

    def _go_on(self, least: int) -> None:
        self._begin()
        if len(self._begun) < least:
            self._wait()

    def _wait(self) -> None:
        """Until one of them has something to read. Then all take what has come, and further ones begin."""
        running = [each for each in self._open if each.is_open]
        _wait_for_any(self._client, self._clock, running)
        for each in running:
            each._absorb()
        self._begin()


def _wait_for_any(client: EngineClient, clock: Clock, generations: Sequence[Generation]) -> None:
    """Until one of them has something to read, or a time limit has passed."""
    runs = [each._run for each in generations if each._run is not None]
    deadlines = [each._deadline for each in generations if each._deadline is not None]
    try:
        client.wait(
            lambda: any(run.has_events for run in runs),
            max(0.0, min(deadlines) - clock()) if deadlines else None,
        )
        for each in generations:
            each._end_if_late()
    except BaseException:
        for each in generations:
            each._leave()
        raise
