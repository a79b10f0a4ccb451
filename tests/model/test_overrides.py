"""What a user changes about a model: seen in the facts, felt in the logits, never in another model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from support.models.forward_runs import Cache, distance, load, logits, overrides, prompt
from support.models.tiny_models import tiny
from support.oracles.forward_bounds import float32_bound


def facts(model: Any) -> dict[str, tuple[str, str, str]]:
    rows = model["facts"] if isinstance(model, dict) else model.facts
    return {fact["name"]: (fact["value"], fact["origin"], fact["source"]) for fact in rows}


def test_mod_10_every_fact_has_its_origin(tmp_path: Path) -> None:
    path = tiny("gemma3", scaling={"type": "linear", "factor": 8.0}).write(tmp_path / "m.gguf")
    changes = {"max_context": 100, "rope_theta": 5e5, "eos_token_ids": [7, 3, 7], "suppress_tokens": [9]}
    shown = facts(_core.inspect_model(_core.open_model_file(path), overrides(**changes)))
    assert facts(load(path, tmp_path, **changes)) == shown
    assert shown["n_layers"] == ("7", "checkpoint", "key gemma3.block_count")
    assert shown["vocab_size"] == ("51", "checkpoint", "tensor token_embd.weight")
    assert shown["norm_placement"] == ("pre_and_post", "architecture", "")
    assert shown["windowed_rope_theta"] == ("10000", "architecture", "")
    assert shown["rope_scaling"] == ("linear", "checkpoint", "key gemma3.rope.scaling.type")
    assert shown["windows"] == ("7 in layers 0-4, 6", "checkpoint", "key gemma3.attention.sliding_window")
    assert shown["max_context"] == ("100", "override", "override max_context")
    assert shown["rope_theta"] == ("500000", "override", "override rope_theta")
    assert shown["suppressed_tokens"] == ("9", "override", "override suppress_tokens")


@pytest.mark.parametrize(
    ("changes", "equal_to"),
    [
        ({"rope_theta": 500.0}, {"theta": 500.0}),
        (
            {"rope_scaling": _core.RopeScaling(type="linear", factor=4.0)},
            {"scaling": {"type": "linear", "factor": 4.0}},
        ),
        (
            {"rope_scaling": _core.RopeScaling(type="yarn", factor=8.0, original_context=64)},
            {"scaling": {"type": "yarn", "factor": 8.0, "original_context_length": 64}},
        ),
    ],
)  # fmt: skip
def test_mod_9_an_override_equals_a_file_that_says_so(
    changes: dict[str, Any], equal_to: dict[str, Any], tmp_path: Path
) -> None:
    plain, other = tiny("qwen3"), tiny("qwen3", **equal_to)
    tokens = prompt(60, plain.vocab_size)
    got = logits(load(plain, tmp_path, kv_dtype="f32", **changes), tokens)
    assert distance(got, other.oracle().logits(tokens)) < float32_bound(other)
    assert distance(got, plain.oracle().logits(tokens)) > 100 * float32_bound(plain)


def test_mod_9_fields_of_a_scaling_replace_one_fact_each(tmp_path: Path) -> None:
    file = _core.open_model_file(
        tiny("qwen2", scaling={"type": "yarn", "factor": 4.0, "original_context_length": 64}).write(tmp_path / "m.gguf")
    )
    shown = facts(_core.inspect_model(file, overrides(rope_scaling=_core.RopeScaling(factor=2.0, beta_fast=16.0))))
    assert shown["rope_scaling"][:2] == ("yarn", "checkpoint")
    assert shown["rope_scaling_factor"][:2] == ("2", "override")
    assert shown["rope_beta_fast"][:2] == ("16", "override")
    assert shown["rope_original_context"][:2] == ("64", "checkpoint")


def test_mod_8_det_18_overrides_belong_to_one_model(tmp_path: Path) -> None:
    path = tiny("qwen3").write(tmp_path / "m.gguf")
    settings = [
        {},
        {"rope_theta": 300.0, "kv_dtype": "f32", "gemm": [("*", "reference")]},
        {"kv_dtype": "bf16", "gemm": [("blk.*.ffn_down.weight", "reference")]},
    ]
    tokens = prompt(40, 51)
    alone = [logits(load(path, tmp_path, **setting), tokens) for setting in settings]
    models = [load(path, tmp_path, **setting) for setting in settings]
    caches = [Cache(model) for model in models]
    blocks = [cache.blocks(40) for cache in caches]
    rows: list[list[Any]] = [[], [], []]
    for at in range(0, 40, 5):
        for i, cache in enumerate(caches):
            rows[i].append(cache.run((tokens[at : at + 5], at, blocks[i]))[0])
    for i in range(3):
        assert np.array_equal(np.concatenate(rows[i]), alone[i])
    assert not np.array_equal(alone[0], alone[1])
    assert not np.array_equal(alone[0], alone[2])
    kernels = [{weight["tensor"]: weight["kernels"] for weight in model.weights} for model in models]
    assert {name for name, chosen in kernels[2].items() if chosen == ["reference"]} >= {
        f"blk.{i}.ffn_down.weight" for i in range(3)
    }
    assert kernels[0]["blk.0.attn_q.weight"] == kernels[2]["blk.0.attn_q.weight"]
    assert kernels[1]["blk.0.attn_q.weight"] == ["reference"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_dtype": "q8_0/rot4"}, ["override kv_dtype: q8_0/rot4 with head_dim 8", "head_dim a multiple of 32"]),
        ({"kv_dtype": "q8_0"}, ["override kv_dtype: q8_0 with head_dim 8", "head_dim a multiple of 32"]),
        ({"rope_theta": 0.0}, ["override rope_theta: 0"]),
        ({"rope_theta": float("nan")}, ["override rope_theta: nan"]),
        ({"max_context": 0}, ["override max_context: 0"]),
        ({"max_context": 2**24 + 1}, ["override max_context: 16777217"]),
        ({"rope_scaling": _core.RopeScaling(type="linear", factor=-1.0)}, ["override rope_scaling.factor: -1"]),
        ({"eos_token_ids": [51]}, ["override eos_token_ids: 51", "0 to 50"]),
        ({"suppress_tokens": [-1]}, ["override suppress_tokens: -1"]),
        ({"suppress_tokens": list(range(51))}, ["override suppress_tokens: every token"]),
        ({"gemm": [("*", "nosuch")]}, ["nosuch", "reference"]),
        ({"gemm": [("blk.*.nosuch", "reference")]}, ["blk.*.nosuch", "matches no tensor"]),
        ({"gemm": [("f32", "q8_0_avx2")]}, ["q8_0_avx2"]),
    ],
)
def test_mod_11_gemm_4_an_override_that_cannot_be_honoured(
    changes: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(_core.ModelError) as info:
        load(tiny("llama"), tmp_path, **changes)
    assert info.value.reason == "OVERRIDE_INVALID"
    for word in words:
        assert word in info.value.message


def test_mod_11_unknown_words_list_the_known() -> None:
    with pytest.raises(_core.ModelError, match="nosuch, known are f32, f16, bf16"):
        overrides(kv_dtype="nosuch")
    with pytest.raises(_core.ModelError, match="nosuch, known are none, linear, yarn, llama3"):
        _core.RopeScaling(type="nosuch")
    with pytest.raises(AttributeError):
        overrides(nosuch=1)


def test_mod_32_a_context_beyond_the_trained_one_needs_its_override(tmp_path: Path) -> None:
    with pytest.raises(_core.ModelError) as refused:
        load(tiny("llama", context=64), tmp_path, max_context=128)
    assert refused.value.reason == "OVERRIDE_INVALID"
    assert "override max_context: 128, expected at most 64, for which the model was trained; " in str(refused.value)
    assert "rope_scaling" in str(refused.value) and "untrained_context" in str(refused.value)
    loaded = load(tiny("llama", context=64), tmp_path, max_context=128, untrained_context=True)
    assert loaded.max_context == 128
    assert loaded.warnings == ["max_context 128 is beyond the 64 tokens the model was trained on"]
    assert load(tiny("llama", context=64), tmp_path, max_context=64).warnings == []


@pytest.mark.parametrize(
    ("scaling", "most"),
    [
        ({"type": "yarn", "factor": 4.0}, 256),
        ({"type": "yarn", "factor": 4.0, "original_context": 32}, 128),
        ({"type": "linear", "factor": 2.0}, 128),
        ({"type": "yarn", "factor": 1.5, "original_context": 8}, 64),
    ],
)
def test_mod_32_rope_scaling_reaches_as_far_as_its_factor(
    tmp_path: Path, scaling: dict[str, object], most: int
) -> None:
    model, rope = tiny("llama", context=64), _core.RopeScaling(**scaling)
    assert load(model, tmp_path, max_context=most, rope_scaling=rope).warnings == []
    with pytest.raises(_core.ModelError, match=f"expected at most {most}, "):
        load(model, tmp_path, max_context=most + 1, rope_scaling=rope)


def test_mod_32_a_limit_of_the_settings_lengthens_no_context(tmp_path: Path) -> None:
    loaded = load(tiny("llama", context=64), tmp_path, context_limit=1024)
    assert (loaded.max_context, loaded.warnings) == (64, [])
    assert load(tiny("llama", context=64), tmp_path, context_limit=32).max_context == 32
