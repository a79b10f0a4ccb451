"""Published configurations: they are older than those that transformers writes now, and have additional keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.family_cases import CASES as OTHER_CASES
from support.family_cases import SIZES
from support.forward_runs import load, logits, prompt
from support.linear_attention_cases import LINEAR_CASES

pytest.importorskip("transformers", reason="transformers is not installed")

CASES = OTHER_CASES | LINEAR_CASES

# Further keys of the published files of a family. They do not change the result. The sizes are those of the tiny model.
FURTHER: dict[str, dict[str, Any]] = {
    "smollm3": {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 28, "mlp_bias": False,
                "no_rope_layer_interval": 4, "pretraining_tp": 2},
    "olmo2": {"attention_bias": False, "attention_dropout": 0.0},
    "granite": {"attention_bias": False, "mlp_bias": False},
    "granitemoe": {"output_router_logits": False, "router_aux_loss_coef": 0.001},
    "granitemoeshared": {"output_router_logits": False, "router_aux_loss_coef": 0.001},
    "phi4_mini": {"attention_bias": False, "auto_map": {"AutoConfig": "x"}, "embd_pdrop": 0.0, "full_attn_mod": 1,
                  "interpolate_factor": 1, "lm_head_bias": False, "mlp_bias": False, "resid_pdrop": 0.0,
                  "sliding_window": 262144},
    "exaone4": {"sliding_window_pattern": "LLLG", "layer_types": None},
    "seed_oss": {"attention_dropout": 0.1, "residual_dropout": 0.1, "pretraining_tp": 1, "mlp_bias": False},
    "hunyuan": {"add_classification_head": False, "attention_head_dim": 16, "cla_share_factor": 2, "class_num": 0,
                "dense_list": [2048, 0], "eod_token_id": 3, "im_end_id": 5, "mask_init_id": 12, "mlp_bias": False,
                "norm_type": "rms", "org_vocab_size": 53, "pool_type": "last", "position_embedding_xdrope": False,
                "use_cla": False, "use_qk_norm": True, "use_rotary_pos_emb": True},
    "glm4": {"attention_dropout": 0.0, "attention_bias": True},
    "ernie4_5": {"use_bias": True, "compression_ratio": 1.0},
    "gemma": {"hidden_act": "gelu", "hidden_activation": None},
    "starcoder2": {"attention_dropout": 0.1, "embedding_dropout": 0.1, "mlp_type": "default", "norm_type": "layer_norm",
                   "residual_dropout": 0.1},
    "cohere": {"use_qk_norm": False, "pretraining_tp": 1, "model_max_length": 512},
    "cohere2": {"layer_switch": 4, "order_of_interleaved_layers": "local_attn_first", "rotary_pct": 1.0,
                "position_embedding_type": "rope_gptj", "use_embedding_sharing": True, "use_gated_activation": True,
                "use_parallel_block": True, "use_parallel_embedding": True, "cache_implementation": "hybrid",
                "sliding_window_pattern": 4, "layer_types": None},
    "apertus": {"mlp_bias": False, "post_norm": False, "qk_norm": True, "hidden_dropout": 0.0},
    "ministral3": {"layer_types": ["full_attention"] * 3},
    "arcee": {"mlp_bias": False},
    "gemma4_e2b": {"global_head_dim": 32, "num_global_key_value_heads": None},
    "gemma4_26b_a4b": {"global_head_dim": 32, "num_global_key_value_heads": 1, "use_bidirectional_attention": "vision"},
    "gemma3": {"sliding_window_pattern": 6, "layer_types": None},
    "gpt_oss": {"attention_bias": True, "experts_per_token": 2, "initial_context_length": 128, "swiglu_limit": 7.0,
                "output_router_logits": False, "router_aux_loss_coef": 0.9},
    "qwen3_5": {"attn_output_gate": True, "full_attention_interval": 4, "mamba_ssm_dtype": "float32",
                "mlp_only_layers": [], "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False},
    "qwen3_5_moe": {"attn_output_gate": True, "mtp_num_hidden_layers": 1, "router_aux_loss_coef": 0.001},
    "qwen3_next": {"full_attention_interval": 4, "layer_types": None, "decoder_sparse_step": 1, "mlp_only_layers": [],
                   "output_router_logits": False, "router_aux_loss_coef": 0.001, "use_sliding_window": False},
}  # fmt: skip


def older(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration with the rope in two keys, which was the format until 2025."""
    config = dict(config)
    if config.pop("per_layer_config", None):
        return config  # a family that never had the old format
    parameters = config.pop("rope_parameters")
    if "full_attention" in parameters:
        if "gemma" in config["model_type"]:
            config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        parameters = parameters["full_attention"]
    scaling = {key: value for key, value in parameters.items() if key not in ("rope_theta", "partial_rotary_factor")}
    config["rope_theta"] = parameters["rope_theta"]
    if "partial_rotary_factor" in parameters:
        config["partial_rotary_factor"] = parameters["partial_rotary_factor"]
    if scaling.get("rope_type", "default") != "default":
        scaling["type"] = scaling.pop("rope_type")
        config["rope_scaling"] = scaling
    return config


@pytest.mark.parametrize("name", [name for name in CASES if name in FURTHER or "llama" in name])
def test_mod_30_a_configuration_as_it_is_published(name: str, tmp_path: Path) -> None:
    CASES[name].peer().save_pretrained(tmp_path / "saved")
    tokens = prompt(60, SIZES["vocab_size"])
    now = logits(load(tmp_path / "saved", tmp_path, kv_dtype="f32"), tokens)
    path = tmp_path / "saved" / "config.json"
    path.write_text(json.dumps(older(json.loads(path.read_text())) | FURTHER.get(name, {})))
    model = load(tmp_path / "saved", tmp_path, kv_dtype="f32")
    np.testing.assert_array_equal(logits(model, tokens), now)
    assert all(warning.endswith(": not understood and not used") for warning in model.warnings)


def test_mod_30_whole_numbers_among_the_divisors_of_a_longrope(tmp_path: Path) -> None:
    """JSON writes 1 for 1.0."""
    CASES["phi4_mini"].peer().save_pretrained(tmp_path / "saved")
    tokens = prompt(60, SIZES["vocab_size"])
    now = logits(load(tmp_path / "saved", tmp_path, kv_dtype="f32"), tokens)
    path = tmp_path / "saved" / "config.json"
    text = path.read_text()
    assert "1.0,\n      2.5,\n      7.0,\n      32.0" in text
    for divisors in ("1,\n      2.5,\n      7.0,\n      32.0", "1.0,\n      2.5,\n      7,\n      32"):
        path.write_text(text.replace("1.0,\n      2.5,\n      7.0,\n      32.0", divisors))
        np.testing.assert_array_equal(logits(load(tmp_path / "saved", tmp_path, kv_dtype="f32"), tokens), now)
