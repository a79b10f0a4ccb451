"""Profiles record steps completely and change nothing in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from support.engine.model_engine import ModelEngine
from support.engine.script_engine import ScriptEngine
from support.models.forward_runs import load
from support.models.tiny_models import tiny


def profile_of(engine: ScriptEngine, ticket: int) -> Any:
    (event,) = engine.events[ticket]
    assert isinstance(event, _core.ProfileEvent)
    return event


def test_obs_4_the_steps_asked_for_are_recorded() -> None:
    engine = ScriptEngine("counter", prefill_chunk=4)
    ticket = engine.command("profile", 5)
    engine.complete([1, 2, 3, 4, 5, 6], max_outputs=9)
    steps = profile_of(engine, ticket).steps
    assert [(step.n_prefill_rows, step.n_decode_rows) for step in steps] == [(4, 0), (2, 0), *[(0, 1)] * 3]
    assert engine.core.stats().n_steps == 10


def test_obs_4_a_second_profile_ends_the_first_and_none_ends_it_too() -> None:
    engine = ScriptEngine("counter")
    first, second = engine.command("profile", 100), None
    engine.generate([1], max_outputs=20)
    for _ in range(4):
        engine.turn()
    second = engine.command("profile", 100)
    for _ in range(3):
        engine.turn()
    engine.command("profile", 0)
    engine.turn_until_idle()
    assert [len(profile_of(engine, ticket).steps) for ticket in (first, second)] == [4, 3]


@pytest.mark.parametrize("n_steps", [-1, 1001])
def test_obs_4_the_number_of_steps_has_a_bound(n_steps: int) -> None:
    with pytest.raises(_core.InvalidArgument, match="steps"):
        ScriptEngine().command("profile", n_steps)


def test_obs_4_tokens_are_the_same_with_and_without(tmp_path: Path) -> None:
    """The profile of a real model has every op of its steps in order, within the step's forward or sampling."""
    plain = ModelEngine(load(tiny("qwen3"), tmp_path))
    expected = plain.outputs(plain.generate([3, 1, 4, 1, 5, 9, 2, 6], 8))
    model = load(tiny("qwen3"), tmp_path)
    before = model.launches
    engine = ModelEngine(model)
    engine.events[99] = []
    engine.core.profile(99, 8)
    assert engine.outputs(engine.generate([3, 1, 4, 1, 5, 9, 2, 6], 8)) == expected
    (profile,) = engine.events[99]
    assert len(profile.steps) == 8
    names, which, begin, end = profile.ops()
    assert (len(which), profile.n_dropped_ops) == (len(begin), 0)
    assert (begin[1:] >= end[:-1]).all()
    ops = [(names[i], b, e) for i, b, e in zip(which, begin, end, strict=True)]
    for step in profile.steps:
        forward = [op for op in ops if step.forward.begin_ns <= op[1] and op[2] <= step.forward.end_ns]
        sampled = [op[0] for op in ops if step.sample.begin_ns <= op[1] and op[2] <= step.sample.end_ns]
        n_layers = sum(op[0] in ("attend_decode", "attend_prefill") for op in forward)
        n_embeds = sum(op[0] == "embed" for op in forward)
        assert (n_embeds, n_layers, sampled) == (1, len(model.windows), ["sample"])
        assert step.whole.begin_ns <= step.forward.begin_ns < step.sample.begin_ns < step.whole.end_ns
    kernels = {kernel["name"] for kernel in _core.kernels()}
    launched = {
        name: n - before[name] for name, n in model.launches.items() if n > before[name] and name not in kernels
    }
    assert Counter(name for name, _, _ in ops if name not in kernels) == launched
    used = {name for name, n in model.launches.items() if name in kernels and n > before[name]}
    assert {name for name in names if name in kernels} == used
