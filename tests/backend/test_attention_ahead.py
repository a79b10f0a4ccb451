"""Attention of rows that see keys after their own, as those of an image do: against float64, and bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backend.test_attention import DTYPES, GEOMETRIES, sinks_of
from imp_service import _testing as core
from support.kernels.attention_cases import (
    Expected,
    Held,
    assert_one_result,
    attend,
    attend_all,
    make_cache,
    make_sequences,
)
from support.kernels.bits import assert_same_bits
from support.kernels.devices import BEST, DEVICES
from support.oracles.attention_oracle import Heads, is_quantized

ALL_AHEAD = 1 << 30
Spans = list[tuple[int, int]]  # first cell and the one behind the last

# (tokens held, rows requested) of a sequence, and its spans: across two borders of splits; two that touch; one whose
# first cells are cached; all of a sequence; none.
SEQUENCES: list[tuple[tuple[int, int], Spans]] = [
    ((530, 330), [(205, 525)]),
    ((150, 130), [(30, 71), (71, 140)]),
    ((300, 60), [(201, 287)]),
    ((17, 17), [(0, 17)]),
    ((300, 20), []),
    ((600, 1), []),
]
HEADS = [GEOMETRIES[i] for i in (1, 2, 10)]  # several heads on each of k and v, and all on one
POLICIES: list[dict[str, float]] = [
    {"ahead": ALL_AHEAD},
    {"ahead": ALL_AHEAD, "window": 7},
    {"ahead": ALL_AHEAD, "window": 260, "soft_cap": 5.0},
    {"ahead": 1},
    {"ahead": 90, "window": 30},
]


def ends_of(first: int, n_rows: int, spans: Spans) -> list[int]:
    """Returns the end of the span of each row, or that of the row itself."""
    return [next((end for begin, end in spans if begin <= p < end), p + 1) for p in range(first, first + n_rows)]


def sequences_with_spans(seed: int, heads: Heads) -> tuple[list[Held], int]:
    sequences, n_blocks = make_sequences(np.random.default_rng(seed), heads, [shape for shape, _ in SEQUENCES])
    for held, (_, spans) in zip(sequences, SEQUENCES, strict=True):
        held.ends = ends_of(held.first, len(held.q), spans) if spans else []
    return sequences, n_blocks


def fitting(heads: Heads, dtype: str) -> Heads:
    return replace(heads, head_dim=64) if is_quantized(dtype) and heads.head_dim % 32 else heads


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", HEADS, ids=lambda heads: str(heads.n_heads))
def test_med_16_krn_1_rows_of_a_span_see_all_of_it(heads: Heads, dtype: str) -> None:
    heads = fitting(heads, dtype)
    sequences, n_blocks = sequences_with_spans(7, heads)
    cache = make_cache(BEST, heads, dtype, n_blocks, sequences)
    for policy in POLICIES:
        shaped = replace(heads, sinks=sinks_of(heads) if "soft_cap" in policy else (), **policy)
        actual = attend_all(cache, shaped, sequences)
        expected = Expected(shaped, dtype, sequences)
        assert expected.worst(actual) <= 1
        # Negative controls: no key ahead, one less of those that the cap leaves, a wider window.
        assert expected.is_missed(actual, oracle=replace(shaped, ahead=0))
        if shaped.ahead < ALL_AHEAD:
            assert expected.is_missed(actual, oracle=replace(shaped, ahead=shaped.ahead - 1))
        if shaped.window:
            assert expected.is_missed(actual, oracle=replace(shaped, window=shaped.window + 1))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "q8_0", "rot4"])
def test_med_16_an_end_off_by_one_is_seen(dtype: str) -> None:
    heads = fitting(replace(HEADS[0], ahead=ALL_AHEAD), dtype)
    sequences, n_blocks = sequences_with_spans(8, heads)
    cache = make_cache(BEST, heads, dtype, n_blocks, sequences)
    actual = attend_all(cache, heads, sequences)
    assert Expected(heads, dtype, sequences).worst(actual) <= 1
    for held, (_, spans) in zip(sequences, SEQUENCES, strict=True):
        shorter = [(begin, end - 1) for begin, end in spans]
        held.ends = ends_of(held.first, len(held.q), shorter) if spans else []
    assert Expected(heads, dtype, sequences).worst(actual) > 1


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", HEADS, ids=lambda heads: str(heads.n_heads))
def test_med_16_det_1_det_4_det_7_one_result_however_the_work_is_cut(heads: Heads, dtype: str) -> None:
    """Spans in one batch with others, alone, and what is left of a span after any part of it."""
    heads = replace(fitting(heads, dtype), ahead=ALL_AHEAD, window=290, soft_cap=20.0)
    sequences, n_blocks = sequences_with_spans(9, heads)
    assert_one_result(heads, dtype, sequences, n_blocks, lambda held, rows: {"ends": [held.ends[rows]]})


@pytest.mark.parametrize("dtype", DTYPES)
def test_med_16_nothing_behind_a_span_is_seen_and_nothing_before_it_changes(dtype: str) -> None:
    heads = fitting(replace(HEADS[0], ahead=ALL_AHEAD), dtype)
    sequences, n_blocks = make_sequences(np.random.default_rng(10), heads, [(340, 340)])
    held = sequences[0]
    held.ends = ends_of(0, 340, [(20, 150), (150, 290)])
    clean = attend_all(make_cache(BEST, heads, dtype, n_blocks, sequences), heads, sequences)

    def with_cell(cell: int) -> np.ndarray:
        k, v = held.k.copy(), held.v.copy()
        k[cell:] = v[cell:] = np.nan
        changed = [replace(held, k=k, v=v)]
        return attend_all(make_cache(BEST, heads, dtype, n_blocks, changed), heads, changed)

    for cell, first_changed in ((290, 290), (289, 150), (150, 150), (149, 20), (20, 20)):
        found = with_cell(cell)
        assert_same_bits(found[:first_changed], clean[:first_changed])
        assert np.isnan(found[first_changed:]).all()


def test_med_16_a_sequence_without_ends_keeps_its_bits() -> None:
    """Beside one with ends; and ends without effect, in a layer that sees nothing ahead."""
    heads = replace(HEADS[1], ahead=ALL_AHEAD)
    sequences, n_blocks = sequences_with_spans(11, heads)
    cache = make_cache(BEST, heads, "f16", n_blocks, sequences)
    mixed = np.split(attend_all(cache, heads, sequences), np.cumsum([len(held.q) for held in sequences])[:-1])
    for held, rows in zip(sequences, mixed, strict=True):
        causal = attend(cache, replace(heads, ahead=0), [held.asked()], held.q)
        own = ends_of(held.first, len(held.q), [])
        assert_same_bits(attend(cache, heads, [held.asked()], held.q, ends=[own]), causal)
        assert_same_bits(attend(cache, replace(heads, ahead=0), [held.asked()], held.q, ends=[held.ends]), causal)
        assert np.array_equal(rows, causal) == (not held.ends)


@pytest.mark.parametrize(("head_dim", "lengths"), [(32, (1, 17, 256, 300)), (64, (257,)), (128, (2, 600))])
def test_emb_8_rows_of_an_encoder_see_all_of_their_text_or_a_window_to_both_sides(
    head_dim: int, lengths: tuple[int, ...]
) -> None:
    """Texts that end around the borders of splits, each in the cache as a whole, and one of a single row."""
    heads = replace(HEADS[0], n_heads=2, n_kv_heads=1, head_dim=head_dim, scale=head_dim**-0.5)
    sequences, n_blocks = make_sequences(np.random.default_rng(13), heads, [(n, n) for n in lengths])
    for held in sequences:
        held.ends = [len(held.k)] * len(held.k)
    for half in (0, 64):
        shaped = replace(heads, ahead=half or ALL_AHEAD, window=half + 1 if half else 0)
        results = [
            attend_all(make_cache(device, heads, "f32", n_blocks, sequences), shaped, sequences)
            for device in (DEVICES[0], BEST)
        ]
        assert_same_bits(*results)
        expected = Expected(shaped, "f32", sequences)
        assert expected.worst(results[0]) <= 1
        if head_dim == 64:
            assert expected.is_missed(results[0], oracle=replace(shaped, ahead=0))
            assert not half or expected.is_missed(results[0], oracle=replace(shaped, window=half + 2))
            assert not half or expected.is_missed(results[0], oracle=replace(shaped, ahead=half + 1))


@pytest.mark.parametrize("device", DEVICES)
def test_hon_2_attention_ahead_is_counted(device: core.Device) -> None:
    heads = HEADS[0]
    sequences, n_blocks = sequences_with_spans(12, heads)
    cache = make_cache(device, heads, "f32", n_blocks, sequences)

    def counted(ahead: int, some: list[Held]) -> int:
        before = device.launches()["attend_ahead"]
        attend_all(cache, replace(heads, ahead=ahead), some)
        return device.launches()["attend_ahead"] - before

    assert [counted(ALL_AHEAD, sequences), counted(0, sequences), counted(ALL_AHEAD, sequences[-2:])] == [1, 0, 0]
