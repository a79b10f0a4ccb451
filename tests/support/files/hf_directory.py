"""Writes the weights of a `transformers` model as the library saves them, without the library."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from support.files.hf_contents import write_hf
from support.files.hf_weights import Array, Weights

# Files of these have the name of the whole model behind that of its text part.
_TEXT_FIRST = ("gemma3", "mistral3")
_MIXTRAL_PARTS = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_GRANITE_NAMES = {
    ".router.weight": ".router.layer.weight", ".experts.gate_up_proj": ".input_linear.weight",
    ".experts.down_proj": ".output_linear.weight",
}  # fmt: skip


# Files of Nomic BERT have the names of the code beside the first checkpoints.
_NOMIC_NAMES = {
    "layers.": "encoder.layers.", "embeddings.LayerNorm": "emb_ln", "self_attn.o_proj": "attn.out_proj",
    "up_proj": "fc11", "gate_proj": "fc12", "down_proj": "fc2", "post_attention_layernorm": "norm1",
    "post_mlp_layernorm": "norm2",
}  # fmt: skip


def of_nomic(tensors: dict[str, Array]) -> dict[str, Array]:
    """q, k and v are one above the other."""
    found = {name: values for name, values in tensors.items() if not name.endswith(("k_proj.weight", "v_proj.weight"))}
    for name in [name for name in found if name.endswith("q_proj.weight")]:
        parts = [tensors[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
        found[name.replace("self_attn.q_proj", "attn.Wqkv")] = np.concatenate(parts)
        del found[name]
    return found


def experts_apart(name: str, values: Array) -> dict[str, Array]:
    """Returns a tensor for each matrix of each expert, where one holds those of all."""
    at, kind = name.rsplit(".", 1)
    parts = {"down_proj": values}
    if kind == "gate_up_proj":
        parts = dict(zip(("gate_proj", "up_proj"), np.split(values, 2, axis=1), strict=True))
    return {f"{at}.{i}.{part}.weight": expert for part, experts in parts.items() for i, expert in enumerate(experts)}


def saved_tensors(weights: Weights) -> dict[str, Array]:
    """Returns the tensors with the names that files have."""
    kind, found = weights.config["model_type"], dict[str, Array]()
    tensors = of_nomic(weights.tensors) if kind == "nomic_bert" else weights.tensors
    for name, values in tensors.items():
        is_of_experts = name.endswith((".experts.gate_up_proj", ".experts.down_proj"))
        if is_of_experts and kind.startswith(("mixtral", "qwen2_moe", "qwen3_moe", "qwen3_5_moe", "qwen3_next")):
            found |= experts_apart(name, values)
        else:
            found[name] = values
    return {saved_name(kind, name): values for name, values in found.items()}


def saved_name(kind: str, name: str) -> str:
    if kind == "mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
        for part, letter in _MIXTRAL_PARTS.items():
            name = name.replace(f".{part}.", f".{letter}.")
    elif kind.startswith("granitemoe") and ".block_sparse_moe." in name:
        for part, other in _GRANITE_NAMES.items():
            name = name.replace(part, other)
    elif kind == "nomic_bert":
        for part, other in _NOMIC_NAMES.items():
            name = name.replace(part, other)
    elif kind in _TEXT_FIRST:
        name = f"language_model.{name.replace('model.language_model.', 'model.')}"
    return name


def write_saved(weights: Weights, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_hf(folder / "model.safetensors", weights.config, dict(saved_tensors(weights)))
    return folder
