"""The GPU's matrix kernels for many rows: against float64 on the same weights and activations, and against each other.

The emulated device claims to have Hopper's warpgroup products, so that their barriers, tile copies and descriptors
run.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.devices import GPU_KINDS, GPUS, emulated_only
from support.kernels.gpu_gemm import (
    TILE_TYPES,
    Input,
    bias_of,
    f16_even_odd,
    is_within,
    k_of,
    many_row_input,
)
from support.kernels.gpu_gemm import many_row_product as product
from support.kernels.gpu_gemm import run as run_kernel
from support.kernels.weights import Weight, decode, random_rows, random_weight
from support.oracles import tolerances

Floats = NDArray[np.float32]
Float64s = NDArray[np.float64]

KINDS = ["hmma", "wgmma", "wgmma_narrow"]
ROWS = [1, 17, 65, 130]
N = 37  # two whole strips and a partial one

each_device = pytest.mark.parametrize("device", GPU_KINDS)
each_kind = pytest.mark.parametrize("kind", KINDS)
each_type = pytest.mark.parametrize("dtype", TILE_TYPES)


@pytest.fixture(autouse=True)
def _hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMP_EMULATED_GPU", "wgmma")


def run(device: str, kernel: str, *given: Any, **how: Any) -> list[Floats]:
    """Runs a kernel of the list; "_narrow" uses its smaller blocks, as with more processors than large blocks."""
    if kernel.endswith("_narrow"):
        how["n_processors"] = 1 << 20
    return run_kernel(device, kernel.removesuffix("_narrow"), *given, **how)


def dtype_of(kernel: str) -> str:
    return kernel.rsplit("_", 1)[0]


@functools.lru_cache(maxsize=16)
def x_of(dtype: str, m: int = max(ROWS)) -> Input:
    return many_row_input(dtype, random_rows(max(ROWS), k_of(dtype), seed=3)).rows(slice(m))


@pytest.mark.sweep("kind,dtype", "m")
@each_device
@each_kind
@each_type
@pytest.mark.parametrize("m", ROWS)
def test_gemm_9_gemm_10_equals_float64_and_writes_nothing_else(device: str, kind: str, dtype: str, m: int) -> None:
    k, x = k_of(dtype), x_of(dtype, m)
    weight = random_weight(dtype, N, k)
    [out] = run(device, f"{dtype}_{kind}", [(weight.file, N, None)], x, k, thread_order=m)
    assert is_within(out, *product(x.exact, weight))


@pytest.mark.long
@each_device
@each_kind
@each_type
def test_gemm_10_control_a_changed_scale_is_seen(device: str, kind: str, dtype: str) -> None:
    k, x = k_of(dtype), x_of(dtype, 17)
    weight, other = random_weight(dtype, N, k), random_weight(dtype, N, k, seed=1)
    changed = weight.file.copy()
    row = len(changed) // N
    changed[-row // 2 :] = other.file[-row // 2 :]
    [out] = run(device, f"{dtype}_{kind}", [(changed, N, None)], x, k)
    exact, bound = product(x.exact, weight)
    assert is_within(out[:, :-1], exact[:, :-1], bound[:, :-1])
    assert not is_within(out, exact, bound)


@each_device
@each_kind
def test_gemm_10_float_scales_of_any_size_are_in_units_of_their_row(device: str, kind: str) -> None:
    """Rows have scales from 2^-90 to 2^90 of both signs, up to 2^8 apart in a row; one scale and one row are zero."""
    k, x = 576, f16_even_odd(random_rows(17, 576))
    blocks = random_weight("f8_e4m3", N, k).file.reshape(N, -1, 68).copy()
    rng = np.random.default_rng(8)
    scales = np.exp2(np.linspace(-90, 90, N)[:, None] + rng.uniform(-4, 4, blocks.shape[:2]))
    scales *= rng.choice([-1, 1], scales.shape)
    scales[3, 2], scales[20] = 0, 0
    blocks[..., :4] = scales.astype(np.float32)[..., None].view(np.uint8)
    weight = Weight("f8_e4m3", blocks.ravel(), decode("f8_e4m3", blocks.ravel(), N, k))
    [out] = run(device, f"f8_e4m3_{kind}", [(weight.file, N, None)], x, k)
    exact, bound = product(x.exact, weight)
    assert is_within(out, exact, bound)
    assert (out[:, 20] == 0).all()
    assert (np.abs(out - np.roll(exact, 1, axis=1)) > bound).mean() > 0.9


@pytest.mark.long
@each_device
@each_kind
def test_gemm_10_a_float_scale_that_a_row_shares_is_not_rounded(device: str, kind: str) -> None:
    """Scales of rows and of tensors are as far from float16 values as possible; the control has one different scale.
    Each row of x selects one weight, so the only roundings are those of the weight and of the unit.
    """
    k, picked = 576, 64 + 29 * np.arange(17)
    x = f16_even_odd((picked[:, None] == np.arange(k)).astype(np.float32))
    blocks = random_weight("f8_e4m3", N, k).file.reshape(N, -1, 68).copy()
    scales = np.repeat(1 + (2 * np.arange(N)[:, None] + 1) * 2.0**-11, blocks.shape[1], axis=1)
    for is_shared in (True, False):
        if not is_shared:
            scales[:, 0] *= 1.9
        blocks[..., :4] = scales.astype(np.float32)[..., None].view(np.uint8)
        weight = Weight("f8_e4m3", blocks.ravel(), decode("f8_e4m3", blocks.ravel(), N, k))
        [out] = run(device, f"f8_e4m3_{kind}", [(weight.file, N, None)], x, k)
        exact = weight.values.T[picked]
        assert is_within(out, exact, tolerances.rounding_of_sum(4) * np.abs(exact)) == is_shared


@pytest.mark.long
@each_device
@each_type
def test_gemm_11_det_2_a_row_has_its_bits_whatever_comes_with_it(device: str, dtype: str) -> None:
    """Compares any number of rows, with both kernels."""
    k, x = k_of(dtype), x_of(dtype)
    weight = random_weight(dtype, N, k)
    [whole] = run(device, f"{dtype}_hmma", [(weight.file, N, None)], x, k)
    for kind in KINDS:
        for which in ([129], [*range(60, 129)], *([] if kind == "hmma" else [[*range(130)]])):
            [some] = run(device, f"{dtype}_{kind}", [(weight.file, N, None)], x.rows(which), k, fill=0)
            assert_same_bits(some, whole[which])


@pytest.mark.long
@each_device
@each_kind
@each_type
def test_gemm_10_terms_of_one_launch_have_their_own_weights_and_biases(device: str, kind: str, dtype: str) -> None:
    """One of the weights has more rows than a block."""
    k, x = k_of(dtype), x_of(dtype, 3)
    sizes = [37, 16, 293, 50]
    weights = [random_weight(dtype, n, k, seed=i) for i, n in enumerate(sizes)]
    biases = [bias_of(37), None, bias_of(293), None]
    terms = [(weight.file, weight.n, bias) for weight, bias in zip(weights, biases, strict=True)]
    outs = run(device, f"{dtype}_{kind}", terms, x, k, thread_order=2)
    for out, weight, bias in zip(outs, weights, biases, strict=True):
        assert is_within(out, *product(x.exact, weight, bias))
    assert not is_within(outs[0], *product(x.exact, weights[0]))


def gated(activation: str, gate: Float64s, up: Float64s) -> Float64s:
    if activation == "silu":
        return gate / (1 + np.exp(-gate)) * up
    return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up


GATES = [
    *((f"{dtype}_hmma", "silu") for dtype in TILE_TYPES),
    *((f"{dtype}_wgmma", "gelu_tanh") for dtype in TILE_TYPES),
    ("q6_k_hmma", "gelu_tanh"),
    ("q6_k_wgmma", "silu"),
]


@pytest.mark.long
@each_device
@pytest.mark.parametrize(("kernel", "activation"), GATES)
def test_krn_3_a_pair_is_gated_before_it_is_written(device: str, kernel: str, activation: str) -> None:
    dtype = dtype_of(kernel)
    k, n = k_of(dtype), 150  # more rows of each than a block has
    x = many_row_input(dtype, random_rows(5, k) / np.float32(64))  # gates of about one
    weights = [random_weight(dtype, n, k, seed=seed) for seed in (1, 2)]
    bias = bias_of(n)
    terms = [(weights[0].file, n, bias), (weights[1].file, n, None)]
    out, untouched = run(device, kernel, terms, x, k, fusion=activation, thread_order=5)
    gate, gate_bound = product(x.exact, weights[0], bias)
    up, up_bound = product(x.exact, weights[1])
    expected = gated(activation, gate, up)
    # Neither activation has a slope above 1.13, or is larger than its argument.
    through = 1.13 * gate_bound * (np.abs(up) + up_bound) + np.abs(gate) * up_bound
    bound = through + tolerances.gelu_tanh(gate, up) + tolerances.elementwise(expected, 8)
    assert is_within(out, expected, bound)
    assert np.isnan(untouched).all()
    assert not is_within(out, gated(activation, up, gate), bound)
    parts = run(device, kernel, terms, x, k)
    assert_same_bits(out, GPUS[GPU_KINDS.index(device)].gated_activation(activation, *parts))


# Experts with many rows, with one, and with none.
BEGINS = np.cumsum([0, 3, 0, 70, 1, 0, 9]).astype(np.int32)


@pytest.mark.few(3)
@each_device
@pytest.mark.parametrize(
    ("kernel", "has_sources"),
    [*((f"{dtype}_hmma", True) for dtype in TILE_TYPES), ("q4_0_hmma", False), ("q4_k_wgmma", True)],
)
def test_gemm_10_experts_multiply_their_rows(device: str, kernel: str, has_sources: bool) -> None:
    """The kernel writes nothing for experts whose weights have another type."""
    dtype = dtype_of(kernel)
    k, m, n = k_of(dtype), int(BEGINS[-1]), 21
    x = x_of(dtype)
    sources = np.random.default_rng(1).integers(0, len(x.bytes), m).astype(np.int32) if has_sources else None
    rows = np.arange(m) if sources is None else sources
    weights = [random_weight(dtype, n, k, seed=expert) for expert in range(len(BEGINS) - 1)]
    bias = bias_of(n)
    files = [None if expert == 3 else weight.file for expert, weight in enumerate(weights)]
    how = {"m": m, "begins": BEGINS, "sources": sources, "thread_order": 1}
    [out] = run(device, kernel, [(files, n, bias)], x, k, **how)
    for expert, weight in enumerate(weights):
        own = slice(BEGINS[expert], BEGINS[expert + 1])
        if expert == 3:
            assert np.isnan(out[own]).all()
        else:
            assert is_within(out[own], *product(x.exact[rows[own]], weight, bias))
    assert not is_within(out[:3], *product(x.exact[rows[:3]], weights[1], bias))


@pytest.mark.long
@each_device
@each_kind
@pytest.mark.parametrize("dtype", ["q4_k", "q8_0", "bf16", "f8_e4m3"])
def test_gemm_9_no_order_of_threads_changes_a_bit(device: str, kind: str, dtype: str) -> None:
    """With odd orders tiles arrive as soon as they are requested, with even ones as late as possible."""
    k, x = 768, many_row_input(dtype, random_rows(20, 768))  # the ring buffers wrap around
    terms = [(random_weight(dtype, N, k, seed=seed).file, N, None) for seed in (1, 2)]
    outs = [run(device, f"{dtype}_{kind}", terms, x, k, fusion="silu", thread_order=seed)[0] for seed in range(5)]
    for out in outs[1:]:
        assert_same_bits(out, outs[0])


@emulated_only
@pytest.mark.parametrize("mistake", ["plain_tiles", "late_tiles"])
def test_gemm_10_control_a_misplaced_tile_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    k, x = k_of("q8_0"), x_of("q8_0", 17)
    weight = random_weight("q8_0", N, k)
    monkeypatch.setenv("IMP_EMULATED_GPU", f"wgmma {mistake}")
    [out] = run("cuda_emulated", "q8_0_wgmma", [(weight.file, N, None)], x, k)
    assert not is_within(out, *product(x.exact, weight))


@emulated_only
def test_gemm_2_warpgroups_are_refused_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IMP_EMULATED_GPU")
    weight = random_weight("q8_0", N, 352)
    with pytest.raises(ValueError, match="warpgroups"):
        run("cuda_emulated", "q8_0_wgmma", [(weight.file, N, None)], x_of("q8_0", 1), 352)


# Index arithmetic.


@pytest.mark.parametrize(("n_row_blocks", "n_passes"), [(1, 1), (3, 5), (4, 16), (7, 17), (2, 50)])
def test_blocks_go_over_all_pairs_once_and_over_few_passes_at_a_time(n_row_blocks: int, n_passes: int) -> None:
    order = core.cuda_block_order(n_row_blocks, n_passes)
    assert sorted(order) == [(row, place) for row in range(n_row_blocks) for place in range(n_passes)]
    groups = [place // 16 for _, place in order]
    assert groups == sorted(groups)


def test_a_tiles_pieces_lie_in_eight_places_of_eight_rows() -> None:
    """In every eight rows, piece p of 16 bytes of row r is at piece p xor r of its row."""
    for row in range(16):
        for piece in range(8):
            address = row * 128 + piece * 16
            assert core.cuda_swizzled(address + 5) == row * 128 + (piece ^ row % 8) * 16 + 5
            assert core.cuda_swizzled(core.cuda_swizzled(address)) == address


def test_a_descriptor_has_the_fields_that_the_instruction_reads() -> None:
    """The fields are the address and the stride of eight rows, in units of 16 bytes, and the order of 128-byte rows."""
    descriptor = core.cuda_tile_descriptor(0x2C420)
    assert descriptor & 0x3FFF == 0x2C42
    assert descriptor >> 32 & 0x3FFF == 1024 // 16
    assert descriptor >> 62 == 1
    assert descriptor >> 49 & 7 == 0
