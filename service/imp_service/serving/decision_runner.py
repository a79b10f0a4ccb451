"""Decisions of one call, for every transport: each row that they need is a generation without output."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from imp_service.api.decisions import Decision, DecisionRequest
from imp_service.api.options import GenerationRequest
from imp_service.api.replies import Finished
from imp_service.generation.decision import EVALUATED, MOST_ROWS, ROOT, DecisionPlan, Path
from imp_service.serving.calls import Call
from imp_service.serving.errors.field_paths import paths_renamed
from imp_service.serving.generation_batch import replies_of
from imp_service.serving.generation_runner import WHOLE, GenerationRunner, Wanted, refuse_late
from imp_service.serving.generation_stream import GenerationStream
from imp_service.serving.prompt_cost import reading_bytes
from imp_service.serving.refusal import Refusal
from imp_service.serving.server_state import ServerState
from imp_service.serving.workers import SMALL_BYTES

# The caller's path of a path in a decision, by the decision's number.
RenameOf = Callable[[int, str], str]
# A row to evaluate: the number of its decision, and the path.
Row = tuple[int, Path]


class DecisionRunner:
    """Runs decisions of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._generations = GenerationRunner(state)

    async def decide(self, requests: Sequence[DecisionRequest], call: Call, rename: RenameOf) -> list[Decision]:
        """The answers to checked requests, in their order."""
        refuse_late(call)
        run = _Run(self._state, self._generations, call, rename)
        await run.plan(requests)
        # The first prompt alone: the others find in the cache what they share with it.
        await run.evaluate([(0, ROOT)])
        await run.evaluate([(i, ROOT) for i in range(1, len(requests))])
        await run.evaluate([(i, path) for i, plan in enumerate(run.plans) for path in plan.continuations])
        return await self._state.workers.write(lambda: [plan.decision() for plan in run.plans])


class _Run:
    def __init__(self, state: ServerState, generations: GenerationRunner, call: Call, rename: RenameOf) -> None:
        self._state = state
        self._generations = generations
        self._call = call
        self._rename = rename
        self._began = state.clock()
        self._n_begun = 0
        # Why somebody ended an evaluation.
        self._asked_end = ""
        self.plans: list[DecisionPlan] = []

    async def plan(self, requests: Sequence[DecisionRequest]) -> None:
        """Tokenizes prompts and labels. All are checked before the first one runs."""
        state, call = self._state, self._call
        model = state.model
        with state.admission.admit(call.payer, 1, call.time_remaining()):
            for i, request in enumerate(requests):
                with paths_renamed(partial(self._rename, i)):
                    model.prompts.require_fitting(request.prompt)
                    cost = reading_bytes(request.prompt, renders_quickly=model.text.renders_quickly)
                    cost = max(SMALL_BYTES, cost + sum(map(len, request.texts)))
                    self.plans.append(await state.workers.run(partial(model.plan_decision, request), cost))

    async def evaluate(self, rows: Sequence[Row]) -> None:
        """Evaluates rows, some at a time: each is held until it is scored."""
        for first in range(0, len(rows), MOST_ROWS):
            await self._evaluate(rows[first : first + MOST_ROWS])

    async def _evaluate(self, rows: Sequence[Row]) -> None:
        time_limit = self._state.settings.limits.request_time.total_seconds()
        requests = [self.plans[i].generation(time_limit) for i, _ in rows]
        first, self._n_begun = self._n_begun, self._n_begun + len(rows)

        def start(n: int, request: GenerationRequest) -> AbstractAsyncContextManager[GenerationStream]:
            return self._start(rows[n], first + n, request)

        async with replies_of(requests, start, self._state.settings.scheduler.max_waiting) as replies:
            async for n, reply in replies:
                i, path = rows[n]
                if isinstance(reply, Finished) and reply.reason != EVALUATED:
                    self._asked_end = reply.reason
                else:
                    await self._state.workers.write(partial(self.plans[i].take, path, reply))
        self._require_all()

    @asynccontextmanager
    async def _start(self, row: Row, number: int, request: GenerationRequest) -> AsyncIterator[GenerationStream]:
        wanted = Wanted(
            request=request,
            delivery=WHOLE,
            began=self._began,
            check_size=lambda _: None,
            shares_id=number > 0,
            rename=partial(self._rename, row[0]),
            scored_after=row[1],
        )
        async with self._generations.running(wanted, self._call) as stream:
            try:
                yield stream
            finally:
                self._asked_end = self._asked_end or stream.asked_end

    def _require_all(self) -> None:
        """Raises if an evaluation was to end early: then no further one begins."""
        if self._asked_end == "time_limit":
            raise Refusal("DEADLINE_EXCEEDED", "limits.request_time has passed")
        if self._asked_end:
            raise Refusal("CANCELLED", "the request was aborted")
