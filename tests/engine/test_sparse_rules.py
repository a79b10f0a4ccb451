"""Which prompts are evaluated in part, and which of their tokens: pure rules, against their definition."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from imp_service import _testing
from support.oracles.sparse_oracle import CHUNK, chosen
from support.oracles.tolerances import PROMPT_COST

ALL = _testing.KEEP_ALL


def floats(rng: random.Random, n: int) -> list[float]:
    """Returns values that a float32 holds, many of them equal."""
    return [float(np.float32(rng.randrange(50) / 49)) for _ in range(n)]


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(20))
def test_spc_41_the_selection_is_that_of_its_definition(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        n = rng.choice([1, 31, 32, 33, 64, rng.randrange(1, 3000)])
        keep, anchors = rng.randrange(1, ALL + 1), rng.choice([1, 1, 2, 64])
        tokens, importance = [rng.randrange(200) for _ in range(n)], floats(rng, n)
        control = sorted(rng.sample(range(200), rng.choice([0, 1])))
        backbone = rng.choice([0, 0, 1, rng.randrange(ALL + 1), ALL])
        found = _testing.select_tokens(tokens, importance, keep, anchors, control, backbone)
        rules = {"anchors": anchors, "control": control, "backbone": Fraction(backbone, ALL)}
        assert found == chosen(tokens, importance, Fraction(keep, ALL), **rules)
        assert found == sorted(set(found))
        assert found[0] >= 0
        assert found[-1] == n - 1
        least = _testing.least_selected(n, keep)
        assert len(found) >= least == -(-n * keep // ALL)


def test_spc_49_the_backbone_is_the_centres_of_equal_strata() -> None:
    """Of 10 chunks, 0.4 are 4 strata of two and a half chunks. They count toward the share to keep."""
    rising = [float(i // CHUNK) for i in range(320)]
    chunks = {}
    for backbone in (0, 1, 4000, ALL):
        found = _testing.select_tokens([1] * 320, rising, 5000, 1, [], backbone)
        chunks[backbone] = sorted({at // CHUNK for at in found})
    assert chunks == {0: [0, 6, 7, 8, 9], 1: [0, 5, 7, 8, 9], 4000: [0, 1, 3, 6, 8, 9], ALL: list(range(10))}
    assert _testing.select_tokens([1] * 320, [0.0] * 320, 1, 1, [], 1)[32:64] == list(range(160, 192))


def test_spc_49_a_prompt_pays_only_if_its_backbone_does() -> None:
    assert reason("auto", 3000, 10000, backbone=3000) == "" == reason("auto", 3000, 10000, backbone=6000)
    assert reason("auto", 3000, 10000, backbone=8000) == "not_profitable" != reason("auto", 3000, 10000)


def test_spc_41_known_selections() -> None:
    """6007 tokens at 0.3: 57 of 188 chunks, of which the last has 23 tokens. Of equal scores the first stay."""
    flat = [0.5] * 6007
    found = _testing.select_tokens([1] * 6007, flat, 3000)
    assert len(found) == 56 * CHUNK + 23 == 1815
    assert found[: 56 * CHUNK] == list(range(56 * CHUNK))
    assert _testing.least_selected(6007, 3000) == 1803
    assert _testing.select_tokens([1] * 64, [1.0] * 32 + [0.0] * 32, 5000) == list(range(64))  # both are anchors
    assert _testing.select_tokens([1] * 33, [0.0] * 33, 300) == list(range(33))
    assert _testing.select_tokens([7], [0.0], 1) == [0]
    peak = [0.0] * 320
    peak[5 * CHUNK + 3] = 1.0
    assert _testing.select_tokens([1] * 320, peak, 3000) == [*range(CHUNK), *range(160, 192), *range(288, 320)]


DENSE: list[tuple[dict[str, Any], str]] = [
    ({"policy": "dense"}, "requested"),
    ({"policy": "dense", "keep": ALL}, "requested"),
    ({"keep": ALL}, "keep_all"),
    ({"keep": ALL, "wants_scores": True}, "keep_all"),
    ({"backbone": ALL}, "keep_all"),
    ({"wants_scores": True}, "prompt_scores"),
    ({"wants_scores": True, "n_new": 65537}, "prompt_scores"),
    ({"wants_scores": True, "has_media": True}, "prompt_scores"),
    ({"has_media": True, "n_new": 65537}, "media"),
    ({"policy": "auto", "has_media": True}, "media"),
    ({"n_new": 65537}, "over_limit"),
    ({"n_new": 101, "max_tokens": 100}, "over_limit"),
    ({"n_new": 100, "n_cached": 1, "max_scored": 100}, "over_limit"),
    ({"policy": "auto", "n_new": 8192}, "below_threshold"),
    ({"policy": "auto", "n_new": 100, "threshold": 100}, "below_threshold"),
    ({"policy": "auto", "n_new": 8192, "n_cached": 50000}, "below_threshold"),
    ({"policy": "auto", "draft": (1.0, 0)}, "not_profitable"),
]
SPARSE: list[dict[str, Any]] = [
    {"n_new": 1},
    {"n_new": 100},
    {"n_new": 65536},
    {"n_new": 100, "n_cached": 50, "max_scored": 150},
    {"draft": (1.0, 0)},
    {"policy": "auto", "n_new": 8193},
    {"policy": "auto", "n_new": 101, "threshold": 100},
]


def reason(policy: str = "sparse", keep: int = 3000, n_new: int = 20000, **facts: Any) -> str:
    return str(_testing.why_dense(policy, keep, n_new, **facts))


@pytest.mark.parametrize(("facts", "expected"), DENSE)
def test_spc_40_a_dense_prompt_has_a_reason(facts: dict[str, Any], expected: str) -> None:
    assert reason(**facts) == expected


@pytest.mark.parametrize("facts", SPARSE)
def test_spc_40_any_other_prompt_is_sparse(facts: dict[str, Any]) -> None:
    assert reason(**facts) == ""


@pytest.mark.parametrize("n", [8193, 16384, 65536])
def test_spc_40_the_guard_weighs_products_and_attention(n: int) -> None:
    """The draft's attention grows with the square of the prompt: what pays at 8 K may lose at 64 K."""
    model = (1.0, 1e-5)

    def time(cost: tuple[float, float], rows: float) -> float:
        return cost[0] * rows + cost[1] * rows**2

    seen = set()
    for keep in (500, 3000, 6000, 9000):
        for linear in (0.05, 0.2, 0.5, 0.9):
            for quadratic in (0.0, 1e-6, 1e-5, 4e-5):
                draft = (linear, quadratic)
                least = -(-n * keep // ALL)
                pays = time(draft, n) + time(model, least) < 0.8 * time(model, n)
                assert reason("auto", keep, n, draft=draft, model=model) == ("" if pays else "not_profitable")
                seen.add(pays)
    assert seen == {True, False}


def test_spc_40_what_pays_at_one_length_may_not_at_another() -> None:
    costs: dict[str, Any] = {"draft": (0.1, 2e-5), "model": (1.0, 5e-6)}
    assert [reason("auto", 3000, n, **costs) for n in (8193, 16384, 65536)] == ["", "", "not_profitable"]


def test_spc_40_a_cached_prefix_saves_the_model_but_not_the_scoring() -> None:
    """The draft model reads all of the prompt; the model would read the rest alone."""
    costs: dict[str, Any] = {"draft": (0.2, 0.0), "model": (1.0, 0.0)}
    assert reason("auto", 3000, 10000, **costs) == ""
    assert reason("auto", 3000, 10000, n_cached=20000, **costs) == "not_profitable"


Noise = Callable[[random.Random], float]


@pytest.mark.parametrize("noise", [lambda rng: 1.0, lambda rng: rng.uniform(0.95, 1.05)], ids=["exact", "noisy"])
def test_spc_40_costs_are_fitted_to_chunks_as_they_are_served(noise: Noise) -> None:
    rng = random.Random(4)
    fit = _testing.PromptCostFit()
    assert not fit.is_known
    linear, quadratic = 2000.0, 0.05
    for _ in range(20):
        for first in range(0, 8192, 512):
            fit.add(first, 512, (linear * 512 + quadratic * ((first + 512) ** 2 - first**2)) * noise(rng))
    assert fit.is_known
    found = fit.cost
    assert found[0] == pytest.approx(linear, rel=PROMPT_COST)
    assert found[1] == pytest.approx(quadratic, rel=PROMPT_COST)


def test_spc_40_costs_of_odd_chunks_are_no_less_than_nothing() -> None:
    fit = _testing.PromptCostFit()
    fit.add(0, 8, 1e9)  # too short to say what a row costs
    assert not fit.is_known
    assert fit.cost == (0, 0)
    for first in (0, 512, 1024):
        fit.add(first, 512, 1e6 / (1 + first))  # the deeper the cheaper
    assert fit.cost[0] > 0
    assert fit.cost[1] == 0
    fit = _testing.PromptCostFit()
    for first in (0, 512, 1024):
        fit.add(first, 512, 1.0 + first**2)
    assert fit.cost[0] >= 0
