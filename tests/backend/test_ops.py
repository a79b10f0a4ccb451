"""The backends' ops against float64: on every instruction set of this CPU, with one thread and several, and on GPUs."""

from __future__ import annotations

from collections.abc import Callable

import gguf
import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.devices import each_device, each_family
from support.oracles import tolerances
from support.oracles.op_oracles import gelu_oracle, rms_norm_oracle, rope_oracle, silu_oracle

Array = np.ndarray


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


def same_on_all(devices: list[core.Device], op: Callable[[core.Device], Array]) -> Array:
    """Returns the op's result; checks that every device of a family gives the same bits."""
    results = [op(device) for device in devices]
    for result in results[1:]:
        assert_same_bits(result, results[0])
    return results[0]


def assert_close(actual: Array, expected: Array, bound: Array) -> None:
    error = np.abs(actual.astype(np.float64) - expected)
    assert (error <= bound).all(), f"error {np.max(error / bound)} of the bound"


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def extremes(rng: np.random.Generator, *shape: int) -> Array:
    """Returns values of magnitudes from 1e-30 to 1e15, whose squares are finite."""
    return (rng.normal(size=shape) * 10.0 ** rng.uniform(-30, 15, size=shape)).astype(np.float32)


@each_family
@pytest.mark.parametrize("width", [8, 80, 257, 2048])
@pytest.mark.parametrize("make", [normal, extremes])
def test_krn_3_rms_norm(
    devices: list[core.Device], rng: np.random.Generator, width: int, make: Callable[..., Array]
) -> None:
    x, weight = make(rng, 5, width), normal(rng, width)
    actual = same_on_all(devices, lambda device: device.rms_norm(x, weight, 1e-5))
    assert_same_bits(devices[0].rms_norm(x, weight, 1e-5, in_place=True), actual)
    expected = rms_norm_oracle(x, weight, 1e-5)
    bound = tolerances.rms_norm(x.astype(np.float64), weight.astype(np.float64))
    assert_close(actual, expected, bound)
    # Negative control: the neighbour's weight, a mean over one element too few.
    for wrong in (rms_norm_oracle(x, np.roll(weight, 1), 1e-5), expected * np.sqrt((width - 1) / width)):
        with pytest.raises(AssertionError):
            assert_close(actual, wrong, bound)


@each_family
@pytest.mark.parametrize("width", [8, 257, 5000])
def test_krn_3_a_sum_is_normalized_as_if_by_itself(
    devices: list[core.Device], rng: np.random.Generator, width: int
) -> None:
    x, y, weight = normal(rng, 7, width), normal(rng, 7, width), normal(rng, width)
    for device in devices:
        total, normed = device.add_norm(x, y, weight, 1e-5)
        assert_same_bits(total, device.add(x, y))
        assert_same_bits(normed, device.rms_norm(total, weight, 1e-5))
    assert_close(normed, rms_norm_oracle(x + y, weight, 1e-5), tolerances.rms_norm(*map(np.float64, (x + y, weight))))


def frequencies(scaling: str) -> Array:
    """Returns the rotary frequencies of 40 pairs, plain or scaled as the model code does."""
    plain = 10000.0 ** (-np.arange(40) / 40)
    if scaling == "linear":
        return plain / 4
    if scaling == "yarn":
        ramp = np.clip((np.arange(40) - 8) / 16, 0, 1)
        return plain / 4 * ramp + plain * (1 - ramp)
    if scaling == "proportional":
        return plain / np.linspace(1, 32, 40)
    return plain


@each_family
@pytest.mark.parametrize("scaling", ["none", "linear", "yarn", "proportional"])
def test_gen_22_d09_rope_angles_at_any_position(devices: list[core.Device], scaling: str) -> None:
    positions = np.array([0, 3, 4, 5, 8191, 2**24 - 1, 2**24], np.int32)
    magnitude = 1.1386 if scaling == "yarn" else 1.0
    plan = frequencies(scaling)
    actual = same_on_all(devices, lambda device: device.rope_angles(positions, plan.tolist(), magnitude))
    assert_same_bits(actual[4:5], devices[0].rope_angles(positions[4:5], plan.tolist(), magnitude))
    angles = positions[:, None] * plan
    expected = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * np.float64(np.float32(magnitude))
    assert tolerances.ANGLE < tolerances.UNIT_CIRCLE
    assert_close(actual, expected, np.full_like(expected, tolerances.ANGLE))
    shifted = np.concatenate([np.cos(angles + plan), np.sin(angles + plan)], axis=1)
    with pytest.raises(AssertionError):
        assert_close(actual, shifted, np.full_like(expected, tolerances.ANGLE))


