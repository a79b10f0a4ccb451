"""Ops that few families need, against float64: on every instruction set of this CPU. GPUs have none of them."""

from __future__ import annotations

import numpy as np
import pytest

from backend.test_ops import assert_close, extremes, normal, rng, same_on_all
from imp_service import _testing as core
from support.files.gguf_contents import Tensor
from support.kernels.bits import assert_same_bits
from support.kernels.devices import CPU_FAMILIES
from support.oracles import tolerances
from support.oracles.op_oracles import (
    clamped_silu_oracle,
    gelu_erf_oracle,
    gelu_oracle,
    layer_norm_oracle,
    rms_norm_oracle,
    xielu_oracle,
)

__all__ = ["rng"]

each_family = pytest.mark.parametrize("devices", CPU_FAMILIES)


@each_family
@pytest.mark.parametrize("width", [7, 4100])
def test_krn_3_scale(devices: list[core.Device], rng: np.random.Generator, width: int) -> None:
    x = extremes(rng, 6, width)
    assert_same_bits(same_on_all(devices, lambda device: device.scale(x, 0.37)), x * np.float32(0.37))


@each_family
@pytest.mark.parametrize("width", [7, 4100])
@pytest.mark.parametrize("in_place", [False, True])
def test_krn_3_clamp(devices: list[core.Device], rng: np.random.Generator, width: int, in_place: bool) -> None:
    x = extremes(rng, 6, width)
    x[0, :4] = np.nan, np.inf, -np.inf, -0.0
    for low, high in [(-1.5, 0.25), (-np.inf, 0.25), (-1.5, np.inf)]:
        bounds = (low, high)
        actual = same_on_all(devices, lambda device, bounds=bounds: device.clamp(x, *bounds, in_place=in_place))
        assert_same_bits(actual, np.clip(x, np.float32(low), np.float32(high)))


@each_family
@pytest.mark.parametrize("width", [7, 4100])
def test_krn_3_standardize(devices: list[core.Device], rng: np.random.Generator, width: int) -> None:
    x, mean, factors = extremes(rng, 6, width), normal(rng, width), normal(rng, width)
    actual = same_on_all(devices, lambda device: device.standardize(x, mean, factors))
    assert_same_bits(actual, (x - mean) * factors)


@each_family
def test_gen_22_med_18_each_pair_turns_by_its_plane(devices: list[core.Device]) -> None:
    """Planes interleaved, in sections, and one alone, for positions of which each plane has its own."""
    frequencies = 10000.0 ** (-np.arange(32) / 32)
    positions = np.array([[0, 3, 8191, 2**24], [0, 900, 8, 2**24 - 7], [5, 77, 4000, 1]], np.int32)
    interleaved = np.where(np.arange(32) < 30, np.arange(32) % 3, 0)
    for planes in (interleaved, np.repeat([0, 1, 2], [12, 10, 10]), np.full(32, 2)):
        arguments = (frequencies.tolist(), 1.1386, planes.tolist())
        actual = same_on_all(devices, lambda device, given=arguments: device.rope_angles(positions, *given))

        def expected(planes: np.ndarray) -> np.ndarray:
            angles = positions[planes].T * frequencies
            return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * np.float64(np.float32(1.1386))

        bound = np.full(actual.shape, tolerances.ANGLE)
        assert_close(actual, expected(planes), bound)
        with pytest.raises(AssertionError):
            assert_close(actual, expected((planes + 1) % 3), bound)


@each_family
def test_med_18_text_needs_one_plane(devices: list[core.Device]) -> None:
    """Equal positions in all planes, and one plane for all pairs, give the bits of a model without planes."""
    frequencies = (10000.0 ** (-np.arange(40) / 40)).tolist()
    planes = (np.arange(40) % 3).tolist()
    positions = np.array([0, 3, 4, 8191, 2**24], np.int32)
    for device in devices:
        before = device.launches()["rope_planes"]
        plain = device.rope_angles(positions, frequencies)
        assert_same_bits(device.rope_angles(positions, frequencies, planes=planes), plain)
        assert_same_bits(device.rope_angles(np.stack([positions, 2 * positions]), frequencies), plain)
        assert device.launches()["rope_planes"] == before
        assert_same_bits(device.rope_angles(np.tile(positions, (3, 1)), frequencies, planes=planes), plain)
        assert device.launches()["rope_planes"] == before + 1


@each_family
@pytest.mark.parametrize("width", [7, 4100])
def test_krn_3_write_rows(devices: list[core.Device], rng: np.random.Generator, width: int) -> None:
    values = extremes(rng, 6, width)
    values[2] = np.nan
    assert_same_bits(same_on_all(devices, lambda device: device.write_rows(values)), values)


