"""Ops of linear attention against float64: on every instruction set of this CPU. GPUs have none of them."""

from __future__ import annotations

import numpy as np
import pytest

from backend.test_ops import assert_close, normal, rng, same_on_all
from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.devices import CPU_FAMILIES, DEVICES
from support.oracles import tolerances
from support.oracles.op_oracles import rms_norm_oracle, silu_oracle
from support.oracles.recurrence_oracles import DeltaOracle, short_conv_bound, short_conv_oracle

__all__ = ["rng"]

Array = np.ndarray
Sequence = tuple[int, int, list[tuple[int, int]]]
each_family = pytest.mark.parametrize("devices", CPU_FAMILIES)


@each_family
@pytest.mark.parametrize("width", [7, 4100])
def test_krn_4_rows_times_the_sigmoid_of_gates(
    devices: list[core.Device], rng: np.random.Generator, width: int
) -> None:
    x, gates = normal(rng, 3, width), normal(rng, 3, width) * np.float32(5)
    actual = same_on_all(devices, lambda device: device.multiply_sigmoid(x, gates))
    expected = x / (1 + np.exp(-gates.astype(np.float64)))
    assert_close(actual, expected, tolerances.elementwise(expected, 4))
    with pytest.raises(AssertionError):
        assert_close(actual, x * gates / (1 + np.exp(-gates.astype(np.float64))), tolerances.elementwise(expected, 4))


@each_family
@pytest.mark.parametrize(("n_heads", "head_dim"), [(3, 8), (2, 40), (5, 128)])
def test_krn_4_gated_norm_of_heads(
    devices: list[core.Device], rng: np.random.Generator, n_heads: int, head_dim: int
) -> None:
    x, gates = normal(rng, 4, n_heads * head_dim), normal(rng, 4, n_heads * head_dim) * np.float32(3)
    weight = normal(rng, head_dim)
    actual = same_on_all(devices, lambda device: device.rms_norm_gated(x, weight, 1e-5, gates))
    assert_same_bits(devices[0].rms_norm_gated(x, weight, 1e-5, gates, in_place=True), actual)
    wide = gates.astype(np.float64)
    expected = silu_oracle(wide, rms_norm_oracle(x, weight, 1e-5))
    bound = tolerances.elementwise(expected, head_dim + 16)
    assert_close(actual, expected, bound)
    for wrong in (
        rms_norm_oracle(x, weight, 1e-5) / (1 + np.exp(-wide)),
        silu_oracle(wide, rms_norm_oracle(x, weight, 1e-3)),
    ):
        with pytest.raises(AssertionError):
            assert_close(actual, wrong, bound)


def states_of(device: core.Device, taps: int, width: int, shape: tuple[int, int, int]) -> core.States:
    """Makes states in which unwritten slots hold NaN."""
    states = core.States(device, n_layers=2, conv_taps=taps, conv_width=width, state_shape=shape, n_slots=8)
    states.fill(np.nan)
    return states


@each_family
@pytest.mark.parametrize(("taps", "width"), [(4, 24), (4, 2051), (2, 7)])
def test_krn_4_short_convolution(devices: list[core.Device], rng: np.random.Generator, taps: int, width: int) -> None:
    """Runs a sequence from its start and saves states after 1, 2 and all of its rows. Then one batch continues from the
    second state, from the first one, and starts a new sequence.
    """
    first, second, third, fourth = (normal(rng, n, width) for n in (6, 1, 9, 3))
    weight = normal(rng, taps, width)
    zeros = np.zeros((taps - 1, width), np.float32)
    starts = {0: zeros, 1: np.vstack([zeros, first[:1]]), 2: np.vstack([zeros, first[:2]])}

    def both(device: core.Device) -> Array:
        states = states_of(device, taps - 1, width, (1, 8, 8))
        begun = states.short_conv(1, [(6, -1, [(1, 0), (2, 3), (6, 7)])], first, weight)
        later = states.short_conv(
            1, [(1, 3, [(1, 1)]), (9, 0, [(9, 2)]), (3, -1, [(3, 4)])], np.vstack([second, third, fourth]), weight
        )
        kept = [states.read(1, slot)[0] for slot in (0, 3, 7, 1, 2, 4)]
        return np.vstack([begun, later, *kept])

    actual = same_on_all(devices, both)
    inputs = [
        np.vstack([zeros, first]),
        np.vstack([starts[2], second])[2:],
        np.vstack([starts[1], third])[1:],
        np.vstack([zeros, fourth]),
    ]
    expected = np.vstack([short_conv_oracle(each, weight) for each in inputs])
    bound = np.vstack([short_conv_bound(each, weight) for each in inputs])
    n = len(expected)
    assert_close(actual[:n], expected, bound)
    kept = [inputs[0][1:taps], inputs[0][2 : taps + 1], *(each[len(each) - taps + 1 :] for each in inputs)]
    assert_same_bits(actual[n:], np.vstack(kept))
    # Negative controls: reversed taps, no earlier rows, the neighbour's weights.
    forgetful = [np.vstack([zeros, each[taps - 1 :]]) for each in inputs]
    for wrong in (
        np.vstack([short_conv_oracle(each, weight[::-1]) for each in inputs]),
        np.vstack([short_conv_oracle(each, weight) for each in forgetful]),
        np.vstack([short_conv_oracle(each, np.roll(weight, 1, axis=1)) for each in inputs]),
    ):
        with pytest.raises(AssertionError):
            assert_close(actual[:n], wrong, bound)


