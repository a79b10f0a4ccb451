"""The GPU's reference kernel and rows of tables, with every type of weights, against the `gguf` package's values."""

from __future__ import annotations

import numpy as np
import pytest

from backend.gemm_families import k_of
from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.devices import GPU_KINDS, GPUS
from support.kernels.weights import WEIGHT_TYPES, Weight, random_rows, random_weight
from support.oracles import tolerances

Array = np.ndarray
REFERENCE = [("w", "reference")]

each_gpu = pytest.mark.parametrize("gpu", GPUS, ids=lambda device: device.name.replace(" ", "_"))


def product(gpu: core.Device, x: Array, weight: Weight, bias: Array | None = None, fill: int = 0xFF) -> Array:
    (out,) = gpu.linear(x, [(weight.n, (weight.dtype, weight.file, bias))], overrides=REFERENCE, fill=fill)
    return out


@pytest.mark.sweep
@each_gpu
@pytest.mark.parametrize("m", [1, 3, 17])
@pytest.mark.parametrize("dtype", WEIGHT_TYPES)
def test_gemm_10_every_type_is_multiplied(gpu: core.Device, dtype: str, m: int) -> None:
    n, k = 37, k_of(dtype, 300 if m == 3 else 65)
    x, weight = random_rows(m, k), random_weight(dtype, n, k)
    actual = product(gpu, x, weight)
    wide, w = x.astype(np.float64), weight.values.astype(np.float64)
    bound = tolerances.sum_of_products(wide, w)
    assert (np.abs(actual - wide @ w.T) <= bound).all()
    assert (np.abs(actual - np.roll(wide, 1, axis=1) @ w.T) > bound).mean() > 0.9
    assert (np.abs(np.roll(actual, 1, axis=1) - wide @ w.T) > bound).mean() > 0.9


@each_gpu
@pytest.mark.parametrize("dtype", ["f32", "q4_k", "iq2_s"])
def test_gemm_11_its_sums_are_those_of_the_cpus_reference(gpu: core.Device, dtype: str) -> None:
    x, weight = random_rows(9, 512), random_weight(dtype, 40, 512)
    expected = core.gemm_run_kernel("reference", dtype, weight.file, 40, x)
    assert_same_bits(product(gpu, x, weight), expected)


@each_gpu
@pytest.mark.parametrize("k", [1, 5, 255, 257])
def test_gemm_10_rows_of_floats_end_anywhere(gpu: core.Device, k: int) -> None:
    for dtype in ("f32", "f16", "bf16"):
        x, weight = random_rows(2, k), random_weight(dtype, 33, k)
        wide, w = x.astype(np.float64), weight.values.astype(np.float64)
        assert (np.abs(product(gpu, x, weight) - wide @ w.T) <= tolerances.sum_of_products(wide, w)).all()


@each_gpu
def test_gemm_7_terms_of_one_type_are_one_launch(gpu: core.Device) -> None:
    """Five weights of one type take two launches, the others one each; each weight has its own bias and output size."""
    k, x = 256, random_rows(6, 256)
    types = ["q8_0", "q4_k", "q8_0", "q8_0", "f16", "q8_0", "q8_0"]
    weights = [random_weight(dtype, 20 + 13 * i, k, seed=i) for i, dtype in enumerate(types)]
    biases = [
        np.random.default_rng(i).normal(size=weight.n).astype(np.float32) if i % 2 else None
        for i, weight in enumerate(weights)
    ]
    terms = [(weight.n, (weight.dtype, weight.file, bias)) for weight, bias in zip(weights, biases, strict=True)]
    before = gpu.launches()["reference"]
    outs = gpu.linear(x, terms, overrides=REFERENCE)
    assert gpu.launches()["reference"] - before == 4
    for weight, bias, out in zip(weights, biases, outs, strict=True):
        alone = product(gpu, x, weight)
        assert_same_bits(out, alone if bias is None else alone + bias)


@each_gpu
def test_det_1_a_rows_product_does_not_depend_on_its_company(gpu: core.Device) -> None:
    x, weight = random_rows(19, 256), random_weight("q5_k", 40, 256)
    together = product(gpu, x, weight)
    for rows in ([0], [18], [7, 3], list(range(9, 19))):
        assert_same_bits(product(gpu, x[rows], weight, fill=0), together[rows])


@each_gpu
@pytest.mark.parametrize("kind", ["silu", "gelu_tanh"])
@pytest.mark.parametrize(("gate_type", "up_type"), [("q8_0", "q8_0"), ("iq4_xs", "f32")])
def test_gemm_7_a_gate_and_what_it_gates(gpu: core.Device, kind: str, gate_type: str, up_type: str) -> None:
    n, k = 50, 256
    x, gate, up = random_rows(11, k), random_weight(gate_type, n, k, seed=1), random_weight(up_type, n, k, seed=2)
    bias = np.random.default_rng(3).normal(size=n).astype(np.float32)
    expected = gpu.gated_activation(kind, product(gpu, x, gate, bias), product(gpu, x, up))
    for fill in (0, 0xFF):
        actual = gpu.gated_linear(
            kind, x, n, (gate_type, gate.file, bias), (up_type, up.file, None), overrides=REFERENCE, fill=fill
        )
        assert_same_bits(actual, expected)
    swapped = gpu.gated_activation(kind, product(gpu, x, up), product(gpu, x, gate, bias))
    assert (swapped != expected).mean() > 0.5


@pytest.mark.parametrize("kind", GPU_KINDS)
@pytest.mark.parametrize("n_rows", [1, 8, 512])
@pytest.mark.parametrize("dtype", ["q8_0", "bf16", "iq3_s"])
def test_gemm_9_scratch_is_as_reported(kind: str, dtype: str, n_rows: int) -> None:
    weight = random_weight(dtype, 48, 256)
    told, held = core.Device(kind=kind).scratch_for(dtype, weight.file, 48, 256, n_rows)
    assert told == held


@pytest.mark.sweep
@each_gpu
@pytest.mark.parametrize("as_the_file", [True, False])
@pytest.mark.parametrize("dtype", WEIGHT_TYPES)
def test_krn_3_rows_of_every_type_are_decoded(gpu: core.Device, dtype: str, as_the_file: bool) -> None:
    """Uses more tiles than a block has warps, with a partial last tile if the type allows it."""
    n, k = 37, k_of(dtype, 9 * 256 + 40)
    table = random_weight(dtype, n, k)
    tokens = np.array([36, 0, 17, 15, 16, 17], np.int32)
    overrides = [("w", "reference")] if as_the_file else []
    actual = gpu.embed(tokens, dtype, table.file, n, k, 0.75, overrides)
    assert_same_bits(actual, table.values[tokens] * np.float32(0.75))
    assert (actual != table.values[np.roll(tokens, 1)] * np.float32(0.75)).mean() > 0.5


@each_gpu
def test_krn_3_odd_rows_of_floats_are_read(gpu: core.Device) -> None:
    for dtype in ("f32", "f16", "bf16"):
        table = random_weight(dtype, 5, 301)
        for overrides in ([], [("w", "reference")]):
            actual = gpu.embed(np.array([4, 1], np.int32), dtype, table.file, 5, 301, 1.0, overrides)
            assert_same_bits(actual, table.values[[4, 1]])