@each_family
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("width", [8, 80, 257, 2048])
def test_krn_3_layer_norm(devices: list[core.Device], rng: np.random.Generator, width: int, with_bias: bool) -> None:
    """Uses rows whose mean is as large as their deviations."""
    x, weight = normal(rng, 5, width) + np.float32(1), normal(rng, width)
    bias = normal(rng, width) if with_bias else None
    actual = same_on_all(devices, lambda device: device.layer_norm(x, weight, bias, 1e-5))
    assert_same_bits(devices[0].layer_norm(x, weight, bias, 1e-5, in_place=True), actual)
    expected = layer_norm_oracle(x, weight, bias, 1e-5)
    bound = tolerances.layer_norm(x.astype(np.float64), weight.astype(np.float64), bias)
    assert_close(actual, expected, bound)
    # Negative controls: no mean, another variance, the neighbour's weight, no bias.
    wrong = [
        devices[0].rms_norm(x, weight, 1e-5),
        layer_norm_oracle(x, weight, bias, 1e-3),
        layer_norm_oracle(x, np.roll(weight, 1), bias, 1e-5),
    ]
    if with_bias:
        wrong.append(layer_norm_oracle(x, weight, None, 1e-5))
    for other in wrong:
        with pytest.raises(AssertionError):
            assert_close(actual, other, bound)


@each_family
@pytest.mark.parametrize(("n_runs", "run_length"), [(3, 7), (4, 16), (3, 128)])
def test_krn_3_layer_norm_of_runs(
    devices: list[core.Device], rng: np.random.Generator, n_runs: int, run_length: int
) -> None:
    """Each run has its own mean, variance, weight and bias."""
    x = normal(rng, 5, n_runs * run_length) + np.float32(1)
    x[:, :run_length] *= np.float32(100)  # the first run must not change the others
    weight, bias = normal(rng, n_runs * run_length), normal(rng, n_runs * run_length)
    actual = same_on_all(devices, lambda device: device.layer_norm(x, weight, bias, 1e-5, run_length=run_length))
    in_place = devices[0].layer_norm(x, weight, bias, 1e-5, run_length=run_length, in_place=True)
    assert_same_bits(in_place, actual)
    for first in range(0, n_runs * run_length, run_length):
        run = slice(first, first + run_length)
        bound = tolerances.layer_norm(x[:, run].astype(np.float64), weight[run].astype(np.float64), bias[run])
        assert_close(actual[:, run], layer_norm_oracle(x[:, run], weight[run], bias[run], 1e-5), bound)
        with pytest.raises(AssertionError):  # the weight of the next run
            other = np.roll(weight, -run_length)[run]
            assert_close(actual[:, run], layer_norm_oracle(x[:, run], other, bias[run], 1e-5), bound)


@each_family
@pytest.mark.parametrize("with_weight", [False, True])
@pytest.mark.parametrize(("n_runs", "run_length"), [(1, 7), (3, 24), (2, 256), (35, 40)])
def test_krn_3_norm_heads(
    devices: list[core.Device], rng: np.random.Generator, n_runs: int, run_length: int, with_weight: bool
) -> None:
    x = normal(rng, 5, n_runs * run_length)
    x[:, :run_length] *= np.float32(100)  # the first run must not change the others
    weight = normal(rng, run_length) if with_weight else None
    actual = same_on_all(devices, lambda device: device.norm_heads(x, run_length, weight, 1e-3))
    assert_same_bits(devices[0].norm_heads(x, run_length, weight, 1e-3, in_place=True), actual)
    factors = np.ones(run_length) if weight is None else weight.astype(np.float64)
    bound = tolerances.rms_norm(x.astype(np.float64), factors)
    assert_close(actual, rms_norm_oracle(x, factors, 1e-3), bound)
    # Negative controls: a different epsilon, the neighbour's weight, one norm for the whole row.
    wrong = [rms_norm_oracle(x, factors, 1e-2)]
    if weight is not None:
        wrong.append(rms_norm_oracle(x, np.roll(factors, 1), 1e-3))
    if n_runs > 1:
        wrong.append(rms_norm_oracle(x, np.tile(factors, n_runs), 1e-3))
    for other in wrong:
        with pytest.raises(AssertionError):
            assert_close(actual, other, bound)


@each_family
def test_mod_17_weights_of_experts_with_factors_of_their_own(
    devices: list[core.Device], rng: np.random.Generator
) -> None:
    scores, factors = normal(rng, 9, 6), normal(rng, 6)
    for device in devices:
        experts, plain, *_ = core.route_experts(device, scores, 3, normalized=True)
        chosen, scaled, *_ = core.route_experts(device, scores, 3, normalized=True, factors=factors)
        np.testing.assert_array_equal(chosen, experts)
        assert_same_bits(scaled, plain * factors[experts])


