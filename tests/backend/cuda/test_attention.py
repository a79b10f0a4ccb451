"""Attention on a GPU beyond tests/backend/test_attention.py, which tests every device: kernels, steps, the cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.attention_cases import Asked, Held, attend, attend_all, make_cache, make_sequences, worst
from support.kernels.bits import assert_same_bits
from support.kernels.devices import GPU_KINDS, GPUS, emulated_only
from support.oracles.attention_oracle import Heads, blocks_of, stored

Array = np.ndarray

each_gpu = pytest.mark.parametrize("device", GPUS, ids=lambda device: device.name.replace(" ", "_"))
each_dtype = pytest.mark.parametrize("dtype", ["f16", "bf16", "q8_0"])


def another(device: core.Device) -> core.Device:
    """Makes a device of the same kind, with nothing reserved or captured."""
    return core.Device(kind=GPU_KINDS[GPUS.index(device)])


HEADS = Heads(n_heads=6, n_kv_heads=2, head_dim=64, scale=0.125)
SHAPES = [(330, 1), (1, 1), (300, 5), (65, 20), (256, 1)]


@pytest.mark.long
@emulated_only
@each_dtype
@pytest.mark.parametrize("head_dim", [32, 128, 256])
def test_det_11_no_order_of_threads_changes_a_bit(head_dim: int, dtype: str) -> None:
    heads = replace(HEADS, head_dim=head_dim, window=200)
    sequences, n_blocks = make_sequences(np.random.default_rng(1), heads, SHAPES)
    device = core.Device(kind="cuda_emulated")
    found = []
    for seed in (0, 1, 2, 3):
        core.set_thread_order(device, seed)
        cache = make_cache(device, heads, dtype, n_blocks, sequences)
        found.append(attend_all(cache, heads, sequences))
    for other in found[1:]:
        assert_same_bits(other, found[0])


def assert_each_alone_equals(together: Array, cache: core.Cache, heads: Heads, sequences: list[Held]) -> None:
    row = 0
    for held in sequences:
        alone = attend(cache, heads, [held.asked()], held.q)
        assert_same_bits(alone, together[row : row + len(held.q)])
        row += len(held.q)


@pytest.mark.long
@each_gpu
@pytest.mark.parametrize("window", [0, 40])
def test_det_13_many_sequences_of_one_row_equal_each_alone(device: core.Device, window: int) -> None:
    """Other sequences in the batch, also with several rows, change nothing."""
    heads = replace(HEADS, n_heads=2, n_kv_heads=1, window=window)
    rng = np.random.default_rng(2)
    shapes = [(int(n), 1) for n in rng.integers(1, 400, size=64)] + [(600, 1), (20, 3), (530, 1)]
    sequences, n_blocks = make_sequences(rng, heads, shapes)
    cache = make_cache(device, heads, "f16", n_blocks, sequences)
    together = attend_all(cache, heads, sequences)
    assert worst(together, heads, "f16", sequences, device=device) <= 1
    assert_each_alone_equals(together, cache, heads, sequences)
    assert np.any(together[0] != together[1])


@pytest.mark.long
@each_gpu
@each_dtype
@pytest.mark.parametrize("long_at", [0, 2, 4])
def test_det_13_sequences_whose_splits_find_no_room_equal_each_alone(
    device: core.Device, dtype: str, long_at: int
) -> None:
    """The scratch fits the splits of two of six sequences: the last of these five is evaluated without splits."""
    shapes = [(257, 1), (290, 1), (300, 1), (257, 1)]
    shapes.insert(long_at, (1281, 1))
    heads = replace(HEADS, soft_cap=20.0)
    sequences, n_blocks = make_sequences(np.random.default_rng(9), heads, shapes)
    cache = make_cache(another(device), heads, dtype, n_blocks, sequences)
    together = attend_all(cache, heads, sequences, max_sequences=2)
    assert worst(together, heads, dtype, sequences, device=device) <= 1
    assert_each_alone_equals(together, cache, heads, sequences)


@pytest.mark.long
@each_gpu
@each_dtype
def test_det_13_the_context_that_was_reserved_decides_no_bit(device: core.Device, dtype: str) -> None:
    sequences, n_blocks = make_sequences(np.random.default_rng(3), HEADS, [(1100, 1), (1030, 4), (500, 1)])
    found = []
    for max_context in (0, 64 * 256 + 1):
        cache = make_cache(another(device), HEADS, dtype, n_blocks, sequences)
        found.append(attend_all(cache, HEADS, sequences, max_context=max_context))
    assert_same_bits(found[1], found[0])


@pytest.mark.long
@each_gpu
@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_det_13_krn_1_a_long_sequence_of_one_row_equals_its_row_among_several(device: core.Device, dtype: str) -> None:
    """Single rows merge splits in groups of 32 in three places; several rows merge them one after the other."""
    heads = Heads(n_heads=1, n_kv_heads=1, head_dim=32, scale=0.2)
    sequences, n_blocks = make_sequences(np.random.default_rng(10), heads, [(100 * 256 + 30, 2)])
    cache = make_cache(another(device), heads, dtype, n_blocks, sequences)
    held = sequences[0]
    together = attend_all(cache, heads, sequences)
    assert worst(together, heads, dtype, sequences, device=device) <= 1
    for i in range(2):
        assert_same_bits(attend(cache, heads, [held.asked(i, i + 1)], held.q[i : i + 1]), together[i : i + 1])


# Sequences of (rows, position of the first), the number of states, the window, and each sequence's first state, or
# None if it is not split.
DIVISIONS = [
    ([(1, 255), (1, 256), (3, 700), (1, 2047), (1, 511)], 12, 0, [None, 0, None, 2, 10]),
    ([(1, 255), (1, 256), (3, 700), (1, 2047), (1, 511)], 11, 0, [None, 0, None, 2, None]),
    ([(1, 2048), (1, 256), (1, 511), (1, 700)], 8, 0, [None, 0, 2, 4]),  # nine never fit: this sequence claims none
    ([(1, 700), (1, 1500), (1, 256)], 8, 0, [0, None, None]),  # a claim that does not fit counts too
    ([(1, 4000), (1, 4096), (1, 300)], 4, 200, [0, 2, None]),
    ([(1, 5000)] * 100, 20 * 70, 0, [20 * i if i < 70 else None for i in range(100)]),
    ([(1, 300), (1, 10)] * 50, 0, 0, [None] * 100),
]


@emulated_only
@pytest.mark.parametrize(("sequences", "n_states", "window", "first_states"), DIVISIONS)
def test_det_13_sequences_are_divided_while_there_is_room(
    sequences: list[tuple[int, int]], n_states: int, window: int, first_states: list[int | None]
) -> None:
    works: list[tuple[int, int, int]] = []
    states: list[tuple[int, int]] = []
    for i, ((n_rows, position), state) in enumerate(zip(sequences, first_states, strict=True)):
        seen_from = max(0, position - window + 1) if window else 0
        n_splits = position // 256 - seen_from // 256 + 1
        states.append((0, 0) if state is None else (state, n_splits))
        if n_rows == 1 and state is None:
            works.append((i, 0, -1))
        elif state is not None:
            works += [(i, within, state + within) for within in range(n_splits)]
    for step in (1, 7, 264):
        for first in (0, 3):
            found = core.attention_division(sequences, n_states, window=window, first=first, step=step)
            assert found == ([*works[first::step], (-1, 0, -1)], states)


MIB = 1 << 20


def test_kv_5_states_of_splits_take_memory_by_need_and_at_most_64_mib() -> None:
    def taken(max_sequences: int, max_context: int, n_heads: int = 32, head_dim: int = 128) -> int:
        return core.attention_scratch_bytes(max_sequences, max_context, n_heads=n_heads, head_dim=head_dim)

    assert taken(64, 256) == 0
    assert taken(1, 257) == 2 * 32 * 130 * 4
    assert taken(3, 2048, n_heads=14, head_dim=64) == 3 * 8 * 14 * 66 * 4
    for max_sequences in (1, 64, 65535):
        for max_context in (131072, 1 << 20, 1 << 30):
            for n_heads, head_dim in ((1, 8), (32, 128), (128, 256)):
                assert taken(max_sequences, max_context, n_heads, head_dim) <= 128 * MIB
    assert taken(64, 131072) > 127 * MIB


@each_gpu
def test_kv_5_tables_of_blocks_take_memory_by_sequences_and_not_by_rows(device: core.Device) -> None:
    context = 131072

    def scratch(max_rows: int, max_sequences: int) -> int:
        told, held = core.attention_scratch_for(
            another(device),
            max_rows=max_rows,
            max_sequences=max_sequences,
            max_context=context,
            n_heads=1,
            head_dim=8,
        )
        assert told == held
        return told

    def states(max_sequences: int) -> int:
        return core.attention_scratch_bytes(max_sequences, context, n_heads=1, head_dim=8)

    assert scratch(8192, 64) - scratch(64, 64) == (8192 - 64) * 8 * 4
    assert scratch(64, 64) - scratch(64, 1) == 63 * (context // 16 + 1) * 4 + states(64) - states(1)


@emulated_only
def test_krn_1_a_gpu_refuses_heads_by_the_cache_that_it_has() -> None:
    """Blocks have 163 KiB of shared memory on an A100, and 99 KiB on GPUs of compute capability 8.6 and 8.9."""
    for dtype in ("f16", "bf16", "q8_0"):
        core.attention_require_served(163 << 10, dtype, 256)
        core.attention_require_served(99 << 10, dtype, 64)
    core.attention_require_served(99 << 10, "f16", 128)
    with pytest.raises(Exception, match=r"head_dim: 256, expected one for .* of q8_0 than the 101376 bytes"):
        core.attention_require_served(99 << 10, "q8_0", 256)


@pytest.mark.long
@each_gpu
@each_dtype
def test_det_10_a_captured_step_serves_sequences_of_any_length(device: core.Device, dtype: str) -> None:
    rng = np.random.default_rng(4)
    lengths = [(20, 3, 64), (21, 4, 65), (700, 1, 256), (5, 300, 511), (513, 2, 1)]
    sequences, n_blocks = make_sequences(rng, HEADS, [(700, 1)] * 3)
    cache = make_cache(another(device), HEADS, dtype, n_blocks, sequences)
    steps: list[tuple[list[Asked], Array]] = []
    for of_step in lengths:
        batch = [(1, n - 1, held.blocks) for n, held in zip(of_step, sequences, strict=True)]
        steps.append((batch, rng.normal(size=(3, HEADS.n_heads * HEADS.head_dim)).astype(np.float32)))
    results = cache.attend_in_steps(1, steps, HEADS.n_heads, HEADS.scale, max_context=700)
    for (batch, q), result in zip(steps, results, strict=True):
        assert_same_bits(result, attend(cache, HEADS, batch, q))
    assert np.any(results[0] != results[1])


@pytest.mark.long
@each_gpu
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("head_dim", [64, 256])
@pytest.mark.parametrize("endless", [np.inf, -np.inf, np.nan])
def test_krn_1_what_a_row_does_not_see_may_be_endless(
    device: core.Device, head_dim: int, dtype: str, endless: float
) -> None:
    """Puts infinity or NaN after a row, or before its window, in the tile of keys and values that it attends to."""
    heads = replace(HEADS, head_dim=head_dim, window=50)
    sequences, n_blocks = make_sequences(np.random.default_rng(5), heads, [(150, 150)])
    held = sequences[0]
    clean = attend_all(make_cache(device, heads, dtype, n_blocks, sequences), heads, sequences)
    spoiled: list[Held] = [replace(held, k=held.k.copy(), v=held.v.copy())]
    spoiled[0].v[30, 3] = endless
    spoiled[0].v[70] = endless
    spoiled[0].k[70] = endless
    found = attend_all(make_cache(device, heads, dtype, n_blocks, spoiled), heads, spoiled)
    sees = np.zeros(150, bool)
    sees[70:120] = True
    partly = np.zeros(150, bool)
    partly[30:80] = True
    assert_same_bits(found[~(sees | partly)], clean[~(sees | partly)])
    assert not np.isfinite(found[sees]).any()
    column = np.arange(found.shape[1])
    touched = (column // head_dim // heads.group == 0) & (column % head_dim == 3)
    assert not np.isfinite(found[partly][:, touched]).any()
    assert_same_bits(found[partly & ~sees][:, ~touched], clean[partly & ~sees][:, ~touched])


def cached(cache: core.Cache, dtype: str, heads: Heads, n_blocks: int, block_tokens: int) -> tuple[Array, ...]:
    """Returns values by [layer, block, kv head, K or V, token, element]; for q8_0, codes and scales."""
    memory = np.frombuffer(cache.memory(), np.uint8)
    n, d = block_tokens, heads.head_dim
    if dtype != "q8_0":
        return (memory.view(np.uint16).reshape(2, n_blocks + 1, heads.n_kv_heads, 2, n, d),)
    parts = memory.reshape(2, n_blocks + 1, heads.n_kv_heads, 2, -1)
    codes = parts[..., : n * d].reshape(*parts.shape[:-1], n, d).view(np.int8)
    scales = np.ascontiguousarray(parts[..., n * d :]).view(np.float16).reshape(*parts.shape[:-1], n, d // 32)
    return codes, scales


@each_gpu
@each_dtype
@pytest.mark.parametrize("block_tokens", [16, 64])
def test_kvq_1_gen_24_the_cache_holds_rounded_rows(device: core.Device, dtype: str, block_tokens: int) -> None:
    rng = np.random.default_rng(6)
    heads = replace(HEADS, head_dim=96, n_kv_heads=3)
    n, blocks = block_tokens + 13, [3, 1]
    rows = [rng.normal(size=(n, heads.n_kv_heads * heads.head_dim)).astype(np.float32) for _ in range(2)]
    edges = np.float32(
        [0, -0.0, 1e-8, 2**-25, 6.1e-5, 1 + 2**-11, 65504, 65520, 3.4e38, np.inf, -np.inf, np.nan, 1e-39]
    )
    for values in rows:
        values[5:9] = rng.choice(edges, size=values[5:9].shape)
        values[9] *= rng.choice(np.float32([1e-9, 1e-5, 1e6, 1e9]), size=values[9].shape)
        values[10] = 0
    cache = core.Cache(
        device, dtype=dtype, n_layers=2, n_kv_heads=3, head_dim=96, n_blocks=4, block_tokens=block_tokens
    )
    assert not np.frombuffer(cache.memory(), np.uint8).any()
    for begin, end in ((0, 11), (11, 12), (12, n)):
        in_use = blocks[: -(-end // block_tokens)]
        cache.append(1, [(end - begin, begin, in_use)], rows[0][begin:end], rows[1][begin:end])
    found = cached(cache, dtype, heads, 4, block_tokens)
    for part in found:
        untouched = np.delete(part[1], blocks, axis=0)
        assert not part[0].any() and not untouched.view(np.uint8).any()
    for which, values in enumerate(rows):
        for head in range(heads.n_kv_heads):
            of_head = values[:, head * 96 : (head + 1) * 96]
            held = [np.concatenate([part[1, block, head, which] for block in blocks])[:n] for part in found]
            if dtype == "q8_0":
                codes, scales = blocks_of(of_head)
                np.testing.assert_array_equal(held[0], codes.reshape(n, 96))
                np.testing.assert_array_equal(held[1], scales[..., 0])
                continue
            with np.errstate(over="ignore"):
                expected = stored(of_head, dtype)
            as_float = (
                held[0].view(np.float16) if dtype == "f16" else (held[0].astype(np.uint32) << 16).view(np.float32)
            )
            np.testing.assert_array_equal(as_float.astype(np.float64), expected)


@each_gpu
@each_dtype
def test_kv_5_a_pool_takes_what_the_plan_counts(device: core.Device, dtype: str) -> None:
    shape = {"dtype": dtype, "n_layers": 3, "n_kv_heads": 2, "head_dim": 64, "block_tokens": 32}
    taken = [core.Cache(device, **shape, n_blocks=n).n_bytes for n in (0, 1, 7)]
    assert taken == [core.kv_bytes(device, **shape, n_blocks=n) for n in (0, 1, 7)]
    row = 64 * 2 if dtype != "q8_0" else 68
    assert taken[1] - taken[0] == 3 * 2 * 32 * 2 * row
    assert taken[2] - taken[0] == 7 * (taken[1] - taken[0])


@each_gpu
def test_krn_1_what_cannot_be_done_is_refused_in_words(device: core.Device) -> None:
    fields = {"n_layers": 1, "n_kv_heads": 2, "head_dim": 64, "n_blocks": 1}
    for dtype in ("f32", "rot8", "f16/q8_0"):
        with pytest.raises(Exception, match=f"kv dtype: {dtype}, expected f16, bf16 or q8_0 on cuda"):
            core.Cache(device, dtype=dtype, **fields)
        with pytest.raises(Exception, match=f"kv dtype: {dtype}, expected"):
            core.kv_bytes(device, dtype=dtype, **fields)
    with pytest.raises(Exception, match="head_dim: 12, expected a multiple of 8"):
        core.Cache(device, dtype="f16", **{**fields, "head_dim": 12})
    with pytest.raises(Exception, match="block_tokens: 48, expected 16, 32"):
        core.Cache(device, dtype="f16", **fields, block_tokens=48)
    large = core.Cache(device, dtype="f16", **{**fields, "head_dim": 264})
    row = np.zeros((1, 2 * 264), np.float32)
    with pytest.raises(Exception, match="attention head_dim: 264, expected at most 256 on cuda"):
        large.attend(0, [(1, 0, [0])], row, 2, 1.0)
