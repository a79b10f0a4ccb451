"""Two products of which one gates the other: as the products and the activation by themselves, in every bit."""

from __future__ import annotations

import numpy as np
import pytest

from imp_service import _testing as core
from support import tolerances
from support.bits import assert_same_bits
from support.devices import DEVICES
from support.weights import random_rows, random_weight

Array = np.ndarray
Matrix = tuple[str, Array, Array | None]


def matrix(dtype: str, n: int, k: int, *, seed: int, biased: bool = False) -> Matrix:
    bias = np.random.default_rng(seed).normal(size=n).astype(np.float32) if biased else None
    return dtype, random_weight(dtype, n, k, seed=seed).file, bias


def apart(kind: str, x: Array, n: int, gate: Matrix, up: Matrix) -> Array:
    terms = [(dtype, file, n, bias) for dtype, file, bias in (gate, up)]
    outs, _ = core.gemm_linear(terms, x, core.ThreadPool(1))
    return DEVICES[0].gated_activation(kind, *outs)


# A row, some, and so many that outputs are taken in several pieces, the last of no whole panel.
ROWS = [1, 5, 600]


@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize(
    ("gate_type", "up_type"), [("q8_0", "q8_0"), ("q4_k", "q6_k"), ("bf16", "q4_0"), ("f32", "f16"), ("iq2_s", "f32")]
)
def test_gemm_7_a_gate_and_what_it_gates_share_an_input(gate_type: str, up_type: str, m: int) -> None:
    n, k = 200, 256
    x = random_rows(m, k)
    gate, up = matrix(gate_type, n, k, seed=1, biased=True), matrix(up_type, n, k, seed=2)
    expected = apart("silu", x, n, gate, up)
    for device in DEVICES:
        assert_same_bits(device.gated_linear("silu", x, n, gate, up), expected)
    assert (apart("silu", x, n, (gate[0], gate[1], None), up) != expected).mean() > 0.5


def test_krn_3_a_gate_is_activated_and_multiplied() -> None:
    n, k = 120, 96
    x = random_rows(30, k)
    gate, up = random_weight("f32", n, k, seed=3), random_weight("f32", n, k, seed=4)
    wide = x.astype(np.float64)
    gates, ups = wide @ gate.values.T.astype(np.float64), wide @ up.values.T.astype(np.float64)
    expected = gates / (1 + np.exp(-gates)) * ups
    # Of both sums, as far as the activation, whose slope is at most 1.1, lets them through.
    error = tolerances.rounding_of_sum(k)
    sums = np.abs(wide) @ np.abs(gate.values.T), np.abs(wide) @ np.abs(up.values.T)
    bound = error * (1.1 * sums[0] * np.abs(ups) + sums[1] * np.abs(gates)) + tolerances.elementwise(expected, 8)
    actual = DEVICES[0].gated_linear("silu", x, n, ("f32", gate.file, None), ("f32", up.file, None))
    assert (np.abs(actual - expected) <= bound).all()
    swapped = DEVICES[0].gated_linear("silu", x, n, ("f32", up.file, None), ("f32", gate.file, None))
    assert (np.abs(swapped - expected) > bound).mean() > 0.9


@pytest.mark.parametrize("dtype", ["q8_0", "f16"])
def test_det_1_gated_rows_do_not_depend_on_their_company(dtype: str) -> None:
    n, k = 200, 256
    x = random_rows(600, k)
    gate, up = matrix(dtype, n, k, seed=1), matrix(dtype, n, k, seed=2)
    whole = DEVICES[-1].gated_linear("gelu_tanh", x, n, gate, up)
    for rows in ([0], [599, 3], list(range(40, 97))):
        assert_same_bits(DEVICES[-1].gated_linear("gelu_tanh", x[rows], n, gate, up), whole[rows])


def test_hon_2_both_products_are_counted() -> None:
    device = core.Device()
    before = device.launches()
    device.gated_linear(
        "silu", random_rows(3, 256), 48, matrix("q8_0", 48, 256, seed=1), matrix("f16", 48, 256, seed=2)
    )
    after = device.launches()
    changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    kernels = [core.gemm_plan(core.cpu_caps("auto"), dtype, 48, 256)["kernels"][0]["name"] for dtype in ("q8_0", "f16")]
    assert changed == dict.fromkeys(kernels, 1)