@each_family
@pytest.mark.parametrize("width", [5, 96, 4097, 9000])
def test_krn_3_activations_without_a_gate(devices: list[core.Device], rng: np.random.Generator, width: int) -> None:
    x = normal(rng, 3, width) * np.float32(4)
    x[1, :5] = [100, -100, 0, -0.0, 1e-20]
    wide = x.astype(np.float64)
    params = (0.8, 0.7, 0.5, -1e-6)
    ones = np.ones_like(wide)
    cases = {
        "gelu_tanh": (gelu_oracle(wide, ones), tolerances.gelu_tanh(wide, ones)),
        "gelu_erf": (gelu_erf_oracle(wide), tolerances.gelu_erf(wide)),
        "relu_squared": (np.maximum(wide, 0) ** 2, tolerances.elementwise(wide**2, 1)),
        "tanh": (np.tanh(wide), tolerances.elementwise(np.tanh(wide), 4)),
        # exp(x) - 1 - x cancels for small x, so its error is relative to 1.
        "xielu": (xielu_oracle(wide, *params), tolerances.elementwise(1 + np.abs(wide) + wide**2, 8)),
    }
    for kind, (expected, bound) in cases.items():
        actual = same_on_all(devices, lambda device, kind=kind: device.activate(kind, x, params))
        assert_close(actual, expected, bound)
        for other, (wrong, _) in cases.items():
            if other != kind:
                with pytest.raises(AssertionError):
                    assert_close(actual, wrong, bound)
    for wrong_params in ((0.7, 0.7, 0.5, -1e-6), (0.8, 0.8, 0.5, -1e-6), (0.8, 0.7, 0.6, -1e-6)):
        with pytest.raises(AssertionError):
            assert_close(actual, xielu_oracle(wide, *wrong_params), cases["xielu"][1])


@each_family
def test_krn_3_gelu_by_erf_is_exact_over_its_whole_range(devices: list[core.Device]) -> None:
    """On both sides of where one polynomial of erf ends and the other begins, and where erf is 1."""
    x = np.concatenate([np.linspace(-7, 7, 40_000), np.geomspace(1e-30, 1e30, 999)]).astype(np.float32)[None, :]
    actual = same_on_all(devices, lambda device: device.activate("gelu_erf", x, (0, 0, 0, 0)))
    wide = x.astype(np.float64)
    assert_close(actual, gelu_erf_oracle(wide), tolerances.gelu_erf(wide))


@each_family
@pytest.mark.parametrize("width", [5, 96, 9000])
def test_krn_3_gelu_by_erf_with_a_gate(devices: list[core.Device], rng: np.random.Generator, width: int) -> None:
    gate, up = normal(rng, 3, width) * np.float32(3), normal(rng, 3, width)
    actual = same_on_all(devices, lambda device: device.gated_activation("gelu_erf", gate, up))
    wide = gate.astype(np.float64), up.astype(np.float64)
    bound = tolerances.gelu_erf(wide[0]) * np.abs(wide[1]) * (1 + 1e-6) + 1e-30
    assert_close(actual, gelu_erf_oracle(wide[0]) * wide[1], bound)
    for other in (gelu_erf_oracle(wide[1]) * wide[0], gelu_oracle(*wide)):
        with pytest.raises(AssertionError):
            assert_close(actual, other, bound)


@each_family
@pytest.mark.parametrize("width", [7, 4100])
def test_krn_3_means_of_rows(devices: list[core.Device], rng: np.random.Generator, width: int) -> None:
    """The rows are added in order, so the bits are those of NumPy's sums in float32."""
    x, runs = extremes(rng, 9, width), [(0, 1), (2, 5), (7, 2), (8, 1)]
    actual = same_on_all(devices, lambda device: device.mean_rows(x, runs))

    def mean(first: int, n: int) -> np.ndarray:
        total = x[first].copy()
        for row in x[first + 1 : first + n]:
            total += row
        return total * (np.float32(1) / np.float32(n))

    assert_same_bits(actual, np.array([mean(*run) for run in runs]))
    assert not np.array_equal(actual[1], mean(2, 4))
    assert not np.array_equal(actual[1], mean(3, 5))


@each_family
def test_krn_3_activations_keep_nan(devices: list[core.Device]) -> None:
    x = np.array([[np.nan, 1.0]], np.float32)
    for kind in ("gelu_tanh", "gelu_erf", "relu_squared", "tanh", "xielu"):
        [row] = same_on_all(devices, lambda device, kind=kind: device.activate(kind, x, (1, 1, 1, 0)))
        assert np.isnan(row).tolist() == [True, False]


