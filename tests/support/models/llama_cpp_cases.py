"""Models that imp and llama.cpp both run: their GGUF files, and their errors against float64."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import Tensor
from support.models.forward_runs import Logits, load, logits, prompt, rms_distance
from support.models.fused_tensors import fused
from support.models.tiny_families import FAMILIES as ARCHITECTURES
from support.models.tiny_models import TinyModel, tiny
from support.oracles import llama_cpp_peer
from support.oracles.forward_bounds import float16_cache_bound, int8_activations_bound

TYPES = {"f32": {"f32"}, "f16": {"f16"}, "q8_0": {"q8_0"}, "q4_k_m": {"q4_k", "q6_k"}}
FAMILIES = ("mixtral", "gemma4_dense", *ARCHITECTURES)
N_TOKENS = 256
MOST_OF_PEER = 1.1
CAUGHT_ABOVE = 4


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
        "gemma4_dense": {"n_layers": 4, "n_experts": 0, "layer_embedding": 64},
    }.get(family, {})
    sizes = {"hidden_size": 256, "ffn_size": 512, "n_heads": 4, "n_kv_heads": 2, "head_dim": 64, "n_layers": 2,
             "vocab_size": 96, "seed": seed}  # fmt: skip
    return tiny({"mixtral": "llama", "gemma4_dense": "gemma4"}.get(family, family), **(sizes | further))


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


def log_softmax(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = rows - rows.max(axis=1, keepdims=True)
    found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


@dataclasses.dataclass(frozen=True)
class Distance:
    """The distance of logits from the exact ones."""

    error: float  # as `distance` defines it
    top_1: float  # the part of the positions with the same most probable token
    divergence: float  # the median of the positions' Kullback-Leibler divergences, in nats

    @staticmethod
    def of(model: TinyModel, got: Logits, exact: NDArray[np.float64]) -> Distance:
        ours, theirs = log_softmax(got.astype(np.float64)), log_softmax(exact)
        divergences = np.sum(np.exp(theirs) * (theirs - ours), axis=1)
        same = np.argmax(got, axis=1) == np.argmax(exact, axis=1)
        return Distance(distance(model, got, exact), float(same.mean()), float(np.median(divergences)))


@dataclasses.dataclass(frozen=True)
class Errors:
    """Distances from the logits of NumPy in float64, which computes with the weights that the file encodes."""

    imp: Distance
    llama_cpp: Distance
    control: float  # the error of imp, compared with a model of which one matrix has its rows in another order

    @property
    def is_near(self) -> bool:
        """Whether imp rounds hardly more than llama.cpp, which rounds activations in the same places."""
        return self.imp.error <= MOST_OF_PEER * self.llama_cpp.error

    @property
    def control_is_caught(self) -> bool:
        return self.control > CAUGHT_ABOVE * self.imp.error


def encoded(path: Path) -> dict[str, Tensor]:
    """Returns the values that a file encodes."""
    return {
        tensor.name: Tensor(gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
        for tensor in gguf.GGUFReader(path).tensors
    }


def with_rolled_output(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Moves the rows of one matrix of the second layer: the output of its attention."""
    name = next(name for name in ("blk.1.ssm_out.weight", "blk.1.attn_output.weight") if name in tensors)
    return tensors | {name: Tensor(np.roll(tensors[name].values, 1, axis=0))}


def compare_errors(family: str, file_type: str, folder: Path, n_tokens: int = N_TOKENS) -> Errors:
    model = source(family)
    path = written(model, file_type, folder)
    tokens = prompt(n_tokens, model.vocab_size)
    tensors = encoded(path)
    exact, changed = (model.oracle(tensors=each).logits(tokens) for each in (tensors, with_rolled_output(tensors)))
    got = logits(load(path, folder, kv_dtype="f32"), tokens)
    return Errors(
        Distance.of(model, got, exact), Distance.of(model, llama_cpp_peer.logits(path, tokens), exact),
        distance(model, got, changed),
    )  # fmt: skip
