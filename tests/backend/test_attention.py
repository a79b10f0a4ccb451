"""Attention over a paged cache: against float64, and bit for bit against itself however the work is divided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.attention_cases import NAN_BYTE, Expected, attend, attend_all, make_cache, make_sequences, worst
from support.kernels.bits import assert_same_bits
from support.kernels.devices import BEST, DEVICES, EMULATED, FAMILIES, GPUS
from support.oracles.attention_oracle import Heads, blocks_of, is_quantized, stored
from support.oracles.rotation_oracle import ROTATED, codes_of, rotate

Array = np.ndarray


MIXED = [(1, 1), (40, 40), (300, 1), (700, 3), (513, 20), (256, 1)]  # prefill, decode, verify; across split borders

GEOMETRIES = [
    Heads(n_heads=3, n_kv_heads=3, head_dim=64, scale=0.125),
    Heads(n_heads=4, n_kv_heads=2, head_dim=80, scale=80**-0.5),
    Heads(n_heads=9, n_kv_heads=3, head_dim=96, scale=96**-0.5),
    Heads(n_heads=4, n_kv_heads=1, head_dim=128, scale=0.1),
    Heads(n_heads=10, n_kv_heads=2, head_dim=16, scale=0.25),
    Heads(n_heads=6, n_kv_heads=1, head_dim=192, scale=192**-0.5),
    Heads(n_heads=14, n_kv_heads=2, head_dim=8, scale=0.4),
    Heads(n_heads=8, n_kv_heads=1, head_dim=256, scale=1 / 16),
    Heads(n_heads=2, n_kv_heads=1, head_dim=512, scale=512**-0.5),
    Heads(n_heads=71, n_kv_heads=1, head_dim=64, scale=0.125),
    Heads(n_heads=18, n_kv_heads=1, head_dim=64, scale=0.125),
]
POLICIES = [{}, {"window": 7}, {"window": 260}, {"soft_cap": 2.0}, {"window": 100, "soft_cap": 5.0}]


PLAIN = ("f32", "f16", "bf16", "q8_0", "rot8", "rot4", "rot3", "rot2")
# Keys of one type and values of another.
PAIRS = ("q8_0/rot4", "bf16/rot8", "rot4/f32", "f16/bf16")
DTYPES = PLAIN + PAIRS


# GPUs hold types of up to 16 bits and heads of up to 256 elements; 71 take too long on the emulated one.
GPU_DTYPES = ("f16", "bf16", "q8_0")
GPU_MOST_HEAD_DIM = 256
GPU_MOST_HEADS = 18


def with_dtypes(geometries: list[Heads]) -> pytest.MarkDecorator:
    """Parametrizes a test with each family of devices, each geometry, and each type that supports it."""
    cases = [
        pytest.param(
            devices,
            heads,
            dtype,
            id=f"{'cpu' if devices is DEVICES else devices[0].name.replace(' ', '_')}"
            f"-{heads.n_heads}-{heads.n_kv_heads}-{heads.head_dim}-{dtype}",
        )
        for devices in FAMILIES
        for heads in geometries
        for dtype in DTYPES
        if not is_quantized(dtype) or heads.head_dim % 32 == 0
        if devices is DEVICES
        or (dtype in GPU_DTYPES and heads.head_dim <= GPU_MOST_HEAD_DIM and heads.n_heads <= GPU_MOST_HEADS)
    ]
    return pytest.mark.parametrize(("devices", "heads", "dtype"), cases)


def on_devices(*devices: core.Device) -> pytest.MarkDecorator:
    """Parametrizes a test with devices and the types of fewer than 32 bits that each supports."""
    cases = [
        pytest.param(device, dtype, id=f"{device.name.replace(' ', '_')}-{dtype}")
        for device in devices
        for dtype in (GPU_DTYPES if device in GPUS else DTYPES[1:])
    ]
    return pytest.mark.parametrize(("device", "dtype"), cases)


def policies_on(device: core.Device, heads: Heads, dtype: str) -> list[dict[str, float]]:
    """Returns all policies; on the emulated GPU the plain one and one other, varied by type and head size."""
    if device not in EMULATED:
        return POLICIES
    others = POLICIES[1:]
    return [POLICIES[0], others[(GEOMETRIES.index(heads) + DTYPES.index(dtype)) % len(others)]]


@pytest.mark.sweep
@with_dtypes(GEOMETRIES)
def test_kvq_1_krn_1_krn_2_attention_equals_float64(devices: list[core.Device], heads: Heads, dtype: str) -> None:
    rng = np.random.default_rng(heads.head_dim)
    device = devices[-1]
    sequences, n_blocks = make_sequences(rng, heads, MIXED)
    cache = make_cache(device, heads, dtype, n_blocks, sequences)
    for policy in policies_on(device, heads, dtype):
        shaped = replace(heads, **policy)
        actual = attend_all(cache, shaped, sequences)
        expected = Expected(shaped, dtype, sequences, device)
        assert expected.worst(actual) <= 1
        # Negative controls: positions off by one, a wider window, no soft-cap, neighbouring values.
        assert expected.is_missed(actual, shift=-1)
        assert expected.is_missed(actual, roll=1)
        if shaped.window:
            assert expected.is_missed(actual, oracle=replace(shaped, window=shaped.window + 1))
        if shaped.soft_cap:
            assert expected.is_missed(actual, oracle=replace(shaped, soft_cap=0))


def sinks_of(heads: Heads) -> tuple[float, ...]:
    """Returns sinks far below the scores, among them, and above all of them."""
    return tuple(np.linspace(-30, 9, heads.n_heads).tolist())


@pytest.mark.parametrize("values", PLAIN)
@pytest.mark.parametrize("keys", PLAIN)
def test_kvq_5_every_pair_of_types(keys: str, values: str) -> None:
    heads = Heads(n_heads=4, n_kv_heads=2, head_dim=64, scale=0.125, window=90)
    sequences, n_blocks = make_sequences(np.random.default_rng(4), heads, [(300, 1), (40, 40), (513, 20)])
    dtype = f"{keys}/{values}"
    cache = make_cache(BEST, heads, dtype, n_blocks, sequences)
    actual = attend_all(cache, heads, sequences)
    expected = Expected(heads, dtype, sequences)
    assert expected.worst(actual) <= 1
    assert expected.is_missed(actual, shift=-1)
    assert expected.is_missed(actual, roll=1)
    other = Expected(heads, f"{keys}/{'f32' if values == 'f16' else 'f16'}", sequences)
    assert values == "f32" or other.worst(actual) > 1, "the values have the type that is asked"


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [GEOMETRIES[i] for i in (2, 4, 6, 9, 10)], ids=lambda heads: str(heads.n_heads))
def test_krn_1_krn_2_a_sink_takes_its_part_of_the_weights(heads: Heads, dtype: str) -> None:
    if is_quantized(dtype):
        heads = replace(heads, head_dim=32)
    sequences, n_blocks = make_sequences(np.random.default_rng(12), heads, MIXED)
    sinks = sinks_of(heads)
    for policy in ({}, {"window": 100}, {"window": 290, "soft_cap": 5.0}):
        shaped = replace(heads, sinks=sinks, **policy)
        actual = attend_all(make_cache(BEST, heads, dtype, n_blocks, sequences), shaped, sequences)
        expected = Expected(shaped, dtype, sequences)
        assert expected.worst(actual) <= 1
        # Negative controls: no sinks, the neighbours' sinks, a sink for each of two splits.
        assert expected.is_missed(actual, oracle=replace(shaped, sinks=()))
        assert expected.is_missed(actual, oracle=replace(shaped, sinks=sinks[1:] + sinks[:1]))
        assert expected.is_missed(actual, oracle=replace(shaped, sinks=tuple(sink + np.log(2) for sink in sinks)))


@pytest.mark.parametrize("sink", [-np.inf, 200.0])
def test_krn_1_a_sink_far_from_the_scores(sink: float) -> None:
    """A sink far below all scores changes no bit; one far above them leaves no weight for anything else."""
    heads = GEOMETRIES[1]
    sequences, n_blocks = make_sequences(np.random.default_rng(13), heads, MIXED)
    cache = make_cache(BEST, heads, "f16", n_blocks, sequences)
    actual = attend_all(cache, replace(heads, sinks=(sink,) * heads.n_heads), sequences)
    if sink > 0:
        assert not actual.any()
    else:
        assert_same_bits(actual, attend_all(cache, heads, sequences))


CHUNKS = (1, 7, 17)


@pytest.mark.sweep
@with_dtypes([GEOMETRIES[1], GEOMETRIES[6], GEOMETRIES[9], GEOMETRIES[10]])
def test_kvq_8_det_1_det_2_det_4_det_6_det_7_one_result_however_the_work_is_cut(
    devices: list[core.Device], heads: Heads, dtype: str
) -> None:
    rng = np.random.default_rng(5)
    shaped = replace(heads, window=290, soft_cap=20.0, sinks=sinks_of(heads) if devices is DEVICES else ())
    sequences, n_blocks = make_sequences(rng, shaped, MIXED)
    reference = None
    for number, device in enumerate(devices):
        cache = make_cache(device, shaped, dtype, n_blocks, sequences)
        together = attend_all(cache, shaped, sequences)
        reference = together if reference is None else reference
        assert_same_bits(together, reference)
        row = 0
        for held in sequences:
            # Alone and in chunks: no other sequence, other tiles. Devices of one family use the same sizes.
            for chunk in CHUNKS if len(devices) == 1 else CHUNKS[number % len(CHUNKS) :][:1]:
                for begin in range(0, len(held.q), chunk):
                    end = min(begin + chunk, len(held.q))
                    part = attend(cache, shaped, [held.asked(begin, end)], held.q[begin:end])
                    assert_same_bits(part, reference[row + begin : row + end])
            row += len(held.q)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_det_4_long_decode_is_divided_over_threads(dtype: str) -> None:
    rng = np.random.default_rng(6)
    heads = Heads(n_heads=4, n_kv_heads=1, head_dim=32 if is_quantized(dtype) else 24, scale=0.2)
    heads = replace(heads, sinks=sinks_of(heads))
    sequences, n_blocks = make_sequences(rng, heads, [(5000, 1), (40, 1)])
    results = []
    for device in DEVICES:
        before = device.launches()
        cache = make_cache(device, heads, dtype, n_blocks, sequences)
        results.append(attend_all(cache, heads, sequences))
        after = device.launches()
        assert after["attend_decode"] == before["attend_decode"] + 1
        assert after["attend_prefill"] == before["attend_prefill"]
    assert worst(results[0], heads, dtype, sequences) <= 1
    for result in results[1:]:
        assert_same_bits(result, results[0])


def test_hon_2_a_batch_of_both_kinds_counts_both() -> None:
    heads = GEOMETRIES[0]
    sequences, n_blocks = make_sequences(np.random.default_rng(1), heads, [(20, 1), (20, 5)])
    cache = make_cache(BEST, heads, "f32", n_blocks, sequences)
    before = BEST.launches()
    attend_all(cache, heads, sequences)
    after = BEST.launches()
    assert [after[kind] - before[kind] for kind in ("attend_decode", "attend_prefill")] == [1, 1]


@pytest.mark.long
@on_devices(DEVICES[0], BEST, *GPUS)
def test_det_16_stale_scratch_and_stale_slots_do_not_matter(device: core.Device, dtype: str) -> None:
    heads = Heads(n_heads=4, n_kv_heads=2, head_dim=32 if is_quantized(dtype) else 24, scale=0.2, window=300)
    sequences, n_blocks = make_sequences(np.random.default_rng(2), heads, [*MIXED, (3000, 1)])
    results = []
    for stale in (0x00, 0x3C, NAN_BYTE):
        cache = make_cache(device, heads, dtype, n_blocks, [])
        cache.fill(stale)
        for held in sequences:
            cache.append(1, [(len(held.k), 0, held.blocks)], held.k, held.v)
        results += [attend_all(cache, heads, sequences, scratch_fill=value) for value in (0x00, 0x3F, NAN_BYTE)]
    assert worst(results[0], heads, dtype, sequences, device=device) <= 1
    for result in results[1:]:
        assert_same_bits(result, results[0])


@pytest.mark.long
@on_devices(BEST, *GPUS)
def test_gen_24_kv_3_later_tokens_change_no_earlier_result(device: core.Device, dtype: str) -> None:
    """Writes rows of NaN after a position and then overwrites them, as after a truncation."""
    n_kv_heads = 1 if device in EMULATED else 2
    heads = Heads(3 * n_kv_heads, n_kv_heads, head_dim=32 if is_quantized(dtype) else 40, scale=0.2)
    sequences, n_blocks = make_sequences(np.random.default_rng(3), heads, [(300, 300)])
    held = sequences[0]
    clean = attend_all(make_cache(device, heads, dtype, n_blocks, sequences), heads, sequences)
    for n_kept in (0, 1, 15, 16, 17, 255, 256, 299):
        cache = core.Cache(
            device, dtype=dtype, n_layers=2, n_kv_heads=n_kv_heads, head_dim=heads.head_dim, n_blocks=n_blocks
        )
        cache.append(1, [(n_kept, 0, held.blocks)], held.k[:n_kept], held.v[:n_kept])
        junk = np.full_like(held.k[n_kept:], np.nan)
        cache.append(1, [(300 - n_kept, n_kept, held.blocks)], junk, junk)
        assert_same_bits(attend(cache, heads, [(n_kept, 0, held.blocks)], held.q[:n_kept]), clean[:n_kept])
        poisoned = attend(cache, heads, [(1, 299, held.blocks)], held.q[299:])
        assert np.isnan(poisoned).all(), "a held NaN must be seen"
        cache.append(1, [(300 - n_kept, n_kept, held.blocks)], held.k[n_kept:], held.v[n_kept:])
        assert_same_bits(attend_all(cache, heads, sequences), clean)


def extreme_rows(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Returns values at the edges of 16-bit types: ties, subnormals, overflow, infinity, NaN, both zeros."""
    edges = np.array(
        [
            0.0,
            -0.0,
            1e-8,
            2.0**-25,
            2.0**-24 * 1.5,
            6.1e-5,
            1 + 2.0**-11,
            1 + 3 * 2.0**-11,
            65504,
            65519.99,
            65520,
            1 + 2.0**-8,
            1 + 3 * 2.0**-8,
            3.38e38,
            3.4e38,
            np.inf,
            -np.inf,
            np.nan,
            1e-39,
            -1.1754944e-38,
        ],
        np.float32,
    )
    return rng.choice(edges, size=shape) * rng.choice(np.float32([1, -1]), size=shape)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(("head_dim", "block_tokens"), [(24, 16), (8, 64), (80, 32)])