@each_family
@pytest.mark.parametrize("width", [5, 96, 9000])
def test_krn_3_a_gate_with_limits(devices: list[core.Device], rng: np.random.Generator, width: int) -> None:
    gate, up = normal(rng, 3, width) * np.float32(5), normal(rng, 3, width) * np.float32(5)
    gate[1, :5], up[2, :5] = [100, -100, 7, -0.0, 1e-20], [100, -100, -7, -1, 1e-20]
    actual = same_on_all(devices, lambda device: device.clamped_activation(gate, up, 7.0, 1.702))
    for into in ("gate", "up"):
        assert_same_bits(devices[0].clamped_activation(gate, up, 7.0, 1.702, into=into), actual)
    wide = gate.astype(np.float64), up.astype(np.float64)
    # The argument of exp is a rounded product of up to 170; up + 1 cancels near -1, so its error is relative to 1.
    bound = tolerances.elementwise(np.minimum(np.abs(wide[0]), 7) * 8, 10) * (1 + np.abs(wide[0]))
    assert_close(actual, clamped_silu_oracle(*wide, 7.0, 1.702), bound)
    # Negative controls: no limit, another slope, gate and up exchanged, nothing added to up.
    wrong = [
        clamped_silu_oracle(*wide, 1e9, 1.702),
        clamped_silu_oracle(*wide, 7.0, 1.0),
        clamped_silu_oracle(*wide[::-1], 7.0, 1.702),
        clamped_silu_oracle(wide[0], wide[1] - 1, 7.0, 1.702),
    ]
    for other in wrong:
        with pytest.raises(AssertionError):
            assert_close(actual, other, bound)


@each_family
@pytest.mark.parametrize("bad", [0, 1])
def test_krn_3_a_gate_with_limits_keeps_nan(devices: list[core.Device], bad: int) -> None:
    rows = [np.array([[2.0, 1.0]], np.float32), np.array([[2.0, 1.0]], np.float32)]
    rows[bad][0, 0] = np.nan
    [row] = same_on_all(devices, lambda device: device.clamped_activation(*rows, 7.0, 1.702))
    assert np.isnan(row).tolist() == [True, False]


@each_family
def test_krn_3_rows_scaled_by_position(devices: list[core.Device], rng: np.random.Generator) -> None:
    x = normal(rng, 6, 300)
    positions = np.array([0, 15, 16, 31, 32, 1000], np.int32)
    actual = same_on_all(devices, lambda device: device.scale_by_position(x, positions, 0.1, 16))
    factors = 1 + 0.1 * np.log(1 + positions // 16)
    expected = x * factors[:, None]
    assert_close(actual, expected, tolerances.elementwise(expected, 2))
    assert_same_bits(actual[:2], x[:2])
    with pytest.raises(AssertionError):
        assert_close(actual, x * (1 + 0.1 * np.log(1 + positions / 16))[:, None], tolerances.elementwise(expected, 2))


@each_family
def test_krn_3_spread_columns(devices: list[core.Device], rng: np.random.Generator) -> None:
    """The columns that are not named get a logit that is finite and has no chance."""
    x, columns = normal(rng, 3, 9), np.array([20, 4, 0, 33, 7, 8, 9, 2, 31], np.int32)
    actual = same_on_all(devices, lambda device: device.spread_columns(x, columns, 34))
    expected = np.full((3, 34), np.float32(-1e30))
    expected[:, columns] = x
    assert_same_bits(actual, expected)


@each_family
@pytest.mark.parametrize(("dtype", "k"), [("f32", 40), ("bf16", 24), ("q8_0", 288)])
def test_krn_3_clustered_product(devices: list[core.Device], rng: np.random.Generator, dtype: str, k: int) -> None:
    """Only rows of the clusters with the greatest scores are multiplied; of equal scores the first counts."""
    x, table = normal(rng, 3, k), Tensor(normal(rng, 60, k), dtype)
    rows = rng.permutation(60).astype(np.int32)
    scores = rng.integers(-3, 4, (3, 12)).astype(np.float32)
    stored = np.frombuffer(np.ascontiguousarray(table.encoded()).tobytes(), np.uint8)
    actual = same_on_all(devices, lambda device: device.clustered_product(x, scores, 5, rows, dtype, stored))
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    bound = tolerances.FLOAT32_ROUNDING * k
    for i in range(3):
        known = np.sort(rows.reshape(12, 5)[chosen[i]].ravel())
        assert np.array_equal(np.flatnonzero(actual[i] > np.float32(-1e30)), known)
        products, sizes = table.stored()[known] @ x[i].astype(np.float64), np.abs(table.stored()[known]) @ np.abs(x[i])
        assert_close(actual[i][known], products, bound * sizes)
