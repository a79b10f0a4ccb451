"""Routing to experts, their products and the sum, against float64 and against separate products of each expert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.devices import DEVICES, each_family
from support.kernels.weights import WEIGHT_TYPES, random_rows, random_weight
from support.oracles import tolerances
from support.oracles.numpy_transformer import expert_weights

Array = np.ndarray


Devices = list[core.Device]


def same_on_all(devices: Devices, op: Callable[[core.Device], tuple[Array, ...]]) -> tuple[Array, ...]:
    """Returns the op's results; checks that every device of a family gives the same bits."""
    results = [op(device) for device in devices]
    for result in results[1:]:
        for got, expected in zip(result, results[0], strict=True):
            assert_same_bits(got, expected)
    return results[0]


def chosen_by(scores: Array, n_used: int) -> Array:
    return np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :n_used]


@pytest.mark.sweep
@each_family
@pytest.mark.parametrize(("n_experts", "n_used"), [(1, 1), (4, 2), (8, 8), (60, 4), (128, 8), (257, 33)])
@pytest.mark.parametrize("normalized", [True, False])
def test_mod_17_experts_and_weights_equal_the_oracle(
    devices: Devices, n_experts: int, n_used: int, normalized: bool
) -> None:
    scores = (3 * np.random.default_rng(n_experts).normal(size=(37, n_experts))).astype(np.float32)
    experts, weights, _, _ = same_on_all(
        devices, lambda device: core.route_experts(device, scores, n_used, normalized=normalized, scale=1.5)
    )
    assert np.array_equal(experts, chosen_by(scores, n_used))
    expected = np.take_along_axis(expert_weights(scores.astype(np.float64), n_used, normalized, 1.5), experts, axis=1)
    # Two roundings each of exp and of its argument, a sum of this many terms, a quotient and a product.
    bound = tolerances.elementwise(expected, n_experts + 6) * (1 + np.abs(scores).max())
    assert (np.abs(weights - expected) <= bound).all()
    if n_used < n_experts:
        other = expert_weights(scores.astype(np.float64), n_used, not normalized, 1.5)
        assert (np.abs(weights - np.take_along_axis(other, experts, axis=1)) > bound).any()


@each_family
def test_mod_17_ties_go_to_the_lowest_expert(devices: Devices) -> None:
    scores = np.array([[1, 2, 2, 2, 0], [0, 0, 0, 0, 0], [-0.0, 0.0, -1, 0.0, -0.0], [5, 1, 5, 1, 5]], np.float32)
    experts, _, _, _ = same_on_all(devices, lambda device: core.route_experts(device, scores, 2))
    assert experts.tolist() == [[1, 2], [0, 1], [0, 1], [0, 2]]


@each_family
def test_mod_17_rows_are_grouped_by_expert_in_their_order(devices: Devices) -> None:
    scores = np.random.default_rng(5).normal(size=(50, 6)).astype(np.float32)
    experts, _, places, begins = same_on_all(devices, lambda device: core.route_experts(device, scores, 3))
    rows = np.empty(150, int)
    rows[places.ravel()] = np.arange(150) // 3
    assert sorted(places.ravel()) == list(range(150))
    assert (begins[0], begins[-1]) == (0, 150)
    for expert in range(6):
        group = rows[begins[expert] : begins[expert + 1]]
        assert group.tolist() == [row for row in range(50) if expert in experts[row]]


@each_family
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("normalized", [True, False])
def test_a_score_that_is_no_number_is_seen_in_its_row_alone(devices: Devices, bad: float, normalized: bool) -> None:
    scores = np.random.default_rng(6).normal(size=(5, 9)).astype(np.float32)
    right = core.route_experts(devices[0], scores, 2, normalized=normalized)[1]
    scores[3, 7] = bad
    experts, weights, places, _ = same_on_all(
        devices, lambda device: core.route_experts(device, scores, 2, normalized=normalized)
    )
    assert np.isnan(weights[3]).any()
    assert experts.min() >= 0
    assert experts.max() < 9
    assert sorted(places.ravel()) == list(range(10))
    assert_same_bits(np.delete(weights, 3, axis=0), np.delete(right, 3, axis=0))
    scores[1] = np.nan
    experts, _, places, _ = core.route_experts(devices[0], scores, 2)
    assert experts[1].tolist() == [0, 1]
    assert sorted(places.ravel()) == list(range(10))


