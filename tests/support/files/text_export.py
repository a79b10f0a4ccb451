"""Writes the weights of an encoder, or of a decoder without its head, as a GGUF file."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.files.gguf_contents import GgufContents, Tensor
from support.files.hf_directory import saved_tensors
from support.files.hf_export import gguf_name
from support.files.hf_weights import Weights, stores_less_one

POOLING = ("none", "mean", "cls", "last", "rank")
_PREFIXES = ("bert.", "roberta.")
_SCORE = {"classifier.out_proj": "cls.output", "classifier.dense": "cls", "classifier": "cls.output"}
_OF_BERT = {"pooler.dense": "cls"}


def _bare(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _name(architecture: str, name: str, pooling: str) -> str:
    """Returns the name in GGUF; empty if the file does not have such a tensor."""
    stem, _, suffix = name.rpartition(".")
    if stem in _OF_BERT:
        return f"{_OF_BERT[stem]}.{suffix}" if pooling == "rank" else ""
    if stem in _SCORE:
        return f"{_SCORE[stem]}.{suffix}"
    return gguf_name(
        architecture,
        f"model.{name}"
        if name.startswith(("embed_tokens", "norm", "layers.")) and architecture in ("qwen3", "gemma-embedding")
        else name,
    )


def _keys(config: dict[str, Any], offset: int) -> dict[str, Any]:
    heads = config["num_attention_heads"]
    keys = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"] - offset,
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config.get("num_key_value_heads", heads),
        "attention.key_length": config.get("head_dim") or config["hidden_size"] // heads,
        "attention.value_length": config.get("head_dim") or config["hidden_size"] // heads,
    }
    if "rms_norm_eps" in config:
        return keys | {"attention.layer_norm_rms_epsilon": config["rms_norm_eps"]}
    [epsilon] = [config[key] for key in ("layer_norm_eps", "norm_eps") if key in config]
    return keys | {"attention.layer_norm_epsilon": epsilon}


def export_text(weights: Weights, architecture: str, pooling: str, keys: dict[str, Any]) -> GgufContents:
    """`keys` are those other than the sizes, without the architecture in front."""
    config = weights.config
    offset = config["pad_token_id"] + 1 if "roberta" in config["model_type"] else 0
    tensors: dict[str, Tensor] = {}
    for full_name, stored in saved_tensors(weights).items():
        name, values = _bare(full_name), np.asarray(stored, np.float32)
        if "norm" in name and stores_less_one(config["model_type"], name):
            values = values + np.float32(1)
        if name == "embeddings.position_embeddings.weight":
            values = values[offset:]
        if found := _name(architecture, name, pooling):
            tensors[found] = Tensor(values)
    sizes = _keys(config, offset) | keys | {"pooling_type": POOLING.index(pooling)}
    named = {f"{architecture}.{key}": value for key, value in sizes.items()}
    return GgufContents({"general.architecture": architecture, **named}, tensors)
