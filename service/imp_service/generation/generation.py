"""One generation for its reader: an iterator of replies. Leaving it early cancels it."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from imp_service.api.errors import invalid
from imp_service.api.replies import GenerationResult, Reply, results_of
from imp_service.generation.run import GenerationPlan, GenerationRun
from imp_service.generation.runtime import ModelRuntime


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

    def __init__(self, runtime: ModelRuntime, plan: GenerationPlan) -> None:
        self._client = runtime.client
        self._clock = runtime.clock
        self._deadline = None if plan.time_limit is None else runtime.clock() + plan.time_limit
        self._replies: list[Reply] = []
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
        """Until there is something to read, or the time limit has passed."""
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
