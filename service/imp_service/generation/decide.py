"""Decisions of the library: runs the evaluations that they need, and waits for them."""

from __future__ import annotations

from collections.abc import Sequence

from imp_service.api.decisions import Decision, DecisionRequest
from imp_service.api.several import naming_prompt
from imp_service.generation.decision import MOST_ROWS, ROOT, DecisionPlan, Path
from imp_service.generation.errors import translating_text_errors
from imp_service.generation.generation import Generations
from imp_service.generation.runtime import ModelRuntime


def decide_one(runtime: ModelRuntime, request: DecisionRequest) -> Decision:
    """The answer to one question."""
    return _decide(runtime, [_plan(runtime, request)])[0]


def decide_all(runtime: ModelRuntime, requests: Sequence[DecisionRequest]) -> list[Decision]:
    """The answers to several, which run in one batch. Errors name the question."""
    plans = []
    for i, request in enumerate(requests):
        with naming_prompt(i):
            plans.append(_plan(runtime, request))
    return _decide(runtime, plans)


@translating_text_errors()
def _plan(runtime: ModelRuntime, request: DecisionRequest) -> DecisionPlan:
    runtime.check(request)
    return runtime.plan_decision(request)


def _decide(runtime: ModelRuntime, plans: Sequence[DecisionPlan]) -> list[Decision]:
    _evaluate(runtime, [(plan, ROOT) for plan in plans])
    _evaluate(runtime, [(plan, path) for plan in plans for path in plan.continuations])
    return [plan.decision() for plan in plans]


def _evaluate(runtime: ModelRuntime, wanted: Sequence[tuple[DecisionPlan, Path]]) -> None:
    for first in range(0, len(wanted), MOST_ROWS):
        part = wanted[first : first + MOST_ROWS]
        runs = [runtime.plan(plan.generation(), scored_after=path) for plan, path in part]
        with Generations(runtime, runs) as generations:
            for (plan, path), generation in zip(part, generations, strict=True):
                for reply in generation:
                    plan.take(path, reply)
