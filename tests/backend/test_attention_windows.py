"""Windows of sequences whose cells have positions with gaps: against float64, and bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backend.test_attention import DTYPES, GEOMETRIES, sinks_of
from support.kernels.attention_cases import (
    Expected,
    Held,
    assert_one_result,
    attend_all,
    make_cache,
    make_sequences,
)
from support.kernels.bits import assert_same_bits
from support.kernels.devices import BEST
from support.oracles.attention_oracle import Heads, is_quantized

HEADS = [GEOMETRIES[i] for i in (1, 2, 10)]
POLICIES: list[dict[str, float]] = [{"window": 7}, {"window": 260, "soft_cap": 5.0}, {"window": 900}]
# (tokens held, rows requested): a prompt across borders of splits, a chunk, a row that decodes.
SHAPES = [(600, 600), (300, 40), (700, 1)]


def with_gaps(seed: int, heads: Heads) -> tuple[list[Held], int]:
    """Sequences of which about every third chunk of 32 positions is kept, and one without a gap."""
    numbers = np.random.default_rng(seed)
    sequences, n_blocks = make_sequences(numbers, heads, [*SHAPES, (300, 40)])
    for held in sequences[:-1]:
        n_chunks = -(-len(held.k) // 32)
        chunks = np.sort(numbers.choice(3 * n_chunks, n_chunks, replace=False))
        positions = (chunks[:, None] * 32 + np.arange(32)).reshape(-1)[: len(held.k)]
        first = positions[held.first :] - int(heads.window) + 1
        held.starts = [int(np.argmax(positions >= at)) for at in first]
    return sequences, n_blocks


def fitting(heads: Heads, dtype: str, policy: dict[str, float]) -> Heads:
    size = 64 if is_quantized(dtype) and heads.head_dim % 32 else heads.head_dim
    return replace(heads, head_dim=size, sinks=sinks_of(heads) if "soft_cap" in policy else (), **policy)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", HEADS, ids=lambda heads: str(heads.n_heads))
def test_spp_6_krn_1_a_row_sees_the_keys_from_its_start(heads: Heads, dtype: str) -> None:
    for policy in POLICIES:
        shaped = fitting(heads, dtype, policy)
        sequences, n_blocks = with_gaps(3, shaped)
        cache = make_cache(BEST, shaped, dtype, n_blocks, sequences)
        actual = attend_all(cache, shaped, sequences)
        assert Expected(shaped, dtype, sequences).worst(actual) <= 1
        # Negative control: one key less in each window.
        for held in sequences:
            held.starts = [min(start + 1, held.first + row) for row, start in enumerate(held.starts)]
        assert Expected(shaped, dtype, sequences).worst(actual) > 1


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", HEADS, ids=lambda heads: str(heads.n_heads))
def test_spp_6_det_1_det_4_det_7_one_result_however_the_work_is_cut(heads: Heads, dtype: str) -> None:
    shaped = fitting(heads, dtype, POLICIES[1])
    sequences, n_blocks = with_gaps(4, shaped)
    assert_one_result(shaped, dtype, sequences, n_blocks, lambda held, rows: {"starts": [held.starts[rows]]})


def test_spp_6_starts_of_cells_without_gaps_change_no_bit() -> None:
    """And none have an effect in a layer without a window."""
    heads = replace(HEADS[0], window=90)
    sequences, n_blocks = make_sequences(np.random.default_rng(5), heads, SHAPES)
    cache = make_cache(BEST, heads, "f32", n_blocks, sequences)
    plain, causal = attend_all(cache, heads, sequences), attend_all(cache, replace(heads, window=0), sequences)
    for held in sequences:
        held.starts = [max(0, held.first + row - 89) for row in range(len(held.q))]
    assert_same_bits(attend_all(cache, heads, sequences), plain)
    assert_same_bits(attend_all(cache, replace(heads, window=0), sequences), causal)
    assert not np.array_equal(plain, causal)
