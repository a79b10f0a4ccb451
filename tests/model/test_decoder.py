"""The decoder equals the definition of a transformer, in every way in which models differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _testing as core
from support.models.forward_runs import Cache, distance, load, logits, prompt
from support.models.tiny_models import FAMILIES, TinyModel, tiny
from support.oracles.forward_bounds import float16_cache_bound, float32_bound

VARIANTS: dict[str, TinyModel] = {
    **{f"{family}": tiny(family) for family in FAMILIES},
    **{f"llama_{n}_query_heads_per_kv_head": tiny("llama", n_heads=2 * n, n_kv_heads=2) for n in range(1, 9)},
    "llama_all_biases": tiny("llama", output_bias=True),
    "llama_tied": tiny("llama", tied=True),
    "llama_window": tiny("llama", window=9),
    "llama_partial_rope": tiny("llama", rope_dims=4, head_dim=16),
    "llama_linear": tiny("llama", scaling={"type": "linear", "factor": 4.0}),
    "llama_factor_without_kind": tiny("llama", scaling={"factor": 4.0}),
    "llama_factors": tiny("llama", rope_factors=(1.0, 2.5, 7.0, 32.0)),
    "llama_scale_of_scores": tiny("llama", attention_scale=0.21),
    "qwen2_untied": tiny("qwen2", tied=False, n_kv_heads=5),
    "qwen2_yarn": tiny("qwen2", head_dim=32, scaling={"type": "yarn", "factor": 4.0, "original_context_length": 64}),
    "llama_experts": tiny("llama", n_experts=4),
    "llama_one_expert": tiny("llama", n_experts=1, n_experts_used=1),
    "llama_experts_of_a_size_that_is_no_multiple_of_8": tiny("llama", n_experts=5, expert_ffn_size=19),
    "qwen2moe_normalized": tiny("qwen2moe", expert_weights_normalized=True),
    "qwen3moe_all_used": tiny("qwen3moe", n_experts_used=7),
    "qwen3moe_not_normalized": tiny("qwen3moe", expert_weights_normalized=False),
    "qwen3moe_scaled": tiny("qwen3moe", expert_weights_scale=2.5),
    "qwen3_partial_rope": tiny("qwen3", rope_dims=16),
    "command-r_plus": tiny("command-r", head_norms=True),
    "gemma2_caps": tiny("gemma2", attention_soft_cap=1.5, logit_soft_cap=2.5),
    "gemma3_linear": tiny("gemma3", scaling={"type": "linear", "factor": 8.0}),
    "gemma3_pattern": tiny("gemma3", pattern=3),
    "norms_in_f16": tiny("qwen2", vector_dtype="f16"),
    "norms_in_bf16": tiny("qwen3", vector_dtype="bf16"),
}


@pytest.mark.few(8)
@pytest.mark.parametrize("name", VARIANTS)
def test_decoder_equals_the_definition(name: str, tmp_path: Path) -> None:
    model = VARIANTS[name]
    tokens = prompt(70, model.vocab_size)
    got = logits(load(model, tmp_path, kv_dtype="f32"), tokens)
    assert distance(got, model.oracle().logits(tokens)) < float32_bound(model)


@pytest.mark.parametrize("family", ["llama", "phi3", "olmo2", "exaone4", "gemma3"])
def test_a_window_of_zero_tokens_is_none(family: str, tmp_path: Path) -> None:
    """Files of Phi-4 have it."""
    model = tiny(family, window=0)
    contents = model.contents()
    tokens = prompt(70, model.vocab_size)
    without = logits(load(contents.write(tmp_path / "m.gguf"), tmp_path, kv_dtype="f32"), tokens)
    assert distance(without, model.oracle().logits(tokens)) < float32_bound(model)
    contents.keys[f"{family}.attention.sliding_window"] = 0
    zero = logits(load(contents.write(tmp_path / "m.gguf"), tmp_path, kv_dtype="f32"), tokens)
    np.testing.assert_array_equal(zero, without)


@pytest.mark.few(7)
@pytest.mark.parametrize("family", FAMILIES)
def test_decoder_with_the_default_cache(family: str, tmp_path: Path) -> None:
    model = tiny(family)
    tokens = prompt(70, model.vocab_size)
    got = logits(load(model, tmp_path), tokens)
    expected = model.oracle().logits(tokens)
    assert float32_bound(model) < distance(got, expected) < float16_cache_bound(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_gen_21_hon_1_a_position_off_by_one_is_seen(family: str, tmp_path: Path) -> None:
    model = tiny(family)
    tokens = prompt(40, model.vocab_size)
    cache = Cache(load(model, tmp_path, kv_dtype="f32"))
    blocks = cache.blocks(48)
    cache.run((tokens[:-1], 0, blocks))
    [right] = cache.run((tokens[-1:], len(tokens) - 1, blocks))
    [moved] = cache.run((tokens[-1:], len(tokens), blocks))
    expected = model.oracle().logits(tokens)[-1:]
    assert distance(right, expected) < float32_bound(model)
    assert distance(moved, expected) > 100 * float32_bound(model)


def changed_weight(model: TinyModel, name: str) -> Any:
    contents = model.contents()
    contents.tensors[name].values.flat[5] += 0.05
    return contents


@pytest.mark.few(7)
@pytest.mark.parametrize(
    "name",
    ["token_embd.weight", "blk.0.attn_norm.weight", "blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight",
     "blk.1.attn_q_norm.weight", "blk.1.attn_k_norm.weight", "blk.2.attn_output.weight",
     "blk.2.post_attention_norm.weight", "blk.2.ffn_norm.weight", "blk.3.ffn_gate.weight", "blk.3.ffn_up.weight",
     "blk.3.ffn_down.weight", "blk.4.post_ffw_norm.weight", "output_norm.weight"],
)  # fmt: skip
def test_hon_1_one_changed_weight_is_seen(name: str, tmp_path: Path) -> None:
    model = tiny("gemma3")
    tokens = [*range(model.vocab_size)]
    got = logits(load(changed_weight(model, name).write(tmp_path / "m.gguf"), tmp_path, kv_dtype="f32"), tokens)
    assert distance(got, model.oracle().logits(tokens)) > 4 * float32_bound(model)


def test_hon_1_permuted_rows_of_the_cache_are_seen(tmp_path: Path) -> None:
    """Within a window: over all keys attention is the same in any order, since keys carry their positions."""
    model = tiny("llama", window=9)
    tokens = prompt(49, model.vocab_size)
    cache = Cache(load(model, tmp_path, kv_dtype="f32"))
    blocks = cache.blocks(64)
    cache.run((tokens[:-1], 0, blocks))
    [right] = cache.run((tokens[-1:], 48, blocks))
    [wrong] = cache.run((tokens[-1:], 48, [blocks[0], blocks[2], blocks[1], blocks[3]]))
    expected = model.oracle().logits(tokens)[-1:]
    assert distance(right, expected) < float32_bound(model)
    assert distance(wrong, expected) > 100 * float32_bound(model)


def test_only_the_rows_asked_for_have_logits(tmp_path: Path) -> None:
    model = tiny("llama")
    tokens = prompt(20, model.vocab_size)
    cache = Cache(load(model, tmp_path))
    every = cache.prefill(tokens)
    part = cache.forward.run([core.SequenceInput(tokens, 0, cache.blocks(20))], [3, 7, 19])
    assert np.array_equal(part, every[[3, 7, 19]])
