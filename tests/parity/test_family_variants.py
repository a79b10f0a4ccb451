"""Facts that only some models of a family have give the logits of `transformers`, from the files that it saves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.family_cases import (
    CASES,
    GEMMA4,
    GEMMA4_KEYS,
    LONGROPE,
    QWEN3_EXPERTS,
    ROPE,
    ROPE_KEYS,
    SIZES,
    TOWER,
    FamilyCase,
    bound,
    configured,
    peer_logits,
    text_part,
)
from support.forward_runs import distance, load, logits, prompt
from support.linear_attention_cases import LINEAR_CASES

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

WINDOWS = {"use_sliding_window": True, "sliding_window": 20}


def without_biases(peer: Any) -> None:
    for layer in peer.model.layers:
        layer.self_attn.o_proj.bias = None


def without_dense_layer(peer: Any) -> None:
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


@pytest.mark.few(3)
@pytest.mark.parametrize("name", VARIANTS)
def test_mod_5_mod_30_hon_1_a_variant_equals_transformers(name: str, tmp_path: Path) -> None:
    case, turn_off = VARIANTS[name]
    peer = case.peer()
    peer.save_pretrained(tmp_path / "saved")
    tokens = prompt(100, SIZES["vocab_size"])
    model = load(tmp_path / "saved", tmp_path, kv_dtype="f32")
    got = logits(model, tokens)
    assert model.warnings == []
    assert distance(got, peer_logits(peer, tokens)) < bound(peer)
    turn_off(peer)  # HON-1
    assert distance(got, peer_logits(peer, tokens)) > 4 * bound(peer)


# `max_context` decides which frequencies a model has. A prompt of that length has the frequencies of transformers.
# (rope, max_context, a max_context that selects other frequencies)
CONTEXTS: dict[str, tuple[dict[str, Any], int, int]] = {
    "longrope_within": (LONGROPE, 64, 65),
    "longrope_beyond": (LONGROPE, 200, 64),
    "dynamic_within": ({"rope_type": "dynamic", "factor": 4.0}, 512, 700),
    "dynamic_beyond": ({"rope_type": "dynamic", "factor": 4.0}, 700, 512),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CONTEXTS)
def test_gen_22_hon_1_frequencies_by_the_context_asked_for(name: str, tmp_path: Path) -> None:
    rope, context, other = CONTEXTS[name]
    if name.startswith("longrope"):
        parameters = {**rope, **ROPE, "partial_rotary_factor": 0.5}
        traits = {"rope_parameters": parameters, "hidden_size": 64, "original_max_position_embeddings": 64}
        peer = FamilyCase("Phi3", traits, "", {}, {}).peer()
    else:
        peer = FamilyCase("Llama", {"rope_parameters": {**rope, **ROPE}}, "", {}, {}).peer()
    peer.save_pretrained(tmp_path / "saved")
    tokens = prompt(context, SIZES["vocab_size"])
    expected = peer_logits(peer, tokens)
    model = load(tmp_path / "saved", tmp_path, kv_dtype="f32", max_context=context)
    assert distance(logits(model, tokens), expected) < bound(peer)
    # HON-1: a context on the other side of the original context selects other frequencies.
    changed = load(tmp_path / "saved", tmp_path, kv_dtype="f32", max_context=other)
    assert distance(logits(changed, tokens), expected) > 4 * bound(peer)


PIXTRAL = TOWER | {"model_type": "pixtral"}
TIED = {"tie_word_embeddings": True}
QWEN3_5 = LINEAR_CASES["qwen3_5"].traits
QWEN3_5_KEYS = LINEAR_CASES["qwen3_5"].keys
WRAPPED: dict[str, FamilyCase] = {
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
    "gemma4_unified": FamilyCase(
        "Gemma4Unified",
        {"num_hidden_layers": 4} | {name: GEMMA4[name] for name in GEMMA4 if name != "hidden_size_per_layer_input"},
        "gemma4", GEMMA4_KEYS, {}, vision=TOWER | {"mm_embed_dim": 16, "mm_posemb_size": 16, "output_proj_dims": 40},
    ),
}  # fmt: skip


def test_mod_30_experts_of_qwen3_vl_as_they_are_published(tmp_path: Path) -> None:
    """transformers reads both orders of the experts' dimensions, and writes the one that is not published."""
    from safetensors.numpy import load_file, save_file

    peer = CASES["qwen3_vl_moe"].peer()
    peer.save_pretrained(tmp_path)
    path, tokens = tmp_path / "model.safetensors", prompt(60, SIZES["vocab_size"])
    now = logits(load(tmp_path, tmp_path, kv_dtype="f32"), tokens)
    tensors = load_file(path)
    for name in [name for name in tensors if ".experts." in name]:
        tensors[name] = np.ascontiguousarray(tensors[name].swapaxes(1, 2))
    save_file(tensors, path, {"format": "pt"})
    np.testing.assert_array_equal(logits(load(tmp_path, tmp_path, kv_dtype="f32"), tokens), now)


@pytest.mark.few(2)
def test_mod_5_the_flag_of_the_whole_model_ties_the_head(tmp_path: Path) -> None:
    peer = WRAPPED["gemma3"].peer()
    peer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["tie_word_embeddings"] = True
    config["text_config"]["tie_word_embeddings"] = False
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokens = prompt(60, SIZES["vocab_size"])
    got = logits(load(tmp_path, tmp_path, kv_dtype="f32"), tokens)
    assert distance(got, peer_logits(peer, tokens)) < bound(peer)


@pytest.mark.parametrize("name", WRAPPED)
def test_mod_5_mod_30_hon_1_the_text_part_of_a_model_that_sees(name: str, tmp_path: Path) -> None:
    peer = WRAPPED[name].peer()
    tokens = prompt(60, SIZES["vocab_size"])
    path = WRAPPED[name].written(peer, tmp_path / "m.gguf")
    peer.save_pretrained(tmp_path / "saved")
    models = [load(each, tmp_path, kv_dtype="f32") for each in (path, tmp_path / "saved")]
    [warning] = models[1].warnings
    assert "tensors are not part of the model and not read" in warning
    got, expected = [logits(model, tokens) for model in models], peer_logits(peer, tokens)
    limit = bound(peer)
    with torch.no_grad():
        layer = next(each for each in text_part(peer).layers[1:] if hasattr(each, "self_attn"))
        layer.self_attn.k_proj.weight[3, 5] += 0.05
    changed = peer_logits(peer, tokens)
    for each in got:
        assert distance(each, expected) < limit
        assert distance(each, changed) > 4 * limit  # HON-1
