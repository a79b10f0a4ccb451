"""Models of 0.3 to 1.2 billion random weights, one for each family whose decoder differs in more than a few constants.

`make_model.py` writes them. The shapes follow a small published model where there is one. `transformers` makes the
weights, so the file has each tensor that a real one has.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.models.family_cases import FamilyCase

VOCABULARY = 32000
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 24,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 8192,
    "attn_implementation": "eager",
}  # fmt: skip
WINDOW = {"sliding_window": 512}
WINDOW_KEY = {"attention.sliding_window": 512}
# Qwen3.5-0.8B.
LINEAR = {
    "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}  # fmt: skip
LINEAR_KEYS = {
    "rope.freq_base": 1e7, "rope.dimension_count": 64, "ssm.conv_kernel": 4, "ssm.state_size": 128,
    "ssm.group_count": 16, "ssm.time_step_rank": 16, "ssm.inner_size": 2048,
}  # fmt: skip
EXPERTS = {"num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 512}
EXPERT_KEYS = {"expert_count": 32, "expert_used_count": 4, "expert_feed_forward_length": 512}
_S, _F = "sliding_attention", "full_attention"
_GEMMA4_LAYERS = ([_S] * 5 + [_F]) * 4
_GEMMA4_SHARED = 6  # llama.cpp wants a layer without a window right before these


# Name -> the case of the tests, and what its model and its file have at these sizes.
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "qwen3.5": (
        "qwen3_5", {**LINEAR, "intermediate_size": 3584, "tie_word_embeddings": True},
        {**LINEAR_KEYS, "rope.dimension_sections": [11, 11, 10, 0]},
    ),
    "qwen3-next": (
        "qwen3_next",
        {**LINEAR, **EXPERTS, "num_hidden_layers": 16, "shared_expert_intermediate_size": 512},
        {**LINEAR_KEYS, **EXPERT_KEYS, "expert_shared_feed_forward_length": 512},
    ),
    "gemma4": (
        "gemma4_e2b",
        {"layer_types": _GEMMA4_LAYERS, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
         "global_head_dim": 512, "num_kv_shared_layers": _GEMMA4_SHARED, "hidden_size_per_layer_input": 256,
         "vocab_size_per_layer_input": VOCABULARY, **WINDOW},
        {**WINDOW_KEY, "attention.sliding_window_pattern": [kind == _S for kind in _GEMMA4_LAYERS],
         "attention.key_length": 512, "attention.value_length": 512, "attention.key_length_swa": 256,
         "attention.value_length_swa": 256, "rope.dimension_count": 512, "rope.dimension_count_swa": 256,
         "attention.shared_kv_layers": _GEMMA4_SHARED, "embedding_length_per_layer_input": 256,
         "feed_forward_length": [3072] * (24 - _GEMMA4_SHARED) + [6144] * _GEMMA4_SHARED},
    ),
    "gpt-oss": (
        "gpt_oss",
        {"num_hidden_layers": 12, "num_local_experts": 16, "num_experts_per_tok": 4, "intermediate_size": 1024,
         "sliding_window": 128},
        {"attention.sliding_window": 128, "expert_count": 16, "expert_used_count": 4,
         "expert_feed_forward_length": 1024},
    ),
    "phi3": ("phi3", WINDOW, WINDOW_KEY),
    "cohere2": ("cohere2", WINDOW, WINDOW_KEY),
    "glm4": ("glm4", {}, {"rope.dimension_count": 32}),
    "granite": ("granite", {}, {}),
    "olmo2": ("olmo2", {}, {}),
    "starcoder2": (
        "starcoder2", {**WINDOW, "num_hidden_layers": 30, "intermediate_size": 4096}, WINDOW_KEY
    ),
}  # fmt: skip


def family(name: str) -> FamilyCase:
    """Returns a family's case at the sizes of this page. Needs gguf."""
    from support.models.family_cases import CASES
    from support.models.linear_attention_cases import LINEAR_CASES

    case_name, traits, keys = FAMILIES[name]
    case = {**CASES, **LINEAR_CASES}[case_name]
    return dataclasses.replace(case, traits=case.traits | SIZES | traits, keys=case.keys | keys, off={})
