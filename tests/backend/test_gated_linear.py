"""Two products of which one gates the other: equal in every bit to separate products and activation."""

from __future__ import annotations

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.devices import CPU_FAMILIES, DEVICES, GPUS, ISAS, each_family
from support.kernels.gpu_gemm import INTEGER_TYPES, TILE_TYPES, held_rows, many_row_product
from support.kernels.gpu_gemm import product as few_row_product
from support.kernels.weights import Weight, random_rows, random_weight
from support.oracles import tolerances

Array = np.ndarray
Matrix = tuple[str, Array, Array | None]
Override = list[tuple[str, str]]


def matrix(dtype: str, n: int, k: int, *, seed: int, biased: bool = False) -> Matrix:
    return dtype, random_weight(dtype, n, k, seed=seed).file, bias_of(n, seed) if biased else None


def bias_of(n: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).normal(size=n).astype(np.float32)


def apart(device: core.Device, kind: str, x: Array, *terms: tuple[int, Matrix], **how: Override) -> Array:
    return device.gated_activation(kind, *device.linear(x, list(terms), **how))


def rows_of(devices: list[core.Device], many: int) -> int:
    """Returns so many rows on the CPU that outputs take several pieces, the last one without a whole panel."""
    return 600 if devices is DEVICES and many == max(ROWS) else many


# Numbers of rows for the kernels of one row, of few rows and of many.
ROWS = [1, 5, 70]


@pytest.mark.long
@each_family
@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize(
    ("gate_type", "up_type"), [("q8_0", "q8_0"), ("q4_k", "q6_k"), ("bf16", "q4_0"), ("f32", "f16"), ("iq2_s", "f32")]
)
def test_gemm_7_a_gate_and_what_it_gates_share_an_input(
    devices: list[core.Device], gate_type: str, up_type: str, m: int
) -> None:
    n, k = 200, 256
    x = random_rows(rows_of(devices, m), k)
    gate, up = matrix(gate_type, n, k, seed=1, biased=True), matrix(up_type, n, k, seed=2)
    expected = apart(devices[0], "silu", x, (n, gate), (n, up))
    for device in devices:
        assert_same_bits(device.gated_linear("silu", x, n, gate, up), expected)
    assert (apart(devices[0], "silu", x, (n, (gate[0], gate[1], None)), (n, up)) != expected).mean() > 0.5


def test_m85_a_bias_of_another_width_than_its_product_is_never_read() -> None:
    x = random_rows(3, 64)
    dtype, file, _ = matrix("f32", 48, 64, seed=1)
    wrong, right = (dtype, file, bias_of(32)), (dtype, file, bias_of(48))
    for device in DEVICES:
        for call in (
            lambda device=device: device.linear(x, [(48, wrong)]),
            lambda device=device: device.gated_linear("silu", x, 48, wrong, right),
            lambda device=device: device.gated_linear("silu", x, 48, right, wrong),
        ):
            with pytest.raises(_core.InternalError, match=r"product_check.h:\d+: bias"):
                call()
        device.gated_linear("silu", x, 48, right, right)


@pytest.mark.parametrize("devices", CPU_FAMILIES)
@pytest.mark.parametrize("dtype", ["q8_0", "bf16"])
def test_gemm_7_products_of_a_backend_are_those_of_its_kernels(devices: list[core.Device], dtype: str) -> None:
    n, k = 60, 256
    x, (_, file, bias) = random_rows(5, k), matrix(dtype, n, k, seed=1, biased=True)
    outs, _ = core.gemm_linear([(dtype, file, n, bias)], x, core.ThreadPool(1))
    assert_same_bits(devices[0].linear(x, [(n, (dtype, file, bias))])[0], outs[0])


def silu(gate: Array, up: Array) -> Array:
    return gate / (1 + np.exp(-gate)) * up


def gelu_tanh(gate: Array, up: Array) -> Array:
    return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up


ORACLES = {"silu": silu, "gelu_tanh": gelu_tanh}


@each_family
def test_krn_3_a_gate_is_activated_and_multiplied(devices: list[core.Device]) -> None:
    n, k = 120, 96
    x = random_rows(30, k)
    gate, up = random_weight("f32", n, k, seed=3), random_weight("f32", n, k, seed=4)
    wide = x.astype(np.float64)
    gates, ups = wide @ gate.values.T.astype(np.float64), wide @ up.values.T.astype(np.float64)
    expected = silu(gates, ups)
    # The errors of both sums through the activation, whose slope is at most 1.1.
    error = tolerances.rounding_of_sum(k)
    sums = np.abs(wide) @ np.abs(gate.values.T), np.abs(wide) @ np.abs(up.values.T)
    bound = error * (1.1 * sums[0] * np.abs(ups) + sums[1] * np.abs(gates)) + tolerances.elementwise(expected, 8)
    actual = devices[0].gated_linear("silu", x, n, ("f32", gate.file, None), ("f32", up.file, None))
    assert (np.abs(actual - expected) <= bound).all()
    swapped = devices[0].gated_linear("silu", x, n, ("f32", up.file, None), ("f32", gate.file, None))
    assert (np.abs(swapped - expected) > bound).mean() > 0.9


