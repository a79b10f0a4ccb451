"""Every architecture gives the logits of `transformers` for the same weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.forward_bounds import float32_bound
from support.forward_runs import Cache, distance, load, logits, prompt
from support.gguf_contents import GgufContents
from support.hf_export import export, fill
from support.tiny_models import TinyModel

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SIZES = {
    "vocab_size": 53, "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "attn_implementation": "eager",
    "tie_word_embeddings": False,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 128}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
# What config.json says of YaRN and GGUF does not.
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


# One family: model class, configuration class, what the configuration adds to SIZES, architecture and keys in GGUF.
Case = tuple[str, str, dict[str, Any], str, dict[str, Any]]
CASES: dict[str, Case] = {
    "llama": (
        "LlamaForCausalLM", "LlamaConfig", {"rope_theta": 10000.0, "attention_bias": True, "mlp_bias": True},
        "llama", {"rope.freq_base": 10000.0},
    ),
    "llama_3_1": (
        "LlamaForCausalLM", "LlamaConfig", {"rope_theta": 10000.0, "rope_scaling": LLAMA3, "tie_word_embeddings": True},
        "llama", {"rope.freq_base": 10000.0},
    ),
    "mistral": (
        "MistralForCausalLM", "MistralConfig", {"rope_theta": 10000.0, "sliding_window": 20},
        "llama", {"rope.freq_base": 10000.0, "attention.sliding_window": 20},
    ),
    "qwen2_yarn": (
        "Qwen2ForCausalLM", "Qwen2Config", {"rope_theta": 1e6, "rope_scaling": YARN},
        "qwen2", {"rope.freq_base": 1e6, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                  "rope.scaling.original_context_length": 128},
    ),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM", "Qwen2MoeConfig",
        {"rope_theta": 1e6, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
         "shared_expert_intermediate_size": 48},
        "qwen2moe", {"rope.freq_base": 1e6, "expert_count": 6, "expert_used_count": 2,
                     "expert_feed_forward_length": 24, "expert_shared_feed_forward_length": 48},
    ),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"rope_theta": 1e6}, "qwen3", {"rope.freq_base": 1e6}),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM", "Qwen3MoeConfig",
        {"rope_theta": 1e6, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
         "norm_topk_prob": True},
        "qwen3moe", {"rope.freq_base": 1e6, "expert_count": 6, "expert_used_count": 3,
                     "expert_feed_forward_length": 24},
    ),
    "qwen3_moe_not_normalized": (
        "Qwen3MoeForCausalLM", "Qwen3MoeConfig",
        {"rope_theta": 1e6, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
         "norm_topk_prob": False},
        "qwen3moe", {"rope.freq_base": 1e6, "expert_count": 6, "expert_used_count": 3,
                     "expert_feed_forward_length": 24, "expert_weights_norm": False},
    ),
    "mixtral": (
        "MixtralForCausalLM", "MixtralConfig",
        {"rope_theta": 10000.0, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 20},
        "llama", {"rope.freq_base": 10000.0, "attention.sliding_window": 20, "expert_count": 5,
                  "expert_used_count": 2},
    ),
    "gemma2": (
        "Gemma2ForCausalLM", "Gemma2Config",
        {"rope_theta": 10000.0, "query_pre_attn_scalar": 16, "sliding_window": 20, "attn_logit_softcapping": 2.0,
         "final_logit_softcapping": 3.0, "tie_word_embeddings": True},
        "gemma2", {"rope.freq_base": 10000.0, "attention.sliding_window": 20, "attn_logit_softcapping": 2.0,
                   "final_logit_softcapping": 3.0},
    ),
    "gemma3": (
        "Gemma3ForCausalLM", "Gemma3TextConfig",
        {"rope_theta": 1e6, "rope_local_base_freq": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
         "query_pre_attn_scalar": 16, "sliding_window": 20, "num_hidden_layers": 7, "tie_word_embeddings": True},
        "gemma3", {"rope.freq_base": 1e6, "attention.sliding_window": 20, "rope.scaling.type": "linear",
                   "rope.scaling.factor": 8.0},
    ),
}  # fmt: skip


def peer_of(case: Case) -> Any:
    model_class, config_class, traits, _, _ = case
    transformers.utils.logging.set_verbosity_error()
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**(SIZES | traits))).eval()
    fill(model)
    return model


def exported(peer: Any, case: Case) -> GgufContents:
    _, _, traits, architecture, keys = case
    factors = None
    if traits.get("rope_scaling") is LLAMA3:  # GGUF states them as divisors of each frequency
        frequencies = peer.model.rotary_emb.inv_freq.double().numpy()
        factors = traits["rope_theta"] ** (-np.arange(0, SIZES["head_dim"], 2) / SIZES["head_dim"]) / frequencies
    return export(peer, architecture, keys, factors)


def written(peer: Any, case: Case, path: Path) -> Path:
    return exported(peer, case).write(path)


def peer_logits(peer: Any, tokens: list[int]) -> Any:
    with torch.no_grad():
        return peer(torch.tensor([tokens])).logits[0].double().numpy()


def bound(peer: Any) -> float:
    """Both sides compute in float32, and the peer's angles are rounded to it too."""
    sizes = {"n_layers": peer.config.num_hidden_layers, "hidden_size": 40, "ffn_size": 72, "n_heads": 4, "head_dim": 16}
    return 2 * float32_bound(TinyModel(**sizes))


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    peer = peer_of(CASES[name])
    model = load(written(peer, CASES[name], tmp_path / "m.gguf"), tmp_path, kv_dtype="f32")
    tokens = prompt(100, 53)
    assert model.warnings == []
    assert distance(logits(model, tokens), peer_logits(peer, tokens)) < bound(peer)


