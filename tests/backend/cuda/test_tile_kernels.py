"""The GPU's matrix kernels over tiles: against float64 on the same weights and activations, and against each other."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.typing import NDArray

from support.kernels.bits import assert_same_bits
from support.kernels.devices import GPU_KINDS, GPUS
from support.kernels.gpu_gemm import INTEGER_TYPES, TILE_TYPES, Input, bias_of, input_for, is_within, product, run
from support.kernels.weights import block_of, random_rows, random_weight
from support.oracles import tolerances

Floats = NDArray[np.float32]

ROWS = [1, 2, 4, 5, 8, 17, 33]
N = 37  # two whole strips and a partial one
SMALL = [f"{dtype}_dp4a" for dtype in INTEGER_TYPES]
ANY_ROWS = [*(f"{dtype}_imma" for dtype in INTEGER_TYPES), "f8_e4m3_mma", "f16_mma", "bf16_mma"]
KERNELS = [*SMALL, *ANY_ROWS]
# One kernel of each body, for tests that do not depend on types.
BODIES = ["q4_k_dp4a", "q6_k_imma", "f16_mma", "f8_e4m3_mma"]

each_device = pytest.mark.parametrize("device", GPU_KINDS)


def dtype_of(kernel: str) -> str:
    return kernel.rsplit("_", 1)[0]


def k_of(dtype: str) -> int:
    """Returns a k of three tiles, the last one partial if the type has smaller blocks; an odd k for float types."""
    return {256: 768, 64: 576, 32: 608, 1: 531}[block_of(dtype)[0]]


@functools.lru_cache(maxsize=32)
def rows_of(dtype: str, m: int, k: int) -> Input:
    return input_for(dtype, random_rows(m, k, seed=3))


def x_of(dtype: str, m: int) -> Input:
    """Returns the first m of the same rows."""
    return rows_of(dtype, max(ROWS), k_of(dtype)).rows(slice(m))


def fitting(kernels: list[str]) -> list[tuple[str, int]]:
    return [(kernel, m) for kernel in kernels for m in ROWS if m <= 4 or kernel not in SMALL]


@pytest.mark.sweep
@each_device
@pytest.mark.parametrize(("kernel", "m"), fitting(KERNELS))
def test_gemm_9_gemm_10_equals_float64_and_writes_nothing_else(device: str, kernel: str, m: int) -> None:
    dtype = dtype_of(kernel)
    k, x = k_of(dtype), x_of(dtype, m)
    weight = random_weight(dtype, N, k)
    [out] = run(device, kernel, [(weight.file, N, None)], x, k)
    assert is_within(out, *product(x.exact, weight))
    assert_same_bits(run(device, kernel, [(weight.file, N, None)], x, k, thread_order=m, fill=0)[0], out)


@each_device
@pytest.mark.parametrize("kernel", KERNELS)
def test_gemm_10_control_a_changed_bit_of_a_weight_is_seen(device: str, kernel: str) -> None:
    dtype = dtype_of(kernel)
    k, x = k_of(dtype), x_of(dtype, 4)
    weight = random_weight(dtype, N, k)
    changed = weight.file.copy()
    changed[len(changed) // 2 + 5 | 1] ^= 0x40
    [out] = run(device, kernel, [(changed, N, None)], x, k)
    assert not is_within(out, *product(x.exact, weight))


@pytest.mark.few(4)
@each_device
@pytest.mark.parametrize("dtype", TILE_TYPES)
def test_gemm_11_det_2_a_row_has_its_bits_whatever_comes_with_it(device: str, dtype: str) -> None:
    """Compares any number of rows and all kernels of a type. Eleven tiles give slices of one and of two tiles."""
    k = 11 * 256
    weight, rows = random_weight(dtype, 5, k), rows_of(dtype, 19, k)
    kernels = [kernel for kernel in KERNELS if dtype_of(kernel) == dtype]
    [whole] = run(device, kernels[-1], [(weight.file, 5, None)], rows, k)
    assert is_within(whole, *product(rows.exact, weight))
    for kernel in kernels:
        more = [[*range(9)], [*range(2, 19)]] if kernel in ANY_ROWS else []
        for which in ([7], [18, 7], [0, 18, 3], [1, 2, 3, 4], *more):
            [some] = run(device, kernel, [(weight.file, 5, None)], rows.rows(which), k)
            assert_same_bits(some, whole[which])


@each_device
@pytest.mark.parametrize("kernel", KERNELS)
def test_gemm_10_terms_of_one_launch_have_their_own_weights_and_biases(device: str, kernel: str) -> None:
    dtype = dtype_of(kernel)
    k, x = k_of(dtype), x_of(dtype, 3)
    sizes = [37, 16, 5, 50]
    weights = [random_weight(dtype, n, k, seed=i) for i, n in enumerate(sizes)]
    biases = [bias_of(37), None, bias_of(5), None]
    terms = [(weight.file, weight.n, bias) for weight, bias in zip(weights, biases, strict=True)]
    for thread_order, n_terms in ((1, 2), (2, 4)):
        outs = run(device, kernel, terms[:n_terms], x, k, thread_order=thread_order)
        for out, weight, bias in zip(outs, weights, biases, strict=False):
            assert is_within(out, *product(x.exact, weight, bias))
    assert not is_within(outs[0], *product(x.exact, weights[0]))


def gated(kind: str, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    if kind == "silu":
        return gate / (1 + np.exp(-gate)) * up
    return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up


@pytest.mark.sweep
@each_device
@pytest.mark.parametrize("kind", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_krn_3_a_pair_is_gated_before_it_is_written(device: str, kernel: str, kind: str) -> None:
    dtype = dtype_of(kernel)
    k = k_of(dtype)
    x = input_for(dtype, random_rows(4, k) / np.float32(64))  # gates of about one
    weights = [random_weight(dtype, N, k, seed=seed) for seed in (1, 2)]
    bias = bias_of(N)
    terms = [(weights[0].file, N, bias), (weights[1].file, N, None)]
    out, untouched = run(device, kernel, terms, x, k, fusion=kind, thread_order=5)
    gate, gate_bound = product(x.exact, weights[0], bias)
    up, up_bound = product(x.exact, weights[1])
    expected = gated(kind, gate, up)
    # Neither activation has a slope above 1.13, or is larger than its argument.
    through = 1.13 * gate_bound * (np.abs(up) + up_bound) + np.abs(gate) * up_bound
    bound = through + tolerances.gelu_tanh(gate, up) + tolerances.elementwise(expected, 8)
    assert is_within(out, expected, bound)
    assert np.isnan(untouched).all()
    assert not is_within(out, gated(kind, up, gate), bound)
    assert_same_bits(out, GPUS[GPU_KINDS.index(device)].gated_activation(kind, *run(device, kernel, terms, x, k)))


@functools.lru_cache(maxsize=8)
def expert_rows(n_experts: int, m: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns random rows of experts: some experts have many, most have none."""
    rng = np.random.default_rng([n_experts, m])
    owners = np.sort(np.concatenate([rng.integers(0, n_experts, m - m // 2), np.full(m // 2, n_experts - 2)]))
    begins = np.searchsorted(owners, np.arange(n_experts + 1)).astype(np.int32)
    return begins, rng.integers(0, 7, m).astype(np.int32)


@pytest.mark.sweep
@each_device
@pytest.mark.parametrize("n_experts", [3, 70])
@pytest.mark.parametrize(
    ("kernel", "m"), [*((kernel, 4) for kernel in KERNELS), *((kernel, 41) for kernel in ANY_ROWS)]
)
def test_gemm_10_experts_multiply_their_rows(device: str, kernel: str, m: int, n_experts: int) -> None:
    """The kernel writes nothing for experts whose weights have another type."""
    dtype = dtype_of(kernel)
    k, n = {256: 256, 64: 320, 32: 288, 1: 270}[block_of(dtype)[0]], 21
    rows = rows_of(dtype, 7, k)
    begins, sources = expert_rows(n_experts, m)
    weights = [random_weight(dtype, n, k, seed=expert % 5) for expert in range(n_experts)]
    bias = bias_of(n)
    absent = int(np.searchsorted(begins, 1)) - 1  # the expert of the first row
    files = [None if expert == absent else weight.file for expert, weight in enumerate(weights)]
    [out] = run(device, kernel, [(files, n, bias)], rows, k, m=m, begins=begins, sources=sources, thread_order=m)
    assert np.isnan(out[begins[absent] : begins[absent + 1]]).all()
    for expert in set(range(n_experts)) - {absent}:
        own = slice(begins[expert], begins[expert + 1])
        if own.start == own.stop:
            continue
        x = rows.exact[sources[own]]
        assert is_within(out[own], *product(x, weights[expert], bias))
        assert not is_within(out[own], *product(x, random_weight(dtype, n, k, seed=expert % 5 + 1), bias))


@each_device
@pytest.mark.parametrize("kernel", BODIES)
def test_gemm_10_experts_gate_rows_that_are_theirs_in_order(device: str, kernel: str) -> None:
    """Without sources, each output row belongs to the same row of x."""
    dtype = dtype_of(kernel)
    k, m, n_experts = {256: 256, 64: 320, 1: 270}[block_of(dtype)[0]], 4, 5
    x = rows_of(dtype, 7, k).rows(slice(m))
    begins, _ = expert_rows(n_experts, m)
    stacks = [[random_weight(dtype, N, k, seed=10 * part + e) for e in range(n_experts)] for part in (0, 1)]
    terms = [([weight.file for weight in stack], N, None) for stack in stacks]
    out, _ = run(device, kernel, terms, x, k, begins=begins, fusion="silu")
    for expert in range(n_experts):
        own = slice(begins[expert], begins[expert + 1])
        if own.start < own.stop:
            pair = [(stack[expert].file, N, None) for stack in stacks]
            assert_same_bits(out[own], run(device, kernel, pair, x.rows(own), k, fusion="silu")[0])


@each_device
@pytest.mark.parametrize("kernel", BODIES)
def test_gemm_9_no_order_of_threads_changes_a_bit(device: str, kernel: str) -> None:
    dtype = dtype_of(kernel)
    k, x = k_of(dtype), x_of(dtype, 4)
    terms = [(random_weight(dtype, N, k, seed=seed).file, N, None) for seed in (1, 2)]
    outs = [run(device, kernel, terms, x, k, fusion="silu", thread_order=seed)[0] for seed in range(6)]
    for out in outs[1:]:
        assert_same_bits(out, outs[0])
