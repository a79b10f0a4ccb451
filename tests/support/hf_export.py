"""Writes a randomly initialised `transformers` model as a GGUF file: the oracle of architectures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.gguf_contents import GgufContents, Tensor
from support.tiny_models import hashed

_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
# Gemma has four norms per layer; what others call post-attention is the norm before the feed-forward.
_IN_GEMMA_LAYER = _IN_LAYER | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def fill(model: Any, seed: int = 0) -> None:
    """Gives every parameter numbers of its own, norms and biases too."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = hashed(name, tuple(parameter.shape), seed)
            spread = 1.0 if "embed" in name else np.sqrt(3.0 / parameter.shape[-1])
            if parameter.ndim == 1:
                centre = 1.0 if "norm" in name and "gemma" not in model.config.model_type else 0.0
                values, spread = centre + 0.4 * values, 1.0
            parameter.copy_(torch.from_numpy(values * spread).to(parameter.dtype))


def adjacent_pairs(rows: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """Rows of q or k for pairs that stand side by side, from rows for pairs that stand half a head apart."""
    heads = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def expert_tensors(name: str, values: NDArray[Any]) -> dict[str, Tensor]:
    """Of a stack over all experts; gate and up lie one above the other."""
    _, _, layer, _, _, kind = name.split(".")
    if kind == "down_proj":
        return {f"blk.{layer}.ffn_down_exps.weight": Tensor(values)}
    gate, up = np.split(values, 2, axis=1)
    return {
        f"blk.{layer}.ffn_gate_exps.weight": Tensor(np.ascontiguousarray(gate)),
        f"blk.{layer}.ffn_up_exps.weight": Tensor(np.ascontiguousarray(up)),
    }


def gguf_name(name: str, gemma: bool) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in _TOP:
        return f"{_TOP[stem]}.{kind}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{(_IN_GEMMA_LAYER if gemma else _IN_LAYER)[rest]}.{kind}"


def export(
    model: Any, architecture: str, keys: dict[str, Any], rope_factors: NDArray[Any] | None = None
) -> GgufContents:
    """`keys` are those beside the sizes, without the architecture in front."""
    config = model.config
    gemma, head_dim = architecture.startswith("gemma"), config.head_dim
    tensors = {}
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy().astype(np.float32)
        if architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            values = adjacent_pairs(values, head_dim)
        if gemma and "norm" in name:
            values = values + 1
        if ".mlp.experts." in name:
            tensors |= expert_tensors(name, values)
            continue
        tensors[gguf_name(name, gemma)] = Tensor(values)
    if rope_factors is not None:
        tensors["rope_freqs.weight"] = Tensor(rope_factors.astype(np.float32))
    sizes = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
    }
    named = {f"{architecture}.{key}": value for key, value in (sizes | keys).items()}
    return GgufContents({"general.architecture": architecture, **named}, tensors)