def test_gen_24_the_cache_holds_rounded_rows_in_panels(dtype: str, head_dim: int, block_tokens: int) -> None:
    rng = np.random.default_rng(head_dim)
    n, n_kv_heads, blocks = 2 * block_tokens - 3, 3, [4, 1]
    rows = [rng.normal(size=(n, n_kv_heads * head_dim)).astype(np.float32) for _ in range(2)]
    for values in rows:
        values[5:9] = extreme_rows(rng, values[5:9].shape)
    padded = -(-head_dim // 16) * 16
    word = np.uint32 if dtype == "f32" else np.uint16
    found = []
    for device in DEVICES:
        cache = core.Cache(device, dtype=dtype, n_layers=2, n_kv_heads=n_kv_heads, head_dim=head_dim, n_blocks=6,
                           block_tokens=block_tokens)  # fmt: skip
        row_bytes = (4 if dtype == "f32" else 2) * (head_dim + padded)
        assert cache.n_bytes == 6 * 2 * n_kv_heads * block_tokens * row_bytes
        for begin, end in ((0, 19), (19, 20), (20, 21), (21, n)):  # prefill, decode steps, prefill again
            cache.append(1, [(end - begin, begin, blocks)], rows[0][begin:end], rows[1][begin:end])
        data = [
            [np.frombuffer(part, word).reshape(n_kv_heads, -1) for part in cache.block_bytes(1, block)]
            for block in blocks
        ]
        assert not any(part.strip(b"\0") for part in cache.block_bytes(0, 4)), "another layer was written"
        found.append(data)
    with np.errstate(over="ignore"):
        expected = [stored(values, dtype) for values in rows]
    for data in found:
        for head in range(n_kv_heads):
            columns = slice(head * head_dim, (head + 1) * head_dim)
            together = 2 if dtype == "bf16" else 1  # adjacent neighbours
            k = [keys[head].reshape(-1, head_dim // together, 16, together) for keys, _ in data]
            v = [values[head].reshape(-1, padded, together) for _, values in data]
            k_rows = np.concatenate([panels.transpose(0, 2, 1, 3).reshape(-1, head_dim) for panels in k])[:n]
            v_rows = np.concatenate([steps.transpose(0, 2, 1).reshape(-1, padded) for steps in v])[:n]
            np.testing.assert_array_equal(as_float64(k_rows, dtype), expected[0][:, columns])
            np.testing.assert_array_equal(as_float64(v_rows[:, :head_dim], dtype), expected[1][:, columns])
            assert not v_rows[:, head_dim:].any(), "padding is zero"
    for data in found[1:]:
        for (keys, values), (first_keys, first_values) in zip(data, found[0], strict=True):
            np.testing.assert_array_equal(keys, first_keys)
            np.testing.assert_array_equal(values, first_values)


@pytest.mark.parametrize(("head_dim", "block_tokens"), [(32, 64), (96, 16)])
def test_kvq_1_a_quantized_cache_holds_blocks_of_32(head_dim: int, block_tokens: int) -> None:
    rng = np.random.default_rng(head_dim)
    n, n_kv_heads, blocks = block_tokens + 13, 2, [3, 1]
    rows = [rng.normal(size=(n, n_kv_heads * head_dim)).astype(np.float32) for _ in range(2)]
    for values in rows:
        values[5:9] = extreme_rows(rng, values[5:9].shape)
        values[9] *= rng.choice(np.float32([1e-9, 1e-5, 1e6, 1e9]), size=values[9].shape)
        values[10] = 0
    n_groups = head_dim // 32
    found = []
    for device in DEVICES:
        cache = core.Cache(device, dtype="q8_0", n_layers=2, n_kv_heads=n_kv_heads, head_dim=head_dim, n_blocks=4,
                           block_tokens=block_tokens)  # fmt: skip
        assert cache.n_bytes == 4 * 2 * n_kv_heads * block_tokens * 2 * n_groups * 34
        for begin, end in ((0, 19), (19, 20), (20, n)):
            cache.append(1, [(end - begin, begin, blocks)], rows[0][begin:end], rows[1][begin:end])
        found.append([cache.block_bytes(1, block) for block in blocks])
    assert all(data == found[0] for data in found)
    for which, values in enumerate(rows):
        panels = [np.frombuffer(data[which], np.uint8).reshape(n_kv_heads, -1, 17 * head_dim) for data in found[0]]
        heads = np.concatenate(panels, axis=1)  # [kv head][panel][bytes]
        codes = heads[..., : 16 * head_dim]
        scales = np.ascontiguousarray(heads[..., 16 * head_dim :]).view(np.float16)
        if which == 0:
            codes = codes.reshape(n_kv_heads, -1, head_dim // 4, 16, 4).transpose(0, 1, 3, 2, 4) ^ 0x80
        scales = scales.reshape(n_kv_heads, -1, n_groups, 16).swapaxes(2, 3)
        codes = np.ascontiguousarray(codes).view(np.int8).reshape(n_kv_heads, -1, head_dim)[:, :n]
        scales = scales.reshape(n_kv_heads, -1, n_groups)[:, :n]
        for head in range(n_kv_heads):
            wanted, wanted_scales = blocks_of(values[:, head * head_dim : (head + 1) * head_dim])
            np.testing.assert_array_equal(codes[head], wanted.reshape(n, head_dim))
            np.testing.assert_array_equal(scales[head], wanted_scales[..., 0])


ROTATED_BYTES = {"rot8": 32, "rot4": 16, "rot3": 12, "rot2": 8}  # of a block's codes


def rotated_codes(panels: Array, head_dim: int, dtype: str, which: int) -> Array:
    """Returns the codes of a rotated cache's panels, [kv head][panel][bytes], as [kv head][token][block][element]."""
    n_heads, n_blocks = panels.shape[0], head_dim // 32
    n = ROTATED_BYTES[dtype]
    codes = panels[..., : 16 * n_blocks * n]
    if which == 0:  # [block][four bytes][token][byte]
        codes = codes.reshape(n_heads, -1, n_blocks, n // 4, 16, 4).transpose(0, 1, 4, 2, 3, 5)
    else:  # [block][four tokens][byte][token]
        codes = codes.reshape(n_heads, -1, n_blocks, 4, n, 4).transpose(0, 1, 3, 5, 2, 4)
    packed = np.ascontiguousarray(codes).reshape(n_heads, -1, n_blocks, n)
    if dtype == "rot8":
        return (packed ^ 0x80 if which == 0 else packed).view(np.int8).astype(np.int16) + 127
    i = np.arange(32)
    place, half = i // 4 % 4, i // 16 * 4
    if dtype == "rot4":
        return packed[..., i % 16] >> half & 15
    if dtype == "rot2":
        return packed[..., i % 8] >> (half + place // 2 * 2) & 3
    nibbles = packed[..., i % 8] >> half & np.where(place < 2, 3, 12) | packed[..., 8 + i % 4] >> half & 8 >> place
    return np.minimum(nibbles, 15 - nibbles)


@pytest.mark.parametrize("dtype", ROTATED_BYTES)
@pytest.mark.parametrize(("head_dim", "block_tokens"), [(64, 64), (96, 16), (256, 16)])
def test_kvq_2_kvq_3_a_rotated_cache_holds_codes_and_scales(head_dim: int, block_tokens: int, dtype: str) -> None:
    rng = np.random.default_rng(head_dim)
    n, n_kv_heads, blocks = block_tokens + 13, 2, [3, 1]
    rows = [rng.normal(size=(n, n_kv_heads * head_dim)).astype(np.float32) for _ in range(2)]
    for values in rows:
        values[5:7] = extreme_rows(rng, values[5:7].shape)
        values[8] = np.nan
        values[9] *= np.float32(1e8)  # scales that float16 does not hold
        values[10] = 0
        values[11] *= np.float32(1e-5)
    n_groups = head_dim // 32
    block_bytes = ROTATED_BYTES[dtype] + 2  # with the scale
    found = []
    for device in DEVICES:
        cache = core.Cache(device, dtype=dtype, n_layers=2, n_kv_heads=n_kv_heads, head_dim=head_dim, n_blocks=4,
                           block_tokens=block_tokens)  # fmt: skip
        assert cache.n_bytes == 4 * 2 * n_kv_heads * block_tokens * 2 * n_groups * block_bytes
        for begin, end in ((0, 19), (19, 20), (20, n)):
            cache.append(1, [(end - begin, begin, blocks)], rows[0][begin:end], rows[1][begin:end])
        found.append([cache.block_bytes(1, block) for block in blocks])
    assert all(data == found[0] for data in found)
    for which, values in enumerate(rows):
        panels = [
            np.frombuffer(data[which], np.uint8).reshape(n_kv_heads, -1, n_groups * block_bytes * 16)
            for data in found[0]
        ]
        heads = np.concatenate(panels, axis=1)
        codes = rotated_codes(heads, head_dim, dtype, which)[:, :n]
        scales = np.ascontiguousarray(heads[..., -32 * n_groups :]).view(np.float16)
        scales = scales.reshape(n_kv_heads, -1, n_groups, 16).swapaxes(2, 3).reshape(n_kv_heads, -1, n_groups)[:, :n]
        for head in range(n_kv_heads):
            with np.errstate(over="ignore", invalid="ignore"):
                turned = rotate(values[:, head * head_dim : (head + 1) * head_dim], head_dim)
            wanted, wanted_scales = codes_of(turned, ROTATED[dtype])
            np.testing.assert_array_equal(scales[head], wanted_scales[..., 0])
            is_number = (np.isfinite(scales[head]) & (scales[head] != 0))[..., None]
            assert is_number.sum() > is_number.size // 2
            np.testing.assert_array_equal(np.where(is_number, codes[head], 0), np.where(is_number, wanted, 0))


def as_float64(words: Array, dtype: str) -> Array:
    words = np.ascontiguousarray(words)
    if dtype == "f16":
        return words.view(np.float16).astype(np.float64)
    return (words if dtype == "f32" else words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def test_kv_4_copy_block_copies_every_layer_and_nothing_else() -> None:
    rng = np.random.default_rng(8)
    cache = core.Cache(BEST, dtype="f16", n_layers=2, n_kv_heads=2, head_dim=24, n_blocks=3)
    for layer in (0, 1):
        k, v = rng.normal(size=(2, 48, 48)).astype(np.float32)
        cache.append(layer, [(48, 0, [0, 1, 2])], k, v)
    before = [[cache.block_bytes(layer, block) for block in range(3)] for layer in (0, 1)]
    cache.copy_block(2, 0)
    for layer in (0, 1):
        assert [cache.block_bytes(layer, block) for block in range(3)] == [before[layer][i] for i in (2, 1, 2)]
        assert before[layer][0] != before[layer][2]


# (n_kv_heads, head_dim): one wide layer among narrow ones, and one with fewer heads.
UNEQUAL = [(2, 32), (1, 64), (3, 96)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_kv_10_layers_of_unequal_sizes_hold_each_their_own(dtype: str) -> None:
    rng = np.random.default_rng(18)
    device = BEST
    cache = core.Cache(device, dtype=dtype, n_layers=1, n_kv_heads=UNEQUAL[0][0], head_dim=UNEQUAL[0][1],
                       other_layers=UNEQUAL[1:], n_blocks=9)  # fmt: skip
    cache.fill(NAN_BYTE)
    alone = [core.kv_bytes(device, dtype=dtype, n_layers=1, n_kv_heads=n, head_dim=d, n_blocks=9) for n, d in UNEQUAL]
    assert cache.n_bytes == sum(alone)
    heads_of = [Heads(n_heads=2 * n, n_kv_heads=n, head_dim=d, scale=d**-0.5) for n, d in UNEQUAL]
    held_by = [make_sequences(rng, heads, [(40, 3), (17, 1)])[0] for heads in heads_of]
    blocks = [[7, 0, 4], [3, 8]]
    for layer, sequences in enumerate(held_by):
        for held, own in zip(sequences, blocks, strict=True):
            held.blocks = own
            cache.append(layer, [(len(held.k), 0, own)], held.k, held.v)
    cache.copy_block(4, 5)  # the last block of the first sequence, in every layer
    for layer, (heads, sequences) in enumerate(zip(heads_of, held_by, strict=True)):
        sequences[0].blocks = [7, 0, 5]
        batch = [held.asked() for held in sequences]
        q = np.concatenate([held.q for held in sequences])
        actual = cache.attend(layer, batch, q, heads.n_heads, heads.scale)
        expected = Expected(heads, dtype, sequences, device)
        assert expected.worst(actual) <= 1
        assert expected.is_missed(actual, roll=1)


def test_kv_10_a_gpu_refuses_layers_of_unequal_sizes() -> None:
    with pytest.raises(
        Exception, match="kv layers: of unequal sizes or types, expected layers of one size and type on cuda"
    ):
        core.Cache(EMULATED[0], dtype="f16", n_layers=1, n_kv_heads=2, head_dim=32, other_layers=[(1, 64)], n_blocks=1)


REFUSED = [
    ("head_dim", 12, "head_dim: 12, expected a multiple of 8"),
    ("n_kv_heads", 0, "n_kv_heads: 0, expected at least 1"),
    ("block_tokens", 48, "block_tokens: 48, expected 16, 32"),
    ("dtype", "q8_0", "head_dim: 8, expected a multiple of 32"),
    ("dtype", "f16/rot4", "head_dim: 8, expected a multiple of 32"),
]


@pytest.mark.parametrize(("field_name", "value", "message"), REFUSED)
def test_krn_1_what_the_cache_cannot_hold_is_refused(field_name: str, value: int | str, message: str) -> None:
    fields: dict[str, int | str] = {"dtype": "f16", "n_layers": 1, "n_kv_heads": 2, "head_dim": 8, "n_blocks": 1}
    with pytest.raises(Exception, match=message):
        core.Cache(BEST, **{**fields, field_name: value})
