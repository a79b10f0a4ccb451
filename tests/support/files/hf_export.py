"""Writes the weights of a `transformers` model as a GGUF file: the oracle of architectures."""

from __future__ import annotations

import functools
import re
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import GgufContents, Tensor
from support.files.hf_weights import Weights, stores_less_one

Array = NDArray[Any]
_NAMES = {
    "in_proj_qkv.weight": "attn_qkv.weight", "in_proj_z.weight": "attn_gate.weight",
    "in_proj_a.weight": "ssm_alpha.weight", "in_proj_b.weight": "ssm_beta.weight",
    "in_proj_ba.weight": "ssm_ba.weight", "conv1d.weight": "ssm_conv1d.weight", "A_log": "ssm_a",
    "dt_bias": "ssm_dt.bias", "norm.weight": "ssm_norm.weight", "out_proj.weight": "ssm_out.weight",
}  # fmt: skip


class Heads:
    """The sizes of linear attention, and the order of value heads that GGUF's Qwen 3.5 has."""

    def __init__(self, config: dict[str, Any], architecture: str) -> None:
        self.keys, self.values = config["linear_num_key_heads"], config["linear_num_value_heads"]
        self.key_dim, self.value_dim = config["linear_key_head_dim"], config["linear_value_head_dim"]
        self.interleaved = architecture.startswith("qwen35")

    def reordered(self, rows: Array, head_dim: int) -> Array:
        """Rows of value heads; those that share a key head are consecutive, and are to be its number apart."""
        if not self.interleaved:
            return rows
        heads = rows.reshape(self.keys, self.values // self.keys, head_dim, *rows.shape[1:])
        return heads.swapaxes(0, 1).reshape(rows.shape)

    def of_qkv(self, rows: Array) -> Array:
        qk, v = np.split(rows, [2 * self.keys * self.key_dim])
        return np.concatenate([qk, self.reordered(v, self.value_dim)])

    def split(self, qkvz: Array) -> tuple[Array, Array]:
        """q, k and v; and the gate: of rows that are grouped by key head."""
        of_key = self.values // self.keys * self.value_dim
        groups = qkvz.reshape(self.keys, -1, qkvz.shape[1])
        ends = np.cumsum([self.key_dim, self.key_dim, of_key])
        q, k, v, z = (part.reshape(-1, qkvz.shape[1]) for part in np.split(groups, ends, axis=1))
        return np.concatenate([q, k, v]), z


def linear_tensors(name: str, values: Array, config: dict[str, Any], architecture: str) -> dict[str, Tensor]:
    heads = Heads(config, architecture)
    at, part = name.removeprefix("model.layers.").split(".linear_attn.")
    if part == "in_proj_qkvz.weight":
        qkv, gate = heads.split(values)
        return {f"blk.{at}.attn_qkv.weight": Tensor(qkv), f"blk.{at}.attn_gate.weight": Tensor(gate)}
    if part == "in_proj_qkv.weight":
        values = heads.of_qkv(values)
    elif part == "conv1d.weight":
        values = heads.of_qkv(values[:, 0])
    elif part == "in_proj_z.weight":
        values = heads.reordered(values, heads.value_dim)
    elif part in ("in_proj_a.weight", "in_proj_b.weight", "dt_bias"):
        values = heads.reordered(values, 1)
    elif part == "A_log":
        values = heads.reordered(-np.exp(values.astype(np.float64)).astype(np.float32), 1)
    elif part == "out_proj.weight":
        values = np.ascontiguousarray(heads.reordered(np.ascontiguousarray(values.T), heads.value_dim).T)
    return {f"blk.{at}.{_NAMES[part]}": Tensor(values)}


# Architectures whose rows of q and k GGUF permutes, so that pairs that rotate together are neighbours.
_PERMUTED = ("llama", "smollm3", "granite", "granitemoe", "mistral3", "arcee")


def adjacent_pairs(rows: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """Returns rows of q or k for adjacent pairs, from rows for pairs half a head apart."""
    heads = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def expert_tensors(name: str, values: NDArray[Any], has_experts: bool) -> dict[str, Tensor]:
    """The tensor has all experts, or the shared one. The rows of up follow those of gate."""
    layer = name.split(".")[2]
    suffix = "_shexp" if ".shared_mlp." in name else "_exps"
    if not has_experts:
        suffix = ""  # the only feed-forward has the name of a shared expert
    if name.endswith(("down_proj", "output_linear.weight")):
        return {f"blk.{layer}.ffn_down{suffix}.weight": Tensor(values)}
    gate, up = np.split(values, 2, axis=-2)
    return {
        f"blk.{layer}.ffn_gate{suffix}.weight": Tensor(np.ascontiguousarray(gate)),
        f"blk.{layer}.ffn_up{suffix}.weight": Tensor(np.ascontiguousarray(up)),
    }


def gemma4_tensors(name: str, values: NDArray[Any]) -> dict[str, Tensor]:
    """The names that end without `weight` in one of the formats."""
    at = f"blk.{name.split('.')[2]}." if ".layers." in name else ""
    names = {
        "layer_scalar": "layer_output_scale.weight",
        "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale",
        "experts.gate_up_proj": "ffn_gate_up_exps.weight",
        "experts.down_proj": "ffn_down_exps.weight",
    }
    found = [known for suffix, known in names.items() if name.endswith(f".{suffix}")]
    return {at + (found[0] if found else gguf_name("gemma4", name).removeprefix(at)): Tensor(values)}


def xielu_keys(weights: Weights) -> dict[str, list[float]]:
    """The parameters of the activation in each layer."""
    layers = range(weights.text["num_hidden_layers"])
    return {
        f"xielu.{name}": [weights.tensors[f"model.layers.{layer}.mlp.act_fn.{name}"].item() for layer in layers]
        for name in ("alpha_p", "alpha_n", "beta", "eps")
    }


def rope_tensors(weights: Weights) -> dict[str, Tensor]:
    """GGUF holds the divisors of the frequencies, not the rules that they come from."""
    parameters = weights.text.get("rope_parameters") or {}
    if (full := parameters.get("full_attention", {})).get("rope_type") == "proportional":
        n_pairs = weights.heads(weights.text["layer_types"].index("full_attention"))["head_dim"] // 2
        n_turning = int(full["partial_rotary_factor"] * n_pairs)
        return {"rope_freqs.weight": Tensor(np.array([1.0] * n_turning + [1e30] * (n_pairs - n_turning), np.float32))}
    kind = parameters.get("rope_type")
    if kind == "longrope":
        return {
            f"rope_factors_{name}.weight": Tensor(np.array(parameters[f"{name}_factor"], np.float32))
            for name in ("short", "long")
        }
    if kind == "llama3":
        frequencies = np.array(weights.frequencies)
        plain = parameters["rope_theta"] ** (-np.arange(len(frequencies)) / len(frequencies))
        return {"rope_freqs.weight": Tensor((plain / frequencies).astype(np.float32))}
    return {}


def transposed_expert_tensors(name: str, values: NDArray[Any], in_turn: bool) -> dict[str, Tensor]:
    """The tensor has all experts, as [experts, in, out]. Gate and up may alternate (`in_turn`)."""
    layer, end = name.split(".")[2], "bias" if name.endswith("_bias") else "weight"
    if end == "weight":
        values = values.swapaxes(1, 2)
    if "down_proj" in name:
        return {f"blk.{layer}.ffn_down_exps.{end}": Tensor(np.ascontiguousarray(values))}
    parts = (values[:, ::2], values[:, 1::2]) if in_turn else np.split(values, 2, axis=1)
    return {
        f"blk.{layer}.ffn_{part}_exps.{end}": Tensor(np.ascontiguousarray(of_part))
        for part, of_part in zip(("gate", "up"), parts, strict=True)
    }


@functools.cache
def name_map(architecture: str) -> gguf.TensorNameMap:
    [kind] = [kind for kind, known in gguf.MODEL_ARCH_NAMES.items() if known == architecture]
    return gguf.get_tensor_name_map(kind, 32)


def gguf_name(architecture: str, name: str) -> str:
    """As the tables of the package `gguf` have it."""
    if architecture == "granitemoe":
        name = name.replace(".router.weight", ".router.layer.weight")  # as it is on disk
    if name.endswith(".sinks"):
        name += ".weight"
    found = name_map(architecture).get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, f"{architecture} has no {name} in GGUF"
    return found


def export(weights: Weights, architecture: str, keys: dict[str, Any]) -> GgufContents:
    """`keys` are those other than the sizes, without the architecture in front."""
    config, heads = weights.text, weights.heads(0)
    head_dim = heads.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    tensors = rope_tensors(weights)
    for full_name, stored in weights.tensors.items():
        # A model that also sees has its text part inside.
        name, values = re.sub(r"^model\.(language|text)_model\.", "model.", full_name), stored
        if architecture in _PERMUTED and (".q_proj." in name or ".k_proj." in name):
            values = adjacent_pairs(values, head_dim)
        if "norm" in name and stores_less_one(config["model_type"], name):
            values = values + 1
        if architecture == "gemma4":
            tensors |= gemma4_tensors(name, values)
        elif ".linear_attn." in name:
            tensors |= linear_tensors(name, values, config, architecture)
        elif ".experts." in name and architecture == "gpt-oss":
            tensors |= transposed_expert_tensors(name, values, in_turn=True)
        elif ".experts." in name or ".shared_mlp." in name:
            tensors |= expert_tensors(name, values, has_experts=keys.get("expert_count") != 0)
        elif ".act_fn." not in name:
            tensors[gguf_name(architecture, name)] = Tensor(values)
    sizes = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": heads["num_key_value_heads"],
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        **epsilon(config),
    }
    if "intermediate_size" in config:  # not where every layer has experts
        sizes["feed_forward_length"] = config["intermediate_size"]
    named = {f"{architecture}.{key}": value for key, value in (sizes | keys).items()}
    if config.get("hidden_act") == "xielu":
        named |= xielu_keys(weights)
    return GgufContents({"general.architecture": architecture, **named}, tensors)


def epsilon(config: dict[str, Any]) -> dict[str, float]:
    if "rms_norm_eps" in config:
        return {"attention.layer_norm_rms_epsilon": config["rms_norm_eps"]}
    [value] = [config[key] for key in ("norm_epsilon", "layer_norm_eps") if key in config]
    return {"attention.layer_norm_epsilon": value}