@each_family
def test_krn_3_a_row_is_added_by_its_gate(devices: Devices) -> None:
    x, y = random_rows(4, 4097), random_rows(4, 4097, seed=1)
    gates = np.array([[0.3], [-100], [100], [-2.5]], np.float32)
    (actual,) = same_on_all(devices, lambda device: (device.add_gated(x, y, gates),))
    with np.errstate(over="ignore"):
        factors = 1 / (1 + np.exp(-gates.astype(np.float64)))
    expected = x + factors * y
    bound = tolerances.rounding_of_sum(8) * (np.abs(x) + np.abs(factors * y)) * (1 + np.abs(gates))
    assert (np.abs(actual - expected) <= bound).all()
    assert (np.abs(actual - (x + np.roll(factors, 1) * y)) > bound).any(axis=1).all()


class Experts:
    """A matrix of each type, and a batch of rows with scores."""

    def __init__(self, dtypes: list[str], *, n: int, k: int, m: int, n_used: int) -> None:
        n_experts = len(dtypes)
        self.dtypes, self.n, self.n_used = dtypes, n, n_used
        self.weights = [random_weight(dtype, n, k, seed=i) for i, dtype in enumerate(dtypes)]
        self.files = [weight.file for weight in self.weights]
        self.x = random_rows(m, k)
        self.scores = np.random.default_rng(m).normal(size=(m, n_experts)).astype(np.float32)
        self.chosen = chosen_by(self.scores, n_used)

    def run(self, device: core.Device, rows: Any = slice(None), biases: Array | None = None) -> tuple[Array, Array]:
        return core.expert_products(
            device, self.x[rows], self.scores[rows], self.n_used, self.dtypes, self.files, self.n, biases=biases
        )

    def expected(self) -> Array:
        """Returns products [rows, used, n] in float64."""
        x = self.x.astype(np.float64)
        return np.stack([[x[i] @ self.weights[e].values.T for e in row] for i, row in enumerate(self.chosen)])


@pytest.mark.long
@each_family
@pytest.mark.parametrize("dtype", WEIGHT_TYPES)
def test_mod_17_each_row_is_multiplied_with_its_experts(devices: Devices, dtype: str) -> None:
    """The outputs do not fill the last panel; one expert has most of the rows, and one has none."""
    case = Experts([dtype] * 5, n=40, k=256, m=19, n_used=2)
    case.scores[:, 3] += 4
    case.scores[:, 1] -= 9
    case.chosen = chosen_by(case.scores, 2)
    products, mixed = same_on_all(devices, case.run)
    expected = case.expected()

    def error(other: Array) -> float:
        return float(np.sqrt(np.mean((products - other) ** 2) / np.mean(other**2)))

    float16 = 1e-6 if devices is DEVICES else tolerances.FLOAT16_ACTIVATIONS_RMS
    bound = {"f32": 1e-6, "f16": float16, "bf16": tolerances.BFLOAT16_ACTIVATIONS_RMS}.get(
        dtype, tolerances.INT8_ACTIVATIONS_RMS
    )
    assert error(expected) < bound
    assert error(np.roll(expected, 1, axis=0)) > 10 * bound
    assert error(expected[:, ::-1]) > 10 * bound
    weights = np.take_along_axis(expert_weights(case.scores.astype(np.float64), 2, True), case.chosen, axis=1)
    terms = weights[:, :, None] * products
    assert (np.abs(mixed - terms.sum(axis=1)) <= tolerances.rounding_of_sum(20) * np.abs(terms).sum(axis=1)).all()


