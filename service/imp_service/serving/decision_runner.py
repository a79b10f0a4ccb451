"""Decisions of one call, for every transport: the rows that they need are those of generations with given outputs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from imp_service.api.decisions import Decision, DecisionRequest
from imp_service.api.options import GenerationRequest
from imp_service.api.replies import Finished
from imp_service.generation.decision import EVALUATED, DecisionPlan, Group, some_at_a_time
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
# A group to run, with the number of its decision.
Numbered = tuple[int, Group]


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
        await run.evaluate([(0, run.plans[0].groups[0])])
        await run.evaluate([(i, plan.groups[0]) for i, plan in enumerate(run.plans) if i])
        await run.evaluate([(i, group) for i, plan in enumerate(run.plans) for group in plan.groups[1:]])
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

    async def evaluate(self, groups: Sequence[Numbered]) -> None:
        """Runs groups, some at a time: each row is held until it is scored."""
        for part in some_at_a_time(groups):
            await self._evaluate(part)

    async def _evaluate(self, groups: Sequence[Numbered]) -> None:
        time_limit = self._state.settings.limits.request_time.total_seconds()
        requests = [self.plans[i].generation(group, time_limit) for i, group in groups]
        first, self._n_begun = self._n_begun, self._n_begun + len(groups)

        def start(n: int, request: GenerationRequest) -> AbstractAsyncContextManager[GenerationStream]:
            return self._start(groups[n], first + n, request)

        async with replies_of(requests, start, self._state.settings.scheduler.max_waiting) as replies:
            async for n, reply in replies:
                i, group = groups[n]
                if isinstance(reply, Finished) and reply.reason not in EVALUATED:
                    self._asked_end = reply.reason
                else:
                    await self._state.workers.write(partial(self.plans[i].take, group, reply))
        self._require_all()

    @asynccontextmanager
    async def _start(self, group: Numbered, number: int, request: GenerationRequest) -> AsyncIterator[GenerationStream]:
        wanted = Wanted(
            request=request,
            delivery=WHOLE,
            began=self._began,
            check_size=lambda _: None,
            shares_id=number > 0,
            rename=partial(self._rename, group[0]),
            group=group[1],
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
