"""Facts that only some models of a family have give the logits of `transformers`, from the files that it saves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from support.models.family_cases import CASES, SIZES, bound, peer_logits, text_part
from support.models.family_variants import CONTEXTS, VARIANTS, WRAPPED, case_of_context
from support.models.forward_runs import distance, load, logits, prompt

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")


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


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CONTEXTS)
def test_gen_22_hon_1_frequencies_by_the_context_asked_for(name: str, tmp_path: Path) -> None:
    _, context, other = CONTEXTS[name]
    peer = case_of_context(name).peer()
    peer.save_pretrained(tmp_path / "saved")
    tokens = prompt(context, SIZES["vocab_size"])
    expected = peer_logits(peer, tokens)
    model = load(tmp_path / "saved", tmp_path, kv_dtype="f32", max_context=context)
    assert distance(logits(model, tokens), expected) < bound(peer)
    # HON-1: a context on the other side of the original context selects other frequencies.
    changed = load(tmp_path / "saved", tmp_path, kv_dtype="f32", max_context=other)
    assert distance(logits(changed, tokens), expected) > 4 * bound(peer)


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