class DeltaCase:
    """Random rows and parameters for heads of a given shape."""

    def __init__(
        self, rng: np.random.Generator, n_rows: int, key_heads: int, shape: tuple[int, int, int], *, interleaved: bool
    ) -> None:
        heads, key, value = shape
        self.key_heads, self.shape, self.interleaved = key_heads, shape, interleaved
        self.width = 2 * key_heads * key + heads * value
        self.rows = (
            normal(rng, n_rows, self.width),
            normal(rng, n_rows, heads),
            normal(rng, n_rows, heads) * np.float32(3),
        )
        self.vectors = (-rng.uniform(0.01, 2, heads).astype(np.float32), normal(rng, heads))

    def run(self, states: core.States, sequences: list[Sequence], rows: slice, layer: int = 1) -> Array:
        parts = tuple(each[rows] for each in self.rows)
        return states.delta_rule(layer, sequences, self.key_heads, self.interleaved, parts, self.vectors)

    def oracle(self, state: Array | None = None) -> DeltaOracle:
        return DeltaOracle(
            self.key_heads, self.interleaved, *self.vectors, np.zeros(self.shape) if state is None else state
        )

    def states(self, device: core.Device) -> core.States:
        return states_of(device, 3, self.width, self.shape)


SHAPES = [(1, (1, 8, 8)), (2, (2, 16, 24)), (2, (6, 9, 33)), (1, (3, 64, 40)), (2, (4, 128, 128))]


@pytest.mark.few(5)
@each_family
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("key_heads", "shape"), SHAPES)
def test_krn_4_gated_delta_rule(
    devices: list[core.Device], rng: np.random.Generator, key_heads: int, shape: tuple[int, int, int], interleaved: bool
) -> None:
    n = 21
    case = DeltaCase(rng, n, key_heads, shape, interleaved=interleaved)

    def run(device: core.Device) -> Array:
        states = case.states(device)
        out = case.run(states, [(n, -1, [(1, 5), (13, 2), (n, 0)])], slice(n))
        return np.concatenate([out.reshape(-1), *(states.read(1, slot)[1].reshape(-1) for slot in (5, 2, 0))])

    actual = same_on_all(devices, run)
    outs, bounds, kept, kept_bounds = case.oracle().run(*case.rows)
    assert_close(actual[: outs.size], outs.reshape(-1), bounds.reshape(-1))
    for i, row in enumerate((0, 12, 20)):
        state = actual[outs.size :].reshape(3, -1)[i]
        assert_close(state, kept[row].reshape(-1), kept_bounds[row].reshape(-1) + 1e-30)
    oracle = case.oracle()
    controls = [oracle.but(with_lengths=False), oracle.but(with_strength=False), oracle.but(reads_before=True)]
    controls.append(oracle.but(rates=case.vectors[0] * np.float32(0.99)))
    if 1 < key_heads < shape[0]:
        controls.append(oracle.but(is_interleaved=not interleaved))
    for control in controls:
        with pytest.raises(AssertionError):
            assert_close(actual[: outs.size], control.run(*case.rows)[0].reshape(-1), bounds.reshape(-1))


