"""Writes a tiny model as a safetensors checkpoint: the same weights with that format's names, order and keys.

Mistral 3 is the text part of a model with a vision tower. gpt-oss has experts of 4-bit floats.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.mxfp4_checkpoint import CONFIG as MXFP4
from support.files.mxfp4_checkpoint import from_gguf
from support.files.safetensors_writer import write_tensors
from support.models.tiny_models import TinyModel

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IN_LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj", "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}  # fmt: skip
_IN_MIXTRAL_LAYER = _IN_LAYER | {
    "ffn_gate_inp": "block_sparse_moe.gate", "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
    "ffn_up_exps": "block_sparse_moe.experts.{}.w3", "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
}  # fmt: skip
_IN_GEMMA_LAYER = _IN_LAYER | {
    "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}  # fmt: skip
_IN_GPT_OSS_LAYER = _IN_LAYER | {
    "post_attention_norm": "post_attention_layernorm", "attn_sinks": "self_attn.sinks", "ffn_gate_inp": "mlp.router",
}  # fmt: skip
_MODEL_TYPES = {"gemma3": "gemma3_text", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "mistral3": "ministral3",
                "gpt-oss": "gpt_oss", "qwen35": "qwen3_5_text", "qwen35moe": "qwen3_5_moe_text",
                "qwen3next": "qwen3_next"}  # fmt: skip
_CLASSES = {"llama": "Llama", "qwen2": "Qwen2", "qwen2moe": "Qwen2Moe", "qwen3": "Qwen3", "qwen3moe": "Qwen3Moe",
            "gemma2": "Gemma2", "gemma3": "Gemma3", "mistral3": "Ministral3", "gpt-oss": "GptOss", "qwen35": "Qwen3_5",
            "qwen35moe": "Qwen3_5Moe", "qwen3next": "Qwen3Next"}  # fmt: skip
_EXPERT_PARTS = ("gate", "up", "down")
_ADJACENT = ("llama", "mistral3")  # in GGUF


def is_mixtral(model: TinyModel) -> bool:
    return model.architecture == "llama" and model.n_experts > 0


def halves_apart(rows: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """Reorders rows of q or k from adjacent pairs to pairs half a head apart."""
    return rows.reshape(-1, head_dim // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def hf_layer_name(stem: str) -> str:
    """Returns the name of a tensor in a layer of the usual kind, for GGUF's."""
    return _IN_LAYER[stem]