@pytest.mark.parametrize("of_experts", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "q8_0", "mxfp4"])
def test_mod_17_each_expert_adds_its_bias(dtype: str, of_experts: bool) -> None:
    """The bias adds to the products of the expert's rows, in either of its two places. GPUs have no expert biases."""
    case = Experts([dtype] * 5, n=40, k=256, m=19, n_used=2)
    biases = np.random.default_rng(8).normal(size=(5, 40)).astype(np.float32)
    grouped = np.empty((38, 256), np.float32)
    grouped[core.route_experts(DEVICES[0], case.scores, 2)[2].ravel()] = np.repeat(case.x, 2, axis=0)

    def run(device: core.Device, added: Array | None) -> tuple[Array, Array]:
        x = grouped if of_experts else case.x
        return core.expert_products(
            device, x, case.scores, 2, case.dtypes, case.files, 40, biases=added, of_experts=of_experts
        )

    products, _ = same_on_all(DEVICES, lambda device: run(device, biases))
    without, _ = same_on_all(DEVICES, lambda device: run(device, None))
    assert_same_bits(products, without + biases[case.chosen])
    assert not np.array_equal(products, without + np.roll(biases, 1, axis=0)[case.chosen])


MIXED = ["q4_k", "bf16", "q6_k", "f32", "q8_0", "iq4_nl", "f16"]


@pytest.mark.long
@each_family
def test_mod_17_experts_of_a_layer_may_differ_in_type(devices: Devices) -> None:
    """Each expert computes as in a layer of its own type, whatever format its rows need."""
    case = Experts(MIXED, n=40, k=256, m=29, n_used=3)
    grouped = np.empty((87, 256), np.float32)
    grouped[core.route_experts(devices[0], case.scores, 3)[2].ravel()] = np.repeat(case.x, 3, axis=0)
    products, _ = same_on_all(devices, case.run)
    again, _ = same_on_all(
        devices,
        lambda device: core.expert_products(
            device, grouped, case.scores, 3, case.dtypes, case.files, case.n, of_experts=True
        ),
    )
    assert_same_bits(again, products)
    for expert, dtype in enumerate(MIXED):
        alone = Experts([dtype] * len(MIXED), n=40, k=256, m=29, n_used=3)
        expected, _ = alone.run(devices[0])
        its = case.chosen == expert
        assert its.any()
        assert_same_bits(products[its], expected[its])


@pytest.mark.few(4)
@each_family
@pytest.mark.parametrize("dtype", ["f32", "bf16", "q8_0", "q4_k"])
def test_det_1_a_rows_products_do_not_depend_on_its_company(devices: Devices, dtype: str) -> None:
    case = Experts([dtype] * 4, n=48, k=256, m=33, n_used=2)
    products, mixed = case.run(devices[0])
    for device in (devices[0], devices[-1]):
        for rows in ([0], [32], [7, 3], list(range(20, 33)), list(range(32, -1, -1))):
            part, mixed_part = case.run(device, rows)
            assert_same_bits(part, products[rows])
            assert_same_bits(mixed_part, mixed[rows])


@each_family
@pytest.mark.parametrize("dtype", ["f32", "bf16", "q8_0"])
def test_mod_17_grouped_rows_are_multiplied_where_they_stand(devices: Devices, dtype: str) -> None:
    case = Experts([dtype] * 4, n=40, k=128, m=9, n_used=2)
    places = core.route_experts(devices[0], case.scores, 2)[2]
    grouped = np.empty((18, 128), np.float32)
    grouped[places.ravel()] = np.repeat(case.x, 2, axis=0)
    products, _ = case.run(devices[0])
    again, _ = same_on_all(
        devices,
        lambda device: core.expert_products(
            device, grouped, case.scores, 2, case.dtypes, case.files, case.n, of_experts=True
        ),
    )
    assert_same_bits(again, products)
