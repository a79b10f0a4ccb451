"""The decoder on a GPU, emulated or real, equals the definition of a transformer for every architecture and type."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.kernels.devices import GPU_KINDS
from support.models.forward_runs import Cache, load, logits, prompt, rms_distance
from support.models.tiny_families import CPU_OPS, FAMILIES
from support.models.tiny_models import TinyModel, tiny
from support.oracles.forward_bounds import float16_products_bound, int8_activations_bound

pytestmark = pytest.mark.parametrize("device", GPU_KINDS)

# All that GGUF has.
TYPES = [row["name"] for row in core.dtypes() if row["name"] != "f8_e4m3"]
# Types with kernels of their own for few rows and for many; all others are decoded by one.
TILED = ("q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "f16", "bf16")


def of_type(dtype: str, architecture: str = "qwen3", **changes: Any) -> TinyModel:
    sizes = {"hidden_size": 256, "ffn_size": 512, "n_heads": 4, "n_kv_heads": 2, "head_dim": 64, "n_layers": 2}
    return tiny(architecture, dtype=dtype, **{**sizes, **changes})


@pytest.mark.parametrize("family", CPU_OPS)
def test_mod_7_an_op_that_gpus_lack_is_refused_by_name(device: str, family: str, tmp_path: Path) -> None:
    with pytest.raises(_core.ModelError) as info:
        load(tiny(family), tmp_path, device=device)
    assert info.value.reason == "MODEL_UNSUPPORTED"
    assert f"cuda lacks the op {CPU_OPS[family]}, which the model needs; cpu has it" in info.value.message


@pytest.mark.few(2)
@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in CPU_OPS])
def test_every_architecture_equals_the_definition(device: str, family: str, tmp_path: Path) -> None:
    model = tiny(family)
    tokens = prompt(40, model.vocab_size)
    got = logits(load(model, tmp_path, device=device), tokens)
    bound = float16_products_bound(model)
    assert rms_distance(got, model.oracle().logits(tokens)) < bound
    # Negative controls: another model's logits, and these tokens one place on.
    assert rms_distance(got, dataclasses.replace(model, seed=1).oracle().logits(tokens)) > 10 * bound
    assert rms_distance(got, np.roll(model.oracle().logits(tokens), 1, axis=0)) > 10 * bound


@pytest.mark.sweep(quick=lambda dtype, **_: dtype in ("f32", "q8_0", "q4_k", "q5_1", "mxfp4"))
@pytest.mark.parametrize("dtype", TYPES)
def test_every_weight_type_is_within_its_bound(device: str, dtype: str, tmp_path: Path) -> None:
    model = of_type(dtype)
    tokens = prompt(12, model.vocab_size)
    loaded = load(model, tmp_path, device=device)
    [products] = {weight["kernels"][0] for weight in loaded.weights[1:] if weight["layout"] != "vector"}
    assert (products == "reference") == (dtype not in TILED)
    got = logits(loaded, tokens)
    bound = int8_activations_bound(model)  # the loosest of the formats of inputs
    assert rms_distance(got, model.oracle().logits(tokens)) < bound
    assert rms_distance(got, dataclasses.replace(model, seed=1).oracle().logits(tokens)) > 3 * bound


@pytest.mark.sweep(quick=lambda dtype, **_: dtype in ("q8_0", "q6_k", "f16"))
@pytest.mark.parametrize("dtype", TILED)
def test_a_long_prompt_takes_the_kernels_of_many_rows(device: str, dtype: str, tmp_path: Path) -> None:
    """Unless the mode is deterministic, in which one reduction serves any number of rows."""
    model = of_type(dtype, ffn_size=256, n_layers=1)
    tokens = prompt(70, model.vocab_size)
    expected, bound = model.oracle().logits(tokens), int8_activations_bound(model)
    for deterministic in (False, True):
        loaded = load(model, tmp_path, device=device, deterministic=deterministic)
        assert rms_distance(logits(loaded, tokens), expected) < bound
        ran = {name for name, count in loaded.launches.items() if count and name.startswith(f"{dtype}_")}
        assert ran.isdisjoint({f"{dtype}_hmma", f"{dtype}_wgmma"}) == deterministic


@pytest.mark.long
@pytest.mark.parametrize("family", ["llama", "qwen3moe", "gemma2"])
def test_det_13_no_bit_depends_on_batch_or_chunk(device: str, family: str, tmp_path: Path) -> None:
    """In deterministic mode, of quantized weights too."""
    model = of_type("q8_0", family, ffn_size=256, expert_ffn_size=64)
    cache = Cache(load(model, tmp_path, device=device, deterministic=True))
    first, second = prompt(23, model.vocab_size, seed=1), prompt(9, model.vocab_size, seed=2)
    whole = cache.prefill(first)
    np.testing.assert_array_equal(cache.prefill(first, chunk=1), whole)
    np.testing.assert_array_equal(cache.prefill(first, chunk=5), whole)
    together = cache.run((first, 0, cache.blocks(23)), (second, 0, cache.blocks(9)))
    np.testing.assert_array_equal(together[0], whole)
    np.testing.assert_array_equal(together[1], cache.prefill(second))
    assert (whole[0] != whole[1]).any()


@pytest.mark.long
def test_det_11_runs_of_one_batch_have_the_same_bits(device: str, tmp_path: Path) -> None:
    """The content of scratch before a run has no effect."""
    model = of_type("q8_0", "qwen2moe", expert_ffn_size=64, shared_ffn_size=64)
    cache = Cache(load(model, tmp_path, device=device))
    tokens = prompt(17, model.vocab_size)
    outputs = set()
    fills = range(0, 256, 13) if device == "cuda" else (0x00, 0x3C, 0xFF)
    for fill in fills:
        cache.forward.fill_scratch(fill)
        outputs.add(cache.run((tokens, 0, list(range(2))), (tokens[:3], 0, [5]))[0].tobytes())
    assert len(outputs) == 1