@pytest.mark.few(2)
@pytest.mark.parametrize(("key_heads", "shape"), SHAPES)
def test_krn_4_a_sequence_has_the_same_bits_however_it_is_divided(
    rng: np.random.Generator, key_heads: int, shape: tuple[int, int, int]
) -> None:
    """Compares outputs and state: row by row, in unequal parts, with saves in the middle, and with other sequences."""
    n = 40
    case = DeltaCase(rng, n, key_heads, shape, interleaved=False)
    case.rows[0][:, :4] *= np.float32(100)  # lengths far from 1
    whole_states = case.states(DEVICES[0])
    whole = case.run(whole_states, [(n, -1, [(n, 0)])], slice(n))
    for device in DEVICES:
        for parts in ([1] * n, [7, 7, 26], [16, 1, 23]):
            states = case.states(device)
            outs, done, slot = [], 0, -1
            for i, part in enumerate(parts):
                saves = [(part // 2, 6), (part, i % 2)] if part > 1 else [(1, i % 2)]
                outs.append(case.run(states, [(part, slot, saves)], slice(done, done + part)))
                done, slot = done + part, i % 2
            assert_same_bits(np.vstack(outs), whole)
            assert_same_bits(states.read(1, slot)[1], whole_states.read(1, 0)[1])
        # Two sequences continue, after 4 and after 10 rows; one of them is also saved before its first row.
        states = case.states(device)
        case.run(states, [(10, -1, [(4, 3), (10, 1)])], slice(10))
        both = case.run(states, [(6, 3, [(0, 2), (6, 4)]), (24, 1, [(10, 5), (10, 6), (24, 7)])], slice(4, 34))
        assert_same_bits(both[:6], whole[4:10])
        assert_same_bits(both[6:], whole[10:34])
        assert_same_bits(states.read(1, 2)[1], states.read(1, 3)[1])
        assert_same_bits(states.read(1, 4)[1], states.read(1, 1)[1])
        assert_same_bits(states.read(1, 5)[1], states.read(1, 6)[1])
    # Negative control: the state one row earlier.
    states = case.states(DEVICES[0])
    case.run(states, [(10, -1, [(9, 0), (10, 1)])], slice(10))
    with pytest.raises(AssertionError):
        assert_same_bits(case.run(states, [(30, 0, [(30, 2)])], slice(10, n)), whole[10:])


@each_family
def test_krn_4_layers_and_slots_are_apart(devices: list[core.Device], rng: np.random.Generator) -> None:
    """A layer's op writes only its own part of the given slots."""
    case = DeltaCase(rng, 5, 1, (2, 8, 8), interleaved=False)
    for device in devices:
        states = case.states(device)
        case.run(states, [(5, -1, [(5, 3)])], slice(5), layer=0)
        states.short_conv(1, [(5, -1, [(5, 4)])], case.rows[0], normal(rng, 4, case.width))
        for layer in range(2):
            for slot in range(8):
                inputs, matrices = states.read(layer, slot)
                assert np.isfinite(matrices).all() == (layer == 0 and slot == 3)
                assert np.isfinite(inputs).all() == (layer == 1 and slot == 4)
        floats = 2 * 8 * (3 * case.width + 2 * 8 * 8)
        assert states.n_bytes == 16 * (8 + 16) * 4 + 4 * floats  # values are padded to 16


@each_family
def test_krn_4_gates_at_their_ends(devices: list[core.Device]) -> None:
    """Uses steps so large that the state decays to zero, so small that it does not change, and NaN, which stays NaN."""
    qkv = np.ones((4, 24), np.float32)
    steps = np.array([[0.0], [-200.0], [200.0], [np.nan]], np.float32)
    strengths = np.array([[40.0], [-200.0], [40.0], [0.0]], np.float32)
    vectors = (np.array([-1.0], np.float32), np.zeros(1, np.float32))

    def run(device: core.Device) -> Array:
        states = states_of(device, 3, 24, (1, 8, 8))
        return states.delta_rule(0, [(4, -1, [(4, 0)])], 1, False, (qkv, steps, strengths), vectors)

    out = same_on_all(devices, run)
    # q · k of equal rows of length 1 is 1, and q is divided by √8. Row 1 changes nothing; row 2 starts again.
    expected = np.full((3, 8), 1 / np.sqrt(8))
    assert_close(out[:3], expected, tolerances.elementwise(expected, 32))
    assert np.isnan(out[3]).all()
