"""Rotary frequencies equal their definitions, and reach the forward pass as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.models.forward_runs import Cache, distance, load, logits, prompt
from support.models.tiny_models import tiny
from support.oracles import numpy_rope, tolerances
from support.oracles.forward_bounds import float32_bound

POSITIONS = (0, 3, 4, 5, 8191)
DIMS, THETA = 64, 10000.0
YARN = {"factor": 4.0, "original_context": 2048}
LLAMA3 = {"factor": 8.0, "original_context": 8192}
CASES: dict[str, tuple[dict[str, Any], tuple[Any, float]]] = {
    "none": ({}, (numpy_rope.plain(DIMS, THETA), 1.0)),
    "linear": ({"type": "linear", "factor": 4.0}, (numpy_rope.linear(DIMS, THETA, 4.0), 1.0)),
    "yarn": ({"type": "yarn", **YARN}, numpy_rope.yarn(DIMS, THETA, 4.0, 2048)),
    "yarn_betas": (
        {"type": "yarn", **YARN, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 0.5},
        (numpy_rope.yarn(DIMS, THETA, 4.0, 2048, beta_fast=16, beta_slow=2)[0], 0.5 * (1 + 0.1 * np.log(4.0))),
    ),
    "llama3": ({"type": "llama3", **LLAMA3}, (numpy_rope.llama3(DIMS, THETA, 8.0, 8192), 1.0)),
    "llama3_factors": (
        {"type": "llama3", **LLAMA3, "low_freq_factor": 2.0, "high_freq_factor": 16.0},
        (numpy_rope.llama3(DIMS, THETA, 8.0, 8192, low=2, high=16), 1.0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gen_22_frequencies_equal_their_definition(name: str) -> None:
    scaling, (frequencies, magnitude) = CASES[name]
    got, got_magnitude = core.rope_frequencies(DIMS, THETA, _core.RopeScaling(**scaling))
    assert got_magnitude == pytest.approx(magnitude, rel=float(np.finfo(np.float32).eps))
    for position in POSITIONS:
        angles, expected = position * np.array(got), position * frequencies
        assert np.abs(np.exp(1j * angles) - np.exp(1j * expected)).max() < tolerances.UNIT_CIRCLE


@pytest.mark.parametrize(
    "how", [{"truncated": False}, {"mscales": (1.0, 0.5)}, {"truncated": False, "mscales": (0.707, 0.707)}]
)
def test_gen_22_yarn_without_rounded_ends_and_with_mscales(how: dict[str, Any]) -> None:
    expected, magnitude = numpy_rope.yarn(DIMS, THETA, 4.0, 2048, **how)
    mscale, mscale_all_dim = how.get("mscales", (1.0, 0.0))
    got, got_magnitude = core.rope_frequencies(
        DIMS, THETA, _core.RopeScaling(type="yarn", **YARN),
        truncated=how.get("truncated", True), mscale=mscale, mscale_all_dim=mscale_all_dim,
    )  # fmt: skip
    assert got_magnitude == pytest.approx(magnitude, rel=float(np.finfo(np.float32).eps))
    for position in POSITIONS:
        assert np.abs(np.exp(1j * position * (np.array(got) - expected)) - 1).max() < tolerances.UNIT_CIRCLE
    # The control: what the plain form says is something else.
    plain, plain_magnitude = numpy_rope.yarn(DIMS, THETA, 4.0, 2048)
    assert not how.get("mscales") or abs(plain_magnitude - magnitude) > 0.01
    assert how.get("truncated", True) or np.abs(np.exp(8191j * (plain - expected)) - 1).max() > 0.1


def test_hon_1_a_frequency_of_the_neighbour_is_seen() -> None:
    got, _ = core.rope_frequencies(DIMS, THETA, _core.RopeScaling())
    moved = np.roll(numpy_rope.plain(DIMS, THETA), 1)
    assert np.abs(np.exp(3j * np.array(got)) - np.exp(3j * moved)).max() > 0.1


@pytest.mark.parametrize("position", POSITIONS)
def test_gen_22_rotation_at_far_positions(position: int, tmp_path: Path) -> None:
    """A window of two tokens lets a sequence begin anywhere: its cache holds no more than it can see."""
    source = tiny("llama", window=2, context=8192 + 32, n_layers=1)
    tokens = prompt(2, source.vocab_size)
    model = load(source, tmp_path, kv_dtype="f32")
    cache = Cache(model, n_blocks=520)
    blocks = list(range(520))
    [got] = cache.run((tokens, position, blocks))
    if position == 0:
        assert distance(got, source.oracle().logits(tokens)) < float32_bound(source)
    else:
        [row] = cache.run((tokens[1:], position + 1, blocks))
        assert np.array_equal(row[0], got[1])
        assert distance(got[1:], source.oracle().logits(tokens)[1:]) < float32_bound(source)


def test_mod_12_factors_of_two_equal_doubled_wavelengths(tmp_path: Path) -> None:
    plain = tiny("llama")
    tokens = prompt(60, plain.vocab_size)
    halved = tiny("llama", rope_factors=(2.0,) * 4)
    linear = tiny("llama", scaling={"type": "linear", "factor": 2.0})
    by_factors, by_scaling, unscaled = (logits(load(model, tmp_path), tokens) for model in (halved, linear, plain))
    assert np.array_equal(by_factors, by_scaling)
    assert not np.array_equal(by_factors, unscaled)


def test_mod_12_a_kind_from_the_user_replaces_the_files_factors(tmp_path: Path) -> None:
    plain, factors = tiny("llama"), tiny("llama", rope_factors=(1.0, 2.0, 3.0, 4.0))
    tokens = prompt(60, plain.vocab_size)
    off = load(factors, tmp_path, rope_scaling=_core.RopeScaling(type="none"))
    assert np.array_equal(logits(off, tokens), logits(load(plain, tmp_path), tokens))


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_mod_12_factors_must_be_divisors(bad: float, tmp_path: Path) -> None:
    with pytest.raises(_core.ModelError, match=r"rope_freqs.weight: element 1 is .*expected a divisor above 0") as info:
        load(tiny("llama", rope_factors=(1.0, bad, 1.0, 1.0)), tmp_path)
    assert info.value.reason == "MODEL_VALUE"