@pytest.mark.few(8)
@each_family
@pytest.mark.parametrize("style", ["adjacent", "halves"])
@pytest.mark.parametrize(("head_dim", "dims"), [(8, 8), (80, 80), (128, 96), (96, 20)])
def test_krn_3_rope_rotates_pairs_of_either_style(
    devices: list[core.Device], rng: np.random.Generator, style: str, head_dim: int, dims: int
) -> None:
    x = normal(rng, 4, 3 * head_dim)
    angles = devices[0].rope_angles(np.array([7, 1, 300, 90], np.int32), (0.7 ** np.arange(dims // 2)).tolist())
    actual = same_on_all(devices, lambda device: device.rope(x, head_dim, style, angles))
    expected, bound = rope_oracle(x, angles, head_dim, style)
    assert_close(actual, expected, bound)
    for wrong in (
        rope_oracle(x, np.roll(angles, 1, axis=0), head_dim, style)[0],
        rope_oracle(x, angles, head_dim, "halves" if style == "adjacent" else "adjacent")[0],
    ):
        with pytest.raises(AssertionError):
            assert_close(actual, wrong, bound)


@each_family
@pytest.mark.parametrize("style", ["adjacent", "halves"])
def test_krn_3_heads_are_normalized_before_they_turn(
    devices: list[core.Device], rng: np.random.Generator, style: str
) -> None:
    x, weight = normal(rng, 4, 3 * 80), normal(rng, 80)
    angles = devices[0].rope_angles(np.array([7, 1, 300, 90], np.int32), (0.7 ** np.arange(36)).tolist())
    for device in devices:
        normed = device.rms_norm(x.reshape(12, 80), weight, 1e-5).reshape(x.shape)
        expected = device.rope(normed, 80, style, angles)
        assert_same_bits(device.rope(x, 80, style, angles, weight, 1e-5), expected)
        assert (device.rope(x, 80, style, angles) != expected).any(axis=1).all()


@each_device
@pytest.mark.parametrize("dtype", ["f16", "bf16", "q8_0"])
@pytest.mark.parametrize(("head_dim", "style"), [(64, "halves"), (96, "adjacent")])
def test_krn_3_rotating_and_keeping_in_one_pass_is_what_its_parts_are(
    device: core.Device, rng: np.random.Generator, dtype: str, head_dim: int, style: str
) -> None:
    """Compares rotated q and every byte of the cache with rope and append: four rows of two sequences, 5 heads on 3."""
    angles = device.rope_angles(np.array([7, 8, 9, 33], np.int32), (0.7 ** np.arange(20)).tolist())
    q, k, v = normal(rng, 4, 5 * head_dim), normal(rng, 4, 3 * head_dim), normal(rng, 4, 3 * head_dim)
    q_norm, k_norm = normal(rng, head_dim), normal(rng, head_dim)
    sequences = [(3, 7, [2]), (1, 33, [3, 0, 1])]
    geometry = {"dtype": dtype, "n_layers": 2, "n_kv_heads": 3, "head_dim": head_dim, "n_blocks": 4}

    def parts(k_weight: Array | None) -> bytes:
        cache = core.Cache(device, **geometry)
        cache.append(1, sequences, device.rope(k, head_dim, style, angles, k_weight, 1e-5), v)
        return cache.memory()

    cache = core.Cache(device, **geometry)
    turned = cache.rope_append(1, sequences, (q, k, v), style == "adjacent", angles, q_norm, k_norm, 1e-5)
    assert_same_bits(turned, device.rope(q, head_dim, style, angles, q_norm, 1e-5))
    assert cache.memory() == parts(k_norm)
    assert cache.memory() != parts(None)


@pytest.mark.few(4)
@each_family
@pytest.mark.parametrize("width", [5, 96, 4097, 9000])
def test_krn_3_gated_activations(devices: list[core.Device], rng: np.random.Generator, width: int) -> None:
    gate = normal(rng, 3, width) * np.float32(4)
    gate[1, :5] = [100, -100, 0, -0.0, 1e-20]
    up = normal(rng, 3, width)
    wide_gate, wide_up = gate.astype(np.float64), up.astype(np.float64)
    for kind, oracle in (("silu", silu_oracle), ("gelu_tanh", gelu_oracle)):
        expected = oracle(wide_gate, wide_up)
        # The rounding of an argument is relative to the argument: exp(-x) with |x| near 20.
        bound = tolerances.elementwise(expected, 8) * (1 + np.abs(wide_gate))
        if kind == "gelu_tanh":
            bound = tolerances.gelu_tanh(wide_gate, wide_up)
        results = [
            same_on_all(devices, lambda device, kind=kind, into=into: device.gated_activation(kind, gate, up, into))
            for into in ("new", "gate", "up")
        ]
        for actual in results:
            assert_same_bits(actual, results[0])
        assert_close(results[0], expected, bound)
        with pytest.raises(AssertionError):
            assert_close(results[0], oracle(wide_up, wide_gate), bound)
        with pytest.raises(AssertionError):
            assert_close(results[0], (gelu_oracle if kind == "silu" else silu_oracle)(wide_gate, wide_up), bound)


@each_family
@pytest.mark.parametrize("width", [7, 4100])
def test_krn_3_add_soft_cap_gather_and_read(devices: list[core.Device], rng: np.random.Generator, width: int) -> None:
    x, y = extremes(rng, 6, width), extremes(rng, 6, width)
    assert_same_bits(same_on_all(devices, lambda device: device.add(x, y)), x + y)

    moderate = normal(rng, 6, width) * np.float32(40)
    actual = same_on_all(devices, lambda device: device.soft_cap(moderate, 30.0))
    expected = 30 * np.tanh(moderate.astype(np.float64) / 30)
    assert_close(actual, expected, tolerances.elementwise(expected, 8))
    with pytest.raises(AssertionError):
        assert_close(actual, np.clip(moderate, -30, 30), tolerances.elementwise(expected, 8))

    rows = np.array([5, 0, 0, 3], np.int32)
    assert_same_bits(same_on_all(devices, lambda device: device.gather_rows(x, rows)), x[rows])
    assert_same_bits(same_on_all(devices, lambda device: device.read_row(x, 4)), x[4])


@each_family
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_krn_3_embed_reads_float_rows_exactly(devices: list[core.Device], rng: np.random.Generator, dtype: str) -> None:
    table = normal(rng, 37, 96)
    words = table.astype(np.float16) if dtype == "f16" else table
    stored = words.tobytes()
    if dtype == "bf16":
        stored = (table.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        words = (table.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    tokens = np.array([36, 0, 17, 17, 1], np.int32)
    actual = same_on_all(
        devices, lambda device: device.embed(tokens, dtype, np.frombuffer(stored, np.uint8), 37, 96, 2.5)
    )
    assert_same_bits(actual, words.astype(np.float32)[tokens] * np.float32(2.5))


@each_family
def test_krn_3_embed_decodes_quantized_rows(devices: list[core.Device], rng: np.random.Generator) -> None:
    table = gguf.quants.quantize(normal(rng, 40, 256), gguf.GGMLQuantizationType.Q8_0)
    expected = gguf.quants.dequantize(table, gguf.GGMLQuantizationType.Q8_0).astype(np.float32)
    tokens = np.array([39, 2, 31, 0], np.int32)
    actual = same_on_all(
        devices, lambda device: device.embed(tokens, "q8_0", np.frombuffer(table.tobytes(), np.uint8), 40, 256)
    )
    assert_same_bits(actual, expected[tokens])


@each_device
def test_gemm_7_hon_2_launches_are_counted_by_name(device: core.Device, rng: np.random.Generator) -> None:
    before = device.launches()
    x = normal(rng, 2, 24)
    device.add(x, x)
    device.add(x, x)
    device.rms_norm(x, x[0], 1e-6)
    after = device.launches()
    changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert changed == {"add": 2, "rms_norm": 1}
    assert {"attend_decode", "attend_prefill", "sample", "reference"} <= set(after)


def test_gemm_14_an_instruction_set_is_forced_by_name() -> None:
    assert core.Device(isa="generic").name.endswith("(generic)")
    with pytest.raises(Exception, match="expected one of: auto, generic, avx2"):
        core.Device(isa="sse9")
