"""The first layers of a model as a draft model: the same weights, and no trace of the other layers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from imp_service import _core
from make_draft import write_draft
from support.models.forward_runs import distance, load, logits, prompt
from support.models.tiny_models import tiny
from support.oracles.forward_bounds import float32_bound

TOKENS = prompt(70, 51)


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "qwen35"])
def test_spc_50_a_draft_has_the_first_layers_of_its_model(family: str, tmp_path: Path) -> None:
    model = tiny(family, n_layers=8)
    path = write_draft(model.write(tmp_path / "model.gguf"), 6, tmp_path / "draft.gguf")
    oracle = model.oracle()
    shorter = dataclasses.replace(oracle, layers=oracle.layers[:6])
    found, bound = logits(load(path, tmp_path, kv_dtype="f32"), TOKENS), float32_bound(model)
    assert distance(found, shorter.logits(TOKENS)) < bound < distance(found, oracle.logits(TOKENS))
    with pytest.raises(ValueError, match=r"8 layers, expected at least 1 and fewer than the model's 8"):
        write_draft(tmp_path / "model.gguf", 8, tmp_path / "other.gguf")


def test_spc_50_a_draft_of_its_first_layers_scores_a_model_s_prompts(tmp_path: Path) -> None:
    path = tiny("qwen35", n_layers=8, context=512).write(tmp_path / "model.gguf")
    draft = write_draft(path, 4, tmp_path / "draft.gguf")
    loaded = _core.Model.load(
        _core.open_model_file(path), draft=_core.open_model_file(draft), draft_scores_prompts=True, kv_bytes=1 << 22
    )
    assert loaded.draft is not None and not loaded.draft["guesses"]
