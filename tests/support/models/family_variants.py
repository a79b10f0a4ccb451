"""Facts that only some models of a family have, as tests/support/models/family_cases.py has the families."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.models.family_cases import (
    GEMMA4,
    GEMMA4_KEYS,
    LONGROPE,
    QWEN3_EXPERTS,
    ROPE,
    ROPE_KEYS,
    TOWER,
    YARN,
    FamilyCase,
    configured,
)
from support.models.linear_attention_cases import LINEAR_CASES

WINDOWS = {"use_sliding_window": True, "sliding_window": 20}


def without_biases(peer: Any) -> None:
    for layer in peer.model.layers:
        layer.self_attn.o_proj.bias = None


def without_dense_layer(peer: Any) -> None:
    import torch

    with torch.no_grad():
        for layer in peer.model.layers:
            if hasattr(layer.mlp, "up_proj"):
                layer.mlp.up_proj.weight.zero_()


VARIANTS: dict[str, tuple[FamilyCase, Callable[[Any], None]]] = {
    "qwen2_windows": (
        FamilyCase("Qwen2", {**ROPE, **WINDOWS, "max_window_layers": 1}, "", {}, {}),
        configured(sliding_window=500),
    ),
    "qwen3_windows": (
        FamilyCase("Qwen3", {**ROPE, **WINDOWS, "max_window_layers": 2}, "", {}, {}),
        configured(sliding_window=500),
    ),
    "gemma4_equal_heads": (  # transformers writes an empty per_layer_config
        FamilyCase("Gemma4", {**GEMMA4, "num_hidden_layers": 4, "global_head_dim": 16}, "", {}, {},
                   config_class="Gemma4TextConfig"),
        configured(sliding_window=500),
    ),
    "gemma4_fewer_kv_heads": (
        FamilyCase("Gemma4", {**GEMMA4, "num_hidden_layers": 4, "global_head_dim": 16, "attention_k_eq_v": True,
                              "num_global_key_value_heads": 1}, "", {}, {}, config_class="Gemma4TextConfig"),
        configured(sliding_window=500),
    ),
    "qwen3_biases": (FamilyCase("Qwen3", {**ROPE, "attention_bias": True}, "", {}, {}), without_biases),
    "qwen3_moe_dense_layer": (
        FamilyCase("Qwen3Moe", {**ROPE, **QWEN3_EXPERTS, "mlp_only_layers": [1]}, "", {}, {}),
        without_dense_layer,
    ),
    "qwen3_moe_every_other_layer": (
        FamilyCase("Qwen3Moe", {**ROPE, **QWEN3_EXPERTS, "decoder_sparse_step": 2}, "", {}, {}),
        without_dense_layer,
    ),
    "qwen2_moe_every_other_layer": (
        FamilyCase(
            "Qwen2Moe",
            {**ROPE, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
             "shared_expert_intermediate_size": 48, "decoder_sparse_step": 2},
            "", {}, {},
        ),
        without_dense_layer,
    ),
}  # fmt: skip

# YaRN parameters that config.json can have and GGUF cannot.
YARNS: dict[str, dict[str, Any]] = {
    "untruncated": {"truncate": False},
    "mscales": {"mscale": 1.0, "mscale_all_dim": 0.5},
    "equal_mscales": {"mscale": 0.707, "mscale_all_dim": 0.707},
    "one_mscale": {"mscale": 0.707},
    "attention_factor": {"attention_factor": 0.8, "mscale": 1.0, "mscale_all_dim": 0.5},
    "of_the_context": {"factor": None},
    "ends_together": {"truncate": False, "beta_fast": 4.0, "beta_slow": 4.0},
    "ends_crossed": {"truncate": False, "beta_fast": 1.0, "beta_slow": 8.0},
    "all": {"truncate": False, "mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 8.0, "beta_slow": 2.0},
}


def case_of_scaling(scaling: dict[str, Any]) -> FamilyCase:
    """The theta makes YaRN's ramp wide."""
    return FamilyCase("Qwen2", {"rope_theta": 1e3, "rope_scaling": scaling}, "", {}, {})


def case_of_yarn(traits: dict[str, Any]) -> FamilyCase:
    return case_of_scaling({**YARN, **traits})


