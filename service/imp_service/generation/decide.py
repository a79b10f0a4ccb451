"""Decisions of the library: runs the evaluations that they need, and waits for them."""

from __future__ import annotations

from collections.abc import Sequence

from imp_service.api.decisions import Decision, DecisionRequest
from imp_service.api.several import naming_prompt
from imp_service.generation.decision import DecisionPlan, Group, some_at_a_time
from imp_service.generation.decision_rows import plan_rows
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
    # The further groups find in the cache what they share with the first.
    _evaluate(runtime, [(plan, plan.groups[0]) for plan in plans])
    _evaluate(runtime, [(plan, group) for plan in plans for group in plan.groups[1:]])
    return [plan.decision() for plan in plans]


def _evaluate(runtime: ModelRuntime, wanted: Sequence[tuple[DecisionPlan, Group]]) -> None:
    for part in some_at_a_time(wanted):
        runs = [plan_rows(runtime, plan.generation(group), group) for plan, group in part]
        with Generations(runtime, runs) as generations:
            for (plan, group), generation in zip(part, generations, strict=True):
                for reply in generation:
                    plan.take(group, reply)