def hf_name(model: TinyModel, name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in _TOP:
        return f"{_TOP[stem]}.{kind}"
    _, layer, rest = stem.split(".")
    names = _IN_GEMMA_LAYER if model.gemma else _IN_MIXTRAL_LAYER if is_mixtral(model) else _IN_LAYER
    if model.architecture == "gpt-oss":
        names = _IN_GPT_OSS_LAYER
    return f"model.layers.{layer}.{names[rest]}.{kind}".removesuffix(".weight" if rest == "attn_sinks" else "")


def wrapped_name(name: str) -> str:
    """Returns the name of a tensor of the text part in a checkpoint of a model with a vision tower."""
    return f"language_model.{name}"


def stacked_experts(model: TinyModel) -> dict[str, NDArray[Any]]:
    """Returns gpt-oss's experts in 4-bit floats. The rows of gate and up alternate."""

    def in_turn(gate: NDArray[Any], up: NDArray[Any]) -> NDArray[Any]:
        return np.stack([gate, up], axis=2).reshape(len(gate), -1, *gate.shape[2:])

    stored, tensors = model.tensors(), {}
    for layer in range(model.n_layers):
        parts = {part: from_gguf(stored[f"blk.{layer}.ffn_{part}_exps.weight"].encoded()) for part in _EXPERT_PARTS}
        biases = {part: stored[f"blk.{layer}.ffn_{part}_exps.bias"].values for part in _EXPERT_PARTS}
        at = f"model.layers.{layer}.mlp.experts."
        for i, kind in enumerate(("blocks", "scales")):
            tensors[f"{at}gate_up_proj_{kind}"] = in_turn(parts["gate"][i], parts["up"][i])
            tensors[f"{at}down_proj_{kind}"] = parts["down"][i]
        tensors[f"{at}gate_up_proj_bias"] = in_turn(biases["gate"], biases["up"])
        tensors[f"{at}down_proj_bias"] = biases["down"]
    return tensors


def hf_tensors(model: TinyModel) -> dict[str, NDArray[Any]]:
    tensors: dict[str, NDArray[Any]] = {}
    for name, tensor in model.tensors().items():
        values = tensor.values
        if model.architecture in _ADJACENT and ("attn_q." in name or "attn_k." in name):
            values = halves_apart(values, model.head_dim)
        if model.gemma and "norm" in name:
            values = values - np.float32(1)  # exact between 0.5 and 2
        if "_exps" in name and model.architecture == "gpt-oss":
            continue
        if "_exps" in name:
            tensors |= {hf_name(model, name).format(i): expert for i, expert in enumerate(values)}
        else:
            tensors[hf_name(model, name)] = values
    if model.architecture == "gpt-oss":
        tensors |= stacked_experts(model)
    if model.architecture == "mistral3":
        tensors = {wrapped_name(name): values for name, values in tensors.items()}
    return tensors


def hf_config(model: TinyModel) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": [f"{_CLASSES[model.architecture]}ForCausalLM"],
        "model_type": _MODEL_TYPES.get(model.architecture, model.architecture),
        "num_hidden_layers": model.n_layers,
        "max_position_embeddings": model.context,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.ffn_size,
        "num_attention_heads": model.n_heads,
        "num_key_value_heads": model.n_kv_heads,
        "head_dim": model.head_dim,
        "rms_norm_eps": model.epsilon,
        "vocab_size": model.vocab_size,
        "rope_theta": model.theta,
        "rope_scaling": None,
        "eos_token_id": 2,
        "tie_word_embeddings": model.tied or model.gemma,
        "torch_dtype": "float32",
        "hidden_act": "gelu_pytorch_tanh" if model.gemma else "silu",
    }
    if model.scaling:
        factor = {"factor": model.scaling["factor"]}
        if "original_context_length" in model.scaling:
            factor["original_max_position_embeddings"] = model.scaling["original_context_length"]
        config["rope_scaling"] = {"rope_type": model.scaling["type"], **factor}
    if model.gemma:
        config |= {
            "sliding_window": model.window,
            "query_pre_attn_scalar": model.head_dim,
            "attn_logit_softcapping": model.attention_soft_cap or (50.0 if model.architecture == "gemma2" else None),
            "final_logit_softcapping": model.logit_soft_cap or (30.0 if model.architecture == "gemma2" else None),
            "layer_types": layer_types(model),
        }
    if model.n_experts and model.architecture != "gpt-oss":
        config |= {"num_experts": model.n_experts, "num_experts_per_tok": model.n_experts_used,
                   "moe_intermediate_size": model.expert_ffn_size, "decoder_sparse_step": 1, "mlp_only_layers": [],
                   "norm_topk_prob": model.normalizes_experts}  # fmt: skip
    if model.shared_ffn_size:
        config |= {"shared_expert_intermediate_size": model.shared_ffn_size, "qkv_bias": True}
    if is_mixtral(model):
        for key in ("moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers", "norm_topk_prob"):
            del config[key]
        config |= {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
        config["num_local_experts"] = config.pop("num_experts")
    if model.architecture == "gemma3":
        config["rope_local_base_freq"] = 10000.0
    if model.architecture == "gpt-oss":
        config |= gpt_oss_config(model)
    return mistral3_config(model, config) if model.architecture == "mistral3" else config


def gpt_oss_config(model: TinyModel) -> dict[str, Any]:
    return {
        "num_local_experts": model.n_experts,
        "num_experts_per_tok": model.n_experts_used,
        "intermediate_size": model.expert_ffn_size,
        "sliding_window": model.window,
        "layer_types": layer_types(model),
        "attention_bias": True,
        "rope_scaling": yarn_of(model) | {"truncate": False},
        "quantization_config": MXFP4,
    }


def mistral3_config(model: TinyModel, text: dict[str, Any]) -> dict[str, Any]:
    rope = yarn_of(model) | {
        "rope_theta": model.theta,
        "mscale": 1.0,
        "mscale_all_dim": model.scaling["yarn_log_multiplier"],
        "llama_4_scaling_beta": model.query_growth,
    }
    return {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "model_type": "mistral3",
        "text_config": {**text, "rope_scaling": None, "rope_parameters": rope},
    }


def yarn_of(model: TinyModel) -> dict[str, Any]:
    return {
        "rope_type": "yarn",
        "factor": model.scaling["factor"],
        "original_max_position_embeddings": model.scaling["original_context_length"],
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    }


def layer_types(model: TinyModel) -> list[str]:
    return ["sliding_attention" if model.is_windowed(layer) else "full_attention" for layer in range(model.n_layers)]


def write_hf(path: Path, config: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Path:
    """Writes the checkpoint to `path` and its configuration next to it; returns `path`."""
    write_tensors(path, tensors)
    path.with_name("config.json").write_text(json.dumps(config))
    return path