# `max_context` decides which frequencies a model has. A prompt of that length has the frequencies of transformers.
# (rope, max_context, a max_context that selects other frequencies)
CONTEXTS: dict[str, tuple[dict[str, Any], int, int]] = {
    "longrope_within": (LONGROPE, 64, 65),
    "longrope_beyond": (LONGROPE, 200, 64),
    "dynamic_within": ({"rope_type": "dynamic", "factor": 4.0}, 512, 700),
    "dynamic_beyond": ({"rope_type": "dynamic", "factor": 4.0}, 700, 512),
    "dynamic_with_an_original": (
        {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 128},
        512,
        700,
    ),
}


def case_of_context(name: str) -> FamilyCase:
    rope = CONTEXTS[name][0]
    if not name.startswith("longrope"):
        return FamilyCase("Llama", {"rope_parameters": {**rope, **ROPE}}, "", {}, {})
    parameters = {**rope, **ROPE, "partial_rotary_factor": 0.5}
    traits = {"rope_parameters": parameters, "hidden_size": 64, "original_max_position_embeddings": 64}
    return FamilyCase("Phi3", traits, "", {}, {})


# The text part of models that also see.
PIXTRAL = TOWER | {"model_type": "pixtral"}
TIED = {"tie_word_embeddings": True}
QWEN3_5 = LINEAR_CASES["qwen3_5"].traits
QWEN3_5_KEYS = LINEAR_CASES["qwen3_5"].keys
WRAPPED: dict[str, FamilyCase] = {
    "idefics3": FamilyCase("Idefics3", {"model_type": "llama", **ROPE}, "llama", ROPE_KEYS, {}, vision=TOWER),
    "smolvlm": FamilyCase("SmolVLM", {"model_type": "llama", **ROPE}, "llama", ROPE_KEYS, {}, vision=TOWER),
    "mistral3_of_mistral": FamilyCase(
        "Mistral3", {"model_type": "mistral", **ROPE}, "llama", ROPE_KEYS, {}, vision=PIXTRAL
    ),
    "mistral3_of_ministral3": FamilyCase(
        "Mistral3",
        {"model_type": "ministral3",
         "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, **ROPE,
                             "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0}},
        "mistral3",
        {**ROPE_KEYS, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "attention.temperature_scale": 0.1,
         "rope.scaling.original_context_length": 16, "rope.scaling.yarn_log_multiplier": 1.0},
        {}, vision=PIXTRAL,
    ),
    "qwen3_5": FamilyCase("Qwen3_5", QWEN3_5, "qwen35", QWEN3_5_KEYS, {}, vision=TOWER),
    "qwen3_5_moe": FamilyCase(
        "Qwen3_5Moe", {**QWEN3_5, **QWEN3_EXPERTS, "shared_expert_intermediate_size": 48}, "qwen35moe",
        {**QWEN3_5_KEYS, "expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 24,
         "expert_shared_feed_forward_length": 48},
        {}, vision=TOWER,
    ),
    "gemma3": FamilyCase(
        "Gemma3",
        {"rope_theta": 1e6, "query_pre_attn_scalar": 16, "sliding_window": 20, "num_hidden_layers": 7, **TIED},
        "gemma3", {"rope.freq_base": 1e6, "attention.sliding_window": 20}, {}, vision=TOWER,
    ),
    "gemma4": FamilyCase(
        "Gemma4", {**GEMMA4, "num_hidden_layers": 4, "hidden_size_per_layer_input": 24,
                   "vocab_size_per_layer_input": 53},
        "gemma4", {**GEMMA4_KEYS, "embedding_length_per_layer_input": 24}, {},
        vision=TOWER | {"num_key_value_heads": 2, "position_embedding_size": 16},
    ),
    "gemma4_31b": FamilyCase(
        "Gemma4",
        {**GEMMA4, "num_hidden_layers": 4, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
         "use_bidirectional_attention": "vision"},
        "gemma4", {**GEMMA4_KEYS, "attention.head_count_kv": [2, 1, 2, 1]}, {},
        vision=TOWER | {"num_key_value_heads": 2, "position_embedding_size": 16},
    ),
    "gemma4_unified": FamilyCase(
        "Gemma4Unified",
        {"num_hidden_layers": 4} | {name: GEMMA4[name] for name in GEMMA4 if name != "hidden_size_per_layer_input"},
        "gemma4", GEMMA4_KEYS, {}, vision=TOWER | {"mm_embed_dim": 16, "mm_posemb_size": 16, "output_proj_dims": 40},
    ),
}  # fmt: skip
