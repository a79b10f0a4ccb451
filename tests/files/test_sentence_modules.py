"""Folders of sentence-transformers: what their files say is part of the metadata, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from imp_service import _core
from support.files.sentence_folder import write_dense, write_modules, write_pooling
from support.models.tiny_encoders import TinyEncoder

NEW = "sentence_transformers.sentence_transformer.modules.pooling."


def folder_of(tmp_path: Path) -> Path:
    return TinyEncoder().write_folder(tmp_path / "model")


def metadata(folder: Path) -> dict[str, object]:
    return dict(_core.open_model_file(folder).metadata)


def refused(folder: Path) -> tuple[str, str]:
    with pytest.raises(_core.ModelError) as info:
        _core.open_model_file(folder)
    return info.value.reason, info.value.message


def test_emb_1_the_files_of_a_folder_are_in_its_metadata(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 77, "do_lower_case": false}')
    prompts = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    found = metadata(folder)
    assert found["modules.1.type"] == "sentence_transformers.models.Pooling"
    assert (found["modules.1.path"], found["pooling.pooling_mode_mean_tokens"]) == ("1_Pooling", True)
    assert found["sentence_bert.max_seq_length"] == 77
    assert found["sentence_transformers.prompts.query"] == "query: "
    assert found["sentence_transformers.prompts.document"] == ""


def test_emb_1_module_types_are_matched_by_their_last_component(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    write_modules(folder, ("Transformer", ""), ("Dropout", "x"), ("Pooling", "1_Pooling"), at=NEW)
    assert metadata(folder)["pooling.pooling_mode_mean_tokens"] is True


def test_emb_1_products_behind_the_pooling_are_tensors_of_the_model(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    write_dense(folder, "2_Dense", np.ones((8, 32), np.float32), np.ones(8, np.float32), "torch.nn.Tanh")
    write_modules(folder, ("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"))
    file = _core.open_model_file(folder)
    assert {"dense.0.linear.weight", "dense.0.linear.bias"} <= {tensor.name for tensor in file.tensors}
    assert dict(file.metadata)["dense.0.out_features"] == 8


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        (
            [("Transformer", ""), ("LSTM", "1_LSTM")],
            "modules.1.type: sentence_transformers.models.LSTM",
        ),
        ([("Pooling", "1_Pooling")], "key modules.0.type"),
        ([("Transformer", "0_Transformer")], "key modules.0.type"),
        ([("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", ""), ("Dense", "1_Pooling")], "modules.3.type"),
        ([], "no modules, expected Transformer, Pooling"),
    ],
)
def test_emb_1_an_unknown_module_or_order_is_refused_by_name(
    modules: list[tuple[str, str]], words: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path)
    write_modules(folder, *modules)
    reason, message = refused(folder)
    assert reason == "MODEL_UNSUPPORTED"
    assert words in message


def test_emb_1_a_module_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    write_pooling(tmp_path, "mean")
    for path in ("../1_Pooling", "..", "link"):
        (folder / "link").unlink(missing_ok=True)
        (folder / "link").symlink_to(tmp_path / "1_Pooling")
        write_modules(folder, ("Transformer", ""), ("Pooling", path))
        assert refused(folder)[0] == "MODEL_SHARD"


@pytest.mark.parametrize("text", ['{"type": 1}', '[], "general": 1', "[1", '[{"idx": 0}]'])
def test_emb_1_another_content_of_modules_json_is_refused(text: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "modules.json").write_text(text)
    assert refused(folder)[0] in ("MODEL_CONFIG", "MODEL_UNSUPPORTED")
