"""Published configurations: they are older than those that transformers writes now, and have additional keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.models.family_cases import CASES as OTHER_CASES
from support.models.family_cases import SIZES, bound, peer_logits
from support.models.family_variants import WRAPPED
from support.models.forward_runs import distance, load, logits, prompt
from support.models.linear_attention_cases import LINEAR_CASES

pytest.importorskip("transformers", reason="transformers is not installed")

CASES = OTHER_CASES | LINEAR_CASES

# Further keys of the published files of a family. They do not change the result. The sizes are those of the tiny model.
FURTHER: dict[str, dict[str, Any]] = {
    "smollm3": {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 28, "mlp_bias": False,
                "no_rope_layer_interval": 4, "pretraining_tp": 2},
    "olmo2": {"attention_bias": False, "attention_dropout": 0.0},
    "granite": {"attention_bias": False, "mlp_bias": False},
    "granite_4": {"init_method": "mup", "normalization_function": "rmsnorm", "layer_types": ["attention"] * 3,
                  "output_router_logits": False, "router_aux_loss_coef": 0.01, "rope_scaling": None,
                  "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_proj_bias": False},
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


@pytest.mark.few(2)
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


SMOLVLM = {
    "_flash_attn_2_enabled": True, "_name_or_path": "None", "architectures": ["VLlama3ForCausalLM"],
    "is_llama_config": True, "neftune_noise_alpha": 0.0, "pixel_shuffle_factor": 4, "qk_layer_norms": False,
    "rope_interleaved": False, "use_resampler": False, "torch_dtype": "bfloat16",
    "perceiver_config": {"attention_dropout": 0.0, "qk_layer_norms_perceiver": True, "resampler_depth": 6},
    "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}},
}  # fmt: skip


def test_mod_30_the_text_part_of_smolvlm_as_it_is_published(tmp_path: Path) -> None:
    WRAPPED["smolvlm"].peer().save_pretrained(tmp_path)
    tokens, path = prompt(60, SIZES["vocab_size"]), tmp_path / "config.json"
    now = logits(load(tmp_path, tmp_path, kv_dtype="f32"), tokens)
    config = json.loads(path.read_text())
    config["text_config"] = older(config["text_config"]) | SMOLVLM
    path.write_text(json.dumps(config))
    model = load(tmp_path, tmp_path, kv_dtype="f32")
    np.testing.assert_array_equal(logits(model, tokens), now)
    [warning] = model.warnings
    assert "tensors are not part of the model and not read" in warning


DELETED = object()
# A key that is missing has the default of transformers, and so have its consequences.
CHANGES: list[tuple[str, str, object]] = [
    ("mixtral", "rope_parameters.rope_theta", DELETED),
    ("olmo2", "rope_parameters.rope_theta", DELETED),
    ("qwen3_vl", "text_config.rope_parameters.rope_theta", DELETED),
    ("qwen3_vl_moe", "text_config.norm_topk_prob", False),
    ("qwen3", "use_sliding_window", True),
    ("exaone4", "sliding_window", DELETED),
    ("gemma2", "query_pre_attn_scalar", DELETED),
    ("gemma2", "hidden_activation", "silu"),
    ("gemma3", "hidden_activation", "silu"),
    ("gemma4_e2b", "hidden_activation", "silu"),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "key", "value"), CHANGES)
def test_mod_30_a_changed_key_has_the_effect_that_transformers_gives_it(
    name: str, key: str, value: object, tmp_path: Path
) -> None:
    peer = CASES[name].peer()
    folder = tmp_path / "saved"
    peer.save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    *sections, last = key.split(".")
    owner = config
    for section in sections:
        owner = owner[section]
    owner.pop(last, None)
    if value is not DELETED:
        owner[last] = value
    path.write_text(json.dumps(config))
    tokens = prompt(60, SIZES["vocab_size"])
    read = type(peer).from_pretrained(folder, attn_implementation="eager").eval()
    assert distance(logits(load(folder, tmp_path, kv_dtype="f32"), tokens), peer_logits(read, tokens)) < bound(peer)


@pytest.mark.parametrize(("written", "shown"), [({}, "4096 in layers 0-2"), ({"sliding_window": None}, "none")])
def test_mod_30_a_mistral_without_the_key_has_a_window(written: dict[str, Any], shown: str, tmp_path: Path) -> None:
    CASES["mistral"].peer().save_pretrained(tmp_path / "saved")
    path = tmp_path / "saved" / "config.json"
    config = json.loads(path.read_text())
    del config["sliding_window"]
    path.write_text(json.dumps(config | written))
    model = load(tmp_path / "saved", tmp_path)
    assert next(fact["value"] for fact in model.facts if fact["name"] == "windows") == shown


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
