"""What distinguishes the families of models: the traits that a tiny model's file and its oracle need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from support.oracles.numpy_transformer import Array, gelu_tanh, relu_squared, silu


@dataclasses.dataclass(frozen=True)
class Family:
    sizes: dict[str, Any] = dataclasses.field(default_factory=dict)  # of a model with every trait, however small
    keys: dict[str, Any] = dataclasses.field(default_factory=dict)  # further ones, without the architecture
    adjacent: bool = False  # pairs of q and k that rotate together are neighbours
    norms: Literal["pre", "post", "both", "parallel"] = "pre"  # where attention and feed-forward are normalized
    layer_norm: bool = False  # LayerNorm instead of the RMS norm
    qk_norm: Literal["", "head", "rotated", "width"] = ""
    biased: tuple[str, ...] = ()  # the tensors of a layer that have a bias in any model of the family
    fused: tuple[str, ...] = ()  # "qkv" and "gate_up" where one tensor holds several matrices
    ffn_norm: str = "ffn_norm"
    activation: Callable[[Array], Array] = silu
    has_gate: bool = True  # of the feed-forward
    clamped: bool = False  # the gate of experts has limits
    sinks: bool = False  # of attention
    yarn_truncated: bool = True  # whole pairs begin and end its ramp
    scaled_embedding: bool = False  # by the root of its width
    has_head: bool = True  # files may have a head of their own
    attention_soft_cap: float = 0.0  # unless the file says otherwise
    logit_soft_cap: float = 0.0
    multiplies_logits: bool = False  # by logit_scale, which elsewhere divides them
    experts_normalized: bool = True
    shared_is_gated: bool = True
    window_period: int = 1  # the last of so many layers sees all keys; 1: all layers have the window
    windowed_theta: float = 0.0  # of a rope that windowed layers have to themselves; 0: the model's
    windowed_unscaled: bool = False  # their rope has no scaling
    rope_period: int = 0  # the last of so many layers has no rope; 0: all have one
    rope_in_windows_only: bool = False
    linear_period: int = 0  # the last of so many layers has softmax attention, the others linear attention; 0: all
    value_heads_interleaved: bool = False  # value head h has key head h % their number, not h // the values of each
    output_gate: bool = False  # of attention, head by head in the tensor of q


_GEMMA: dict[str, Any] = {"activation": gelu_tanh, "scaled_embedding": True, "has_head": False}
_QKV = ("attn_q", "attn_k", "attn_v")
_COHERE: dict[str, Any] = {
    "norms": "parallel", "layer_norm": True, "adjacent": True, "has_head": False, "multiplies_logits": True,
}  # fmt: skip
_QWEN3: dict[str, Any] = {"n_heads": 8, "n_kv_heads": 2, "head_dim": 24, "epsilon": 1e-6}
_QWEN3_EXPERTS = _QWEN3 | {"n_experts": 7, "n_experts_used": 3, "expert_ffn_size": 24}
_QWEN3_AXES = {"rope.dimension_sections": [4, 4, 4, 0], "n_deepstack_layers": 3}
_LINEAR_SIZES: dict[str, Any] = {
    "n_layers": 5, "n_heads": 4, "n_kv_heads": 2, "head_dim": 16, "rope_dims": 8, "epsilon": 1e-6, "delta_key_heads": 2,
    "delta_value_heads": 6, "delta_key_dim": 8, "delta_value_dim": 12,
}  # fmt: skip
_LINEAR: dict[str, Any] = {
    "qk_norm": "head", "ffn_norm": "post_attention_norm", "linear_period": 4, "output_gate": True,
}  # fmt: skip
_GRANITE = {"embedding_scale": 1.5, "residual_scale": 0.25, "attention_scale": 0.2, "logit_scale": 2.5}

# By the name in GGUF.
TRAITS: dict[str, Family] = {
    "llama": Family(adjacent=True),
    "qwen2": Family({"n_heads": 5, "n_kv_heads": 1, "tied": True, "theta": 1e6}, biased=_QKV),
    "qwen2moe": Family(
        {"n_heads": 5, "n_kv_heads": 1, "theta": 1e6, "n_experts": 6, "expert_ffn_size": 24, "shared_ffn_size": 48},
        biased=_QKV, experts_normalized=False,
    ),
    "qwen3": Family(_QWEN3, qk_norm="head"),
    "qwen3moe": Family(_QWEN3_EXPERTS, qk_norm="head"),
    "qwen3vl": Family(_QWEN3, _QWEN3_AXES, qk_norm="head"),
    "qwen3vlmoe": Family(_QWEN3_EXPERTS, _QWEN3_AXES, qk_norm="head"),
    "qwen35": Family(
        _LINEAR_SIZES, {"rope.dimension_sections": [2, 1, 1, 0]}, value_heads_interleaved=True, **_LINEAR
    ),
    "qwen35moe": Family(
        _LINEAR_SIZES | {"n_experts": 6, "expert_ffn_size": 24, "shared_ffn_size": 48},
        {"rope.dimension_sections": [2, 1, 1, 0]}, value_heads_interleaved=True, **_LINEAR,
    ),
    "qwen3next": Family(
        _LINEAR_SIZES | {"n_experts": 6, "expert_ffn_size": 24, "shared_ffn_size": 48, "conv_taps": 3},
        fused=("strengths_steps",), **_LINEAR,
    ),
    "gemma": Family({"n_heads": 4, "n_kv_heads": 1, "head_dim": 16}, **_GEMMA),
    "gemma2": Family(
        {"window": 5, "n_heads": 4, "n_kv_heads": 2, "head_dim": 16}, norms="both", attention_soft_cap=50.0,
        logit_soft_cap=30.0, window_period=2, **_GEMMA,
    ),
    "gemma3": Family(
        {"window": 7, "n_layers": 7, "n_heads": 4, "n_kv_heads": 1, "theta": 1e6, "head_dim": 16}, norms="both",
        qk_norm="head", window_period=6, windowed_theta=10000.0, windowed_unscaled=True, **_GEMMA,
    ),
    "gemma4": Family(
        {"window": 7, "n_layers": 6, "n_heads": 4, "n_kv_heads": 2, "theta": 1e6, "head_dim": 16, "logit_soft_cap": 3.0,
         "n_experts": 6, "expert_ffn_size": 24},
        norms="both", qk_norm="head", window_period=2, windowed_theta=10000.0, windowed_unscaled=True, **_GEMMA,
    ),
    "mistral3": Family(
        {"head_dim": 32, "query_growth": 0.1,
         "scaling": {"type": "yarn", "factor": 4.0, "original_context_length": 16, "yarn_log_multiplier": 0.5}},
        adjacent=True,
    ),
    "smollm3": Family({"n_layers": 5, "theta": 1e6}, adjacent=True, rope_period=4),
    "olmo2": Family(
        {"n_layers": 5, "window": 7, "theta": 5e5}, norms="post", qk_norm="width", window_period=4,
        windowed_unscaled=True,
    ),
    "granite": Family({"tied": True, **_GRANITE}, adjacent=True),
    "granitemoe": Family(
        {**_GRANITE, "n_experts": 5, "shared_ffn_size": 48}, adjacent=True,
        shared_is_gated=False,
    ),
    "phi3": Family(
        {"head_dim": 16, "rope_dims": 8, "window": 300, "short_factors": (1.0, 1.1, 1.3, 1.5),
         "long_factors": (1.0, 2.5, 7.0, 32.0),
         "scaling": {"original_context_length": 64, "attn_factor": 1.2}},
        fused=("qkv", "gate_up"),
    ),
    "exaone4": Family(
        {"n_layers": 5, "window": 9, "theta": 1e6}, norms="post", qk_norm="head", window_period=4,
        rope_in_windows_only=True,
    ),
    "seed_oss": Family({"head_dim": 16, "theta": 1e7}, biased=_QKV, ffn_norm="post_attention_norm"),
    "hunyuan-dense": Family({"tied": True, "head_dim": 16}, qk_norm="rotated"),
    "glm4": Family(
        {"head_dim": 16, "rope_dims": 8}, adjacent=True, norms="both", biased=_QKV, fused=("gate_up",)
    ),
    "ernie4_5": Family({"tied": True, "theta": 5e5}, adjacent=True),
    "starcoder2": Family(
        {"tied": True, "window": 9}, layer_norm=True, activation=gelu_tanh, has_gate=False,
        biased=(*_QKV, "attn_output", "ffn_up", "ffn_down", "attn_norm", "ffn_norm"),
    ),
    "command-r": Family({"tied": True, "logit_scale": 0.4}, **_COHERE),
    "cohere2": Family(
        {"tied": True, "logit_scale": 0.4, "n_layers": 5, "window": 9}, window_period=4, rope_in_windows_only=True,
        **_COHERE,
    ),
    "arcee": Family(adjacent=True, activation=relu_squared, has_gate=False),
    "apertus": Family({"theta": 1e6}, qk_norm="head", has_gate=False),
    "gpt-oss": Family(
        {"window": 9, "head_dim": 16, "theta": 1.5e5, "n_experts": 5, "expert_ffn_size": 24,
         "scaling": {"type": "yarn", "factor": 4.0, "original_context_length": 64}},
        biased=(*_QKV, "attn_output", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"),
        ffn_norm="post_attention_norm", window_period=2, clamped=True, sinks=True, yarn_truncated=False,
    ),
}  # fmt: skip

FAMILIES = tuple(TRAITS)

# What only the CPU computes, by family.
CPU_OPS = {
    "qwen35": "delta_rule", "qwen35moe": "delta_rule", "qwen3next": "delta_rule",
    "gemma4": "norm_heads", "granite": "scale", "granitemoe": "scale", "mistral3": "scale_by_position",
    "starcoder2": "layer_norm", "command-r": "scale", "cohere2": "scale", "arcee": "activate", "apertus": "activate",
    "gpt-oss": "attend_sinks",
}  # fmt: skip