# Kernels by number of rows, and those that a mixed plan takes for prompts; alone, they gate their own outputs.
BY_ROWS = [
    *((dtype, 1, f"{dtype}_dp4a") for dtype in INTEGER_TYPES),
    *((dtype, 4, f"{dtype}_dp4a") for dtype in ("q8_0", "q5_k")),
    *((dtype, m, f"{dtype}_imma") for dtype, m in zip(INTEGER_TYPES, (5, 9, 17, 33, 70), strict=True)),
    *((dtype, m, f"{dtype}_mma") for dtype in ("f16", "bf16", "f8_e4m3") for m in (1, 17)),
    *((dtype, m, f"{dtype}_hmma") for dtype, m in zip(TILE_TYPES, (1, 5, 16, 17, 64, 65, 70, 33), strict=True)),
]


@pytest.mark.few(3)
@pytest.mark.parametrize("gpu", GPUS, ids=lambda device: device.name.replace(" ", "_"))
@pytest.mark.parametrize(("dtype", "m", "kernel"), BY_ROWS)
def test_krn_3_gemm_10_kernels_gate_for_any_number_of_rows(gpu: core.Device, dtype: str, m: int, kernel: str) -> None:
    n, k = 150, {"f16": 275, "bf16": 275, "q8_0": 352, "q4_0": 352, "f8_e4m3": 320}.get(dtype, 512)
    activation = "gelu_tanh" if m % 2 else "silu"
    x = held_rows(m, k)
    gate, up, bias = random_weight(dtype, n, k, seed=1), random_weight(dtype, n, k, seed=2), bias_of(n)
    matrices = (dtype, gate.file, bias), (dtype, up.file, None)
    how = {"overrides": [("w", kernel)]} if kernel.endswith("hmma") else {}
    before = gpu.launches()
    actual = gpu.gated_linear(activation, x, n, *matrices, fill=0xFF, **how)
    assert {name for name, count in gpu.launches().items() if count != before[name]} == {kernel}
    assert_same_bits(actual, apart(gpu, activation, x, *((n, term) for term in matrices), **how))

    def is_within(gate: Weight, up: Weight, bias: Array | None) -> bool:
        product = many_row_product if kernel.endswith("_hmma") else few_row_product
        gates, off = product(x.astype(np.float64), gate, bias)
        ups, off_up = product(x.astype(np.float64), up)
        # Neither activation has a slope above 1.13 or exceeds its argument.
        through = 1.13 * off * (np.abs(ups) + off_up) + np.abs(gates) * off_up
        exact = ORACLES[activation](gates, ups)
        bound = through + tolerances.gelu_tanh(gates, ups) + tolerances.elementwise(exact, 8)
        return bool((np.abs(actual - exact) <= bound).all())

    assert is_within(gate, up, bias)
    assert not is_within(up, gate, bias)
    assert not is_within(gate, up, None)


@each_family
@pytest.mark.parametrize("dtype", ["q8_0", "f16"])
def test_det_1_gated_rows_do_not_depend_on_their_company(devices: list[core.Device], dtype: str) -> None:
    n, k, m = 200, 256, rows_of(devices, max(ROWS))
    x = random_rows(m, k)
    gate, up = matrix(dtype, n, k, seed=1), matrix(dtype, n, k, seed=2)
    whole = devices[-1].gated_linear("gelu_tanh", x, n, gate, up)
    for rows in ([0], [m - 1, 3], list(range(m // 15, m // 6))):
        assert_same_bits(devices[-1].gated_linear("gelu_tanh", x[rows], n, gate, up), whole[rows])


@each_family
def test_hon_2_both_products_are_counted(devices: list[core.Device]) -> None:
    device = devices[-1]
    before = device.launches()
    device.gated_linear(
        "silu", random_rows(3, 256), 48, matrix("q8_0", 48, 256, seed=1), matrix("f16", 48, 256, seed=2)
    )
    after = device.launches()
    changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    planned = [
        core.gemm_plan(core.cpu_caps(ISAS[-1]), dtype, 48, 256)["kernels"][0]["name"] for dtype in ("q8_0", "f16")
    ]
    assert changed == dict.fromkeys(planned if devices is DEVICES else ["q8_0_dp4a", "f16_mma"], 1)
