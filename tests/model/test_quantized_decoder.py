"""Models of every weight type: exact through kernels that decode, and within the bound of int8 activations."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from imp_service import _core
from imp_service import _testing as core
from support.models.forward_runs import Cache, distance, load, logits, prompt, rms_distance
from support.models.tiny_models import TinyModel, tiny
from support.oracles.forward_bounds import (
    bfloat16_activations_bound,
    float16_cache_bound,
    float32_bound,
    int8_activations_bound,
)

# All that GGUF has.
TYPES = [row["name"] for row in core.dtypes() if row["name"] != "f8_e4m3"]
# A quick run takes types of each kind: floats, blocks, superblocks, lookup tables.
QUICK = ("f32", "bf16", "q4_1", "q8_0", "q4_k", "q6_k", "iq2_xs", "mxfp4")


def source(dtype: str, architecture: str = "qwen3") -> TinyModel:
    return tiny(
        architecture, hidden_size=256, ffn_size=512, n_heads=4, n_kv_heads=2, head_dim=64, n_layers=2, dtype=dtype
    )


@pytest.mark.sweep(quick=lambda dtype: dtype in QUICK)
@pytest.mark.parametrize("dtype", TYPES)
def test_reference_kernel_is_exact_for_every_type(dtype: str, tmp_path: Path) -> None:
    model = source(dtype)
    tokens = prompt(20, model.vocab_size)
    loaded = load(model, tmp_path, kv_dtype="f32", gemm=[("*", "reference")])
    matrices = [weight for weight in loaded.weights if weight["layout"] != "vector"]
    assert {weight["dtype"] for weight in matrices} == {dtype}
    assert {tuple(weight["kernels"]) for weight in matrices} == {("reference",)}
    assert distance(logits(loaded, tokens), model.oracle().logits(tokens)) < float32_bound(model)


@pytest.mark.sweep(quick=lambda dtype: dtype in QUICK)
@pytest.mark.parametrize("dtype", TYPES)
def test_chosen_kernels_are_within_their_bound(dtype: str, tmp_path: Path) -> None:
    model = source(dtype)
    tokens = prompt(20, model.vocab_size)
    expected = model.oracle().logits(tokens)
    bound = {"f32": float16_cache_bound, "f16": float16_cache_bound, "bf16": bfloat16_activations_bound}.get(
        dtype, int8_activations_bound
    )(model)
    assert rms_distance(logits(load(model, tmp_path), tokens), expected) < bound


def test_hon_1_a_model_of_other_weights_is_seen(tmp_path: Path) -> None:
    model = source("q8_0")
    tokens = prompt(20, model.vocab_size)
    other = dataclasses.replace(model, seed=1).oracle().logits(tokens)
    assert rms_distance(logits(load(model, tmp_path), tokens), other) > 3 * int8_activations_bound(model)


@pytest.mark.parametrize("head", ["q4_0", "q8_0", "f16"])
def test_an_embedding_may_have_its_own_type(head: str, tmp_path: Path) -> None:
    """Tied, the embedding is looked up and multiplied with; untied, it is only looked up."""
    for tied in (True, False):
        model = dataclasses.replace(source("f32", "llama"), tied=tied, embedding_dtype=head)
        tokens = prompt(20, model.vocab_size)
        loaded = load(model, tmp_path, kv_dtype="f32", gemm=[("*", "reference")])
        assert loaded.weights[0]["dtype"] == head
        assert distance(logits(loaded, tokens), model.oracle().logits(tokens)) < float32_bound(model)


@pytest.mark.parametrize("dtype", ["q8_0", "q4_k", "f16"])
def test_hon_2_the_kernels_of_the_plan_are_those_that_ran(dtype: str, tmp_path: Path) -> None:
    model = source(dtype)
    loaded = load(model, tmp_path)
    planned = {name for weight in loaded.weights[1:] for name in weight["kernels"]}  # the first is the embedding
    before = loaded.launches
    assert set(before.values()) == {0}
    cache = Cache(loaded)
    blocks = cache.blocks(40)
    cache.run((prompt(30, model.vocab_size), 0, blocks))
    prefilled = loaded.launches
    cache.run((prompt(1, model.vocab_size), 30, blocks))
    decoded = loaded.launches
    kernels = {row["name"] for row in _core.kernels()}
    assert {name for name in kernels if decoded[name] > 0} <= planned
    assert (prefilled["attend_prefill"], prefilled["attend_decode"]) == (model.n_layers, 0)
    assert (decoded["attend_prefill"], decoded["attend_decode"]) == (model.n_layers, model.n_layers)
    products = 7 * model.n_layers + 1
    assert sum(prefilled[name] for name in kernels) == products
    assert sum(decoded[name] for name in kernels) == 2 * products


def test_an_embedding_of_longer_rows_than_any_product(tmp_path: Path) -> None:
    model = dataclasses.replace(source("q8_0", "llama"), embedding_dtype="f32", ffn_size=256)
    tokens = prompt(9, model.vocab_size)
    got = logits(load(model, tmp_path, kv_dtype="f32", gemm=[("*", "reference")]), tokens)
    assert distance(got, model.oracle().logits(tokens)) < float32_bound(model)


def test_gemm_12_loaded_bytes_are_the_plans(tmp_path: Path) -> None:
    model = source("q8_0")
    loaded = load(model, tmp_path)
    assert loaded.memory["items"]["weights"] == sum(weight["n_bytes"] for weight in loaded.weights)
    file = _core.open_model_file(tmp_path / "m.gguf")
    sizes = {tensor.name: tensor.n_bytes for tensor in file.tensors}
    for weight in loaded.weights:
        if weight["layout"] == "file":
            assert weight["n_bytes"] == sizes[weight["tensor"]]
