"""GGUF models that llama.cpp quantized give the logits of llama.cpp."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from support.forward_bounds import float16_cache_bound, int8_activations_bound
from support.forward_runs import Cache, Logits, load, logits, prompt, rms_distance
from support.fused_tensors import fused
from support.tiny_families import FAMILIES as ARCHITECTURES
from support.tiny_models import TinyModel, tiny

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

TYPES = {"f32": {"f32"}, "f16": {"f16"}, "q8_0": {"q8_0"}, "q4_k_m": {"q4_k", "q6_k"}}
FAMILIES = ("mixtral", *ARCHITECTURES)
# Cases of a plain run; --all runs all of them.
QUICK = (
    *("llama", "qwen2", "qwen35", "gemma3", "mixtral", "qwen3moe", "phi3", "cohere2", "mistral3", "apertus"),
    *("gemma4", "gpt-oss"),
)


@pytest.fixture(scope="module", autouse=True)
def _started() -> None:
    from support import llama_cpp_peer

    llama_cpp_peer.start()


def source(family: str, seed: int = 0) -> TinyModel:
    """Returns a model with rows of 256 elements, which K-quants need."""
    linear = {"n_layers": 5, "rope_dims": 16, "delta_key_heads": 2, "delta_value_heads": 4, "delta_key_dim": 64,
              "delta_value_dim": 64}  # fmt: skip
    linear_experts = {**linear, "n_experts": 6, "expert_ffn_size": 256, "shared_ffn_size": 512}
    further: dict[str, Any] = {
        "qwen35": linear,
        "qwen35moe": linear_experts,
        "qwen3next": linear_experts,
        "mixtral": {"n_experts": 4},
        "qwen2moe": {"expert_ffn_size": 256, "shared_ffn_size": 512},
        "qwen3moe": {"n_experts": 6, "expert_ffn_size": 256},
        "qwen3vlmoe": {"n_experts": 6, "expert_ffn_size": 256},
        "granitemoe": {"shared_ffn_size": 512},
        # llama.cpp rounds the ends of YaRN's ramp; the published models were trained without rounding.
        "gpt-oss": {"expert_ffn_size": 256, "scaling": {}},
        # llama.cpp has no windows in these, or only in a model of 64 layers.
        "exaone4": {"window": 0},
        "starcoder2": {"window": 0},
        # A layer of each kind before those that share its keys.
        "gemma4": {"n_layers": 4, "n_experts": 6, "expert_ffn_size": 256, "layer_embedding": 64},
    }.get(family, {})
    sizes = {"hidden_size": 256, "ffn_size": 512, "n_heads": 4, "n_kv_heads": 2, "head_dim": 64, "n_layers": 2,
             "vocab_size": 96, "seed": seed}  # fmt: skip
    return tiny("llama" if family == "mixtral" else family, **(sizes | further))


def distance(model: TinyModel, got: Logits, expected: NDArray[np.float64]) -> float:
    """Returns the distance of the logits; for models with experts, the median of the rows' distances.

    If two experts have nearly equal scores, rounding errors decide which one a row uses.
    """
    if model.n_experts == 0:
        return rms_distance(got, expected)
    return float(np.median([rms_distance(*rows) for rows in zip(got, expected, strict=True)]))


def written(
    model: TinyModel, file_type: str, folder: Path, router_order: list[int] | None = None, *, fuses: bool = False
) -> Path:
    from support import llama_cpp_peer

    contents = fused(model.contents()) if fuses else model.contents()
    if router_order:
        for name in [name for name in contents.tensors if "ffn_gate_inp" in name]:
            contents.tensors[name].values = contents.tensors[name].values[router_order]
    contents.keys = {key: value for key, value in contents.keys.items() if not key.startswith("tokenizer.")}
    contents.keys |= {"tokenizer.ggml.model": "no_vocab", f"{model.architecture}.vocab_size": model.vocab_size}
    path = contents.write(folder / "f32.gguf")
    return path if file_type == "f32" else llama_cpp_peer.quantize(path, folder / "m.gguf", file_type)


def bound(model: TinyModel, file_type: str) -> float:
    """Bounds the distance. llama.cpp rounds to float16 in activations and F16 products, to int8 in quantized ones."""
    return float16_cache_bound(model) if file_type in ("f32", "f16") else int8_activations_bound(model)


@pytest.mark.sweep(quick=lambda family, file_type: family in QUICK and (family == "llama" or file_type == "f32"))
@pytest.mark.parametrize("file_type", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_llama_cpp(family: str, file_type: str, tmp_path: Path) -> None:
    from support import llama_cpp_peer

    model = source(family)
    path = written(model, file_type, tmp_path)
    tokens = prompt(60, model.vocab_size)
    loaded = load(path, tmp_path)
    types = {weight["dtype"] for weight in loaded.weights if weight["layout"] != "vector"}
    assert types >= TYPES[file_type]
    assert loaded.warnings == []
    assert distance(model, logits(loaded, tokens), llama_cpp_peer.logits(path, tokens)) < bound(model, file_type)


@pytest.mark.parametrize("file_type", ["f32", "q8_0"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen35moe"])
def test_mod_5_llama_cpp_reads_fused_tensors_in_the_same_order(family: str, file_type: str, tmp_path: Path) -> None:
    from support import llama_cpp_peer

    model = source(family)
    path = written(model, file_type, tmp_path, fuses=True)
    tokens = prompt(60, model.vocab_size)
    got = logits(load(path, tmp_path), tokens)
    assert distance(model, got, llama_cpp_peer.logits(path, tokens)) < bound(model, file_type)


@pytest.mark.parametrize("file_type", TYPES)
def test_hon_1_other_weights_are_seen(file_type: str, tmp_path: Path) -> None:
    from support import llama_cpp_peer

    model = source("qwen2")
    tokens = prompt(60, model.vocab_size)
    (tmp_path / "other").mkdir()
    other = llama_cpp_peer.logits(written(source("qwen2", seed=1), file_type, tmp_path / "other"), tokens)
    got = logits(load(written(model, file_type, tmp_path), tmp_path), tokens)
    assert rms_distance(got, other) > 3 * bound(model, file_type)


@pytest.mark.sweep
@pytest.mark.parametrize("file_type", TYPES)
@pytest.mark.parametrize("change", ["used", "order"])
def test_mod_17_hon_1_another_routing_is_seen(change: str, file_type: str, tmp_path: Path) -> None:
    from support import llama_cpp_peer

    model = source("qwen3moe")
    tokens = prompt(60, model.vocab_size)
    path = written(model, file_type, tmp_path)
    (tmp_path / "other").mkdir()
    if change == "used":
        other = written(dataclasses.replace(model, n_experts_used=2), file_type, tmp_path / "other")
    else:
        other = written(model, file_type, tmp_path / "other", router_order=[1, 0, *range(2, 6)])
    got = logits(load(other, tmp_path), tokens)
    assert distance(model, got, llama_cpp_peer.logits(path, tokens)) > 3 * bound(model, file_type)


@pytest.mark.sweep(quick=lambda family: family in QUICK)
@pytest.mark.parametrize("family", FAMILIES)
def test_gen_21_hon_1_a_position_off_by_one_is_seen(family: str, tmp_path: Path) -> None:
    from support import llama_cpp_peer

    model = source(family)
    path = written(model, "f16", tmp_path)
    tokens = prompt(40, model.vocab_size)
    cache = Cache(load(path, tmp_path))
    blocks = cache.blocks(48)
    cache.run((tokens[:-1], 0, blocks))
    [right], [moved] = cache.run((tokens[-1:], 39, blocks)), cache.run((tokens[-1:], 40, blocks))
    expected = llama_cpp_peer.logits(path, tokens)[-1:]
    assert rms_distance(right, expected) < bound(model, "f16")
    assert rms_distance(moved, expected) > 3 * bound(model, "f16")