@pytest.mark.parametrize("name", CASES)
def test_mod_5_checkpoints_as_transformers_saves_them(name: str, tmp_path: Path) -> None:
    peer = peer_of(CASES[name])
    peer.save_pretrained(tmp_path / "saved")
    tokens = prompt(100, 53)
    from_gguf = load(written(peer, CASES[name], tmp_path / "m.gguf"), tmp_path, kv_dtype="f32")
    saved = load(tmp_path / "saved", tmp_path, kv_dtype="f32")
    got = logits(saved, tokens)
    assert saved.warnings == []
    assert distance(got, peer_logits(peer, tokens)) < bound(peer)
    if name != "llama_3_1":  # its factors are rounded to float32 in GGUF
        assert np.array_equal(got, logits(from_gguf, tokens))


def change_weight(peer: Any) -> None:
    with torch.no_grad():
        peer.model.layers[1].self_attn.k_proj.weight[3, 5] += 0.05


def change_norm(peer: Any) -> None:
    with torch.no_grad():
        peer.model.layers[2].input_layernorm.weight[7] += 0.05


@pytest.mark.sweep
@pytest.mark.parametrize("change", [change_weight, change_norm])
@pytest.mark.parametrize("name", CASES)
def test_hon_1_another_weight_is_seen(name: str, change: Callable[[Any], None], tmp_path: Path) -> None:
    peer = peer_of(CASES[name])
    model = load(written(peer, CASES[name], tmp_path / "m.gguf"), tmp_path, kv_dtype="f32")
    tokens = prompt(100, 53)
    change(peer)
    assert distance(logits(model, tokens), peer_logits(peer, tokens)) > 4 * bound(peer)


def saved_scaling(scaling: dict[str, Any], folder: Path) -> tuple[Any, Path]:
    """A model of transformers with this scaling of positions, and its files. The theta makes YaRN's ramp wide."""
    case = ("Qwen2ForCausalLM", "Qwen2Config", {"rope_theta": 1e3, "rope_scaling": scaling}, "qwen2", {})
    peer = peer_of(case)
    peer.save_pretrained(folder)
    return peer, folder


def saved_yarn(traits: dict[str, Any], folder: Path) -> tuple[Any, Path]:
    return saved_scaling({**YARN, **traits}, folder)


@pytest.mark.parametrize("name", YARNS)
def test_gen_22_yarn_as_transformers_computes_it(name: str, tmp_path: Path) -> None:
    peer, saved = saved_yarn(YARNS[name], tmp_path / "saved")
    tokens = prompt(200, 53)
    model = load(saved, tmp_path, kv_dtype="f32")
    assert model.warnings == []
    assert distance(logits(model, tokens), peer_logits(peer, tokens)) < bound(peer)


@pytest.mark.parametrize("name", ["untruncated", "mscales", "all"])
def test_gen_22_hon_1_yarn_without_these_keys_is_something_else(name: str, tmp_path: Path) -> None:
    peer, _ = saved_yarn(YARNS[name], tmp_path / "saved")
    _, plain = saved_yarn({}, tmp_path / "plain")
    tokens = prompt(200, 53)
    got = logits(load(plain, tmp_path, kv_dtype="f32"), tokens)
    assert distance(got, peer_logits(peer, tokens)) > 4 * bound(peer)


OTHER_KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": LLAMA3,
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_gen_22_keys_of_yarn_beside_another_kind_have_no_effect(kind: str, tmp_path: Path) -> None:
    extra = {"attention_factor": 0.5, "mscale": 1.0, "mscale_all_dim": 0.5}
    peer, saved = saved_scaling({**OTHER_KINDS[kind], **extra}, tmp_path / "saved")
    tokens = prompt(200, 53)
    model = load(saved, tmp_path, kv_dtype="f32")
    assert model.warnings == []
    assert distance(logits(model, tokens), peer_logits(peer, tokens)) < bound(peer)


EXPERT_CASES = [name for name, case in CASES.items() if "expert_count" in case[4]]


@pytest.mark.sweep
@pytest.mark.parametrize("name", EXPERT_CASES)
@pytest.mark.parametrize("change", ["normalized", "used", "order"])
def test_mod_17_hon_1_another_routing_is_seen(name: str, change: str, tmp_path: Path) -> None:
    case = CASES[name]
    peer = peer_of(case)
    contents = exported(peer, case)
    at = f"{case[3]}."
    if change == "normalized":
        contents.keys[f"{at}expert_weights_norm"] = not contents.keys.get(
            f"{at}expert_weights_norm", case[3] != "qwen2moe"
        )
    elif change == "used":
        contents.keys[f"{at}expert_used_count"] -= 1
    else:  # the first two experts of layer 1 change places for the router alone
        router = contents.tensors["blk.1.ffn_gate_inp.weight"].values
        router[[0, 1]] = router[[1, 0]]
    tokens = prompt(100, 53)
    got = logits(load(contents.write(tmp_path / "m.gguf"), tmp_path, kv_dtype="f32"), tokens)
    assert distance(got, peer_logits(peer, tokens)) > 100 * bound(peer)


@pytest.mark.parametrize("name", CASES)
def test_gen_21_hon_1_a_position_off_by_one_is_seen(name: str, tmp_path: Path) -> None:
    peer = peer_of(CASES[name])
    cache = Cache(load(written(peer, CASES[name], tmp_path / "m.gguf"), tmp_path, kv_dtype="f32"))
    tokens = prompt(60, 53)
    blocks = cache.blocks(64)
    cache.run((tokens[:-1], 0, blocks))
    [moved] = cache.run((tokens[-1:], 60, blocks))
    assert distance(moved, peer_logits(peer, tokens)[-1:]) > 100 * bound(peer)
