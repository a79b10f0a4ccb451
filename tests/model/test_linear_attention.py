"""Models with linear attention: which files are read how, and which are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from support.files.gguf_contents import GgufContents, Tensor
from support.kernels.bits import assert_same_bits
from support.models.forward_runs import Cache, distance, load, logits, prompt
from support.models.tiny_models import TinyModel, tiny
from support.oracles.forward_bounds import float32_bound

FAMILIES = ("qwen35", "qwen35moe", "qwen3next")
TOKENS = prompt(70, 51)


@pytest.mark.few(4)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "changes",
    [
        {"delta_key_heads": 3, "delta_value_heads": 3},
        {"delta_key_heads": 1, "delta_value_heads": 5, "delta_key_dim": 40, "delta_value_dim": 36},
        {"conv_taps": 2, "n_layers": 8},
        {"tied": True, "dtype": "f16"},
    ],
    ids=["equal_heads", "one_key_head", "two_taps", "tied"],
)
def test_mod_5_shapes_of_linear_attention(family: str, changes: dict[str, Any], tmp_path: Path) -> None:
    model = tiny(family, **changes)
    got = logits(load(model, tmp_path, kv_dtype="f32"), TOKENS)
    assert distance(got, model.oracle().logits(TOKENS)) < float32_bound(model)


def test_hon_1_the_other_order_of_value_heads_is_seen(tmp_path: Path) -> None:
    model = tiny("qwen35")
    got = logits(load(model, tmp_path, kv_dtype="f32"), TOKENS)
    other = dataclasses.replace(model, architecture="qwen3next", conv_taps=4)
    oracle = model.oracle()
    for layer in oracle.layers:
        if layer.delta is not None:
            layer.delta = layer.delta.but(is_interleaved=False)
    assert other.delta_value_heads == model.delta_value_heads
    assert distance(got, oracle.logits(TOKENS)) > 4 * float32_bound(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_mod_5_mod_13_draft_layers_are_listed_and_not_run(family: str, tmp_path: Path) -> None:
    plain, drafting = tiny(family), tiny(family, n_draft_layers=2)
    (tmp_path / "drafting").mkdir()
    model = load(drafting, tmp_path / "drafting", kv_dtype="f32")
    [warning] = model.warnings
    assert warning.startswith("2 tensors are not part of the model and not read: blk.5.nextn.enorm.weight, blk.6.nextn")
    assert_same_bits(logits(model, TOKENS), logits(load(plain, tmp_path, kv_dtype="f32"), TOKENS))


def fused(contents: GgufContents, model: TinyModel) -> GgufContents:
    """q, k, v and the gate in one tensor, by key head, as older files have them."""
    of_key = model.delta_value_width // model.delta_key_heads
    tensors = dict(contents.tensors)
    for name in [name for name in tensors if name.endswith("attn_gate.weight")]:
        at = name.removesuffix("attn_gate.weight")
        gate, qkv = tensors.pop(name).values, tensors.pop(f"{at}attn_qkv.weight").values
        q, k, v = np.split(qkv, [model.delta_key_width, 2 * model.delta_key_width])
        widths = (model.delta_key_dim, model.delta_key_dim, of_key, of_key)
        groups = [
            part.reshape(model.delta_key_heads, width, -1) for part, width in zip((q, k, v, gate), widths, strict=True)
        ]
        tensors[f"{at}ssm_in.weight"] = Tensor(np.concatenate(groups, axis=1).reshape(-1, model.hidden_size))
    return GgufContents(contents.keys, tensors)


def test_mod_5_older_files_with_one_tensor_for_all_inputs(tmp_path: Path) -> None:
    model = tiny("qwen3next")
    path = fused(model.contents(), model).write(tmp_path / "fused.gguf")
    assert_same_bits(
        logits(load(path, tmp_path, kv_dtype="f32"), TOKENS), logits(load(model, tmp_path, kv_dtype="f32"), TOKENS)
    )


def test_mod_5_the_kind_of_each_layer_can_be_stated(tmp_path: Path) -> None:
    """One flag for each layer, draft layers included, instead of the period of four."""
    model = tiny("qwen35", n_draft_layers=1)
    flags = [True, True, True, False, True, False]
    contents = model.contents()
    stated = GgufContents(contents.keys | {"qwen35.attention.recurrent_layers": flags}, contents.tensors)
    found = load(stated.write(tmp_path / "stated.gguf"), tmp_path, kv_dtype="f32")
    assert_same_bits(logits(found, TOKENS), logits(load(model, tmp_path, kv_dtype="f32"), TOKENS))
    [linear] = [fact for fact in found.facts if fact["name"] == "linear_layers"]
    assert linear["value"] == "0-2, 4"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "value heads": ({"ssm.time_step_rank": 5, "ssm.inner_size": 60}, "5, expected a multiple of the 2 key heads"),
    "width": ({"ssm.inner_size": 71}, "key qwen35.ssm.inner_size: 71, expected a multiple of the 6 value heads"),
    "taps": ({"ssm.conv_kernel": 17}, "key qwen35.ssm.conv_kernel: 17, expected above 1 and below 17"),
    "key size": ({"ssm.state_size": 1024}, "key qwen35.ssm.state_size: 1024, expected 1 to 512"),
    "no attention": (
        {"attention.recurrent_layers": [True] * 5},
        "expected at least one layer with softmax attention",
    ),
    "flags": ({"attention.recurrent_layers": [True] * 4}, "4 values, expected one for each of 5 layers"),
    "drafts": ({"nextn_predict_layers": 5}, "key qwen35.nextn_predict_layers: 5, expected less than the 5 layers"),
    "experts": ({"expert_count": 4}, "key qwen35.expert_count: 4, expected no experts"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mod_7_impossible_linear_attention_is_refused(name: str, tmp_path: Path) -> None:
    keys, message = REFUSED[name]
    contents = tiny("qwen35").contents()
    changed = contents.keys | {f"qwen35.{key}": value for key, value in keys.items()}
    path = GgufContents(changed, contents.tensors).write(tmp_path / "m.gguf")
    with pytest.raises(_core.ModelError) as info:
        load(path, tmp_path)
    assert message in info.value.message


@pytest.mark.few(4)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_det_1_chunks_of_a_prompt_give_the_same_bits(family: str, chunk: int, tmp_path: Path) -> None:
    """Chunks, the number of threads, and other sequences in the batch change nothing."""
    model = tiny(family)
    path = model.write(tmp_path / "m.gguf")
    whole = logits(load(path, tmp_path), TOKENS)
    loaded = load(path, tmp_path, threads=3)
    assert_same_bits(Cache(loaded).prefill(TOKENS, chunk), whole)
    cache = Cache(loaded)
    blocks, others = cache.blocks(70), [cache.blocks(70) for _ in range(2)]
    for at in range(0, 70, chunk):
        part = TOKENS[at : at + chunk]
        beside = [(prompt(70, 51, seed)[at : at + chunk], at, held) for seed, held in zip((2, 3), others, strict=True)]
        got = cache.run(beside[0], (part, at, blocks), beside[1])[1]
        assert_same_bits(got, whole[at : at + chunk])
