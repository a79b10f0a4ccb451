"""Checkpoints that are no language model, or of a family that imp does not compute: refused with what they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.hf_contents import hf_config, hf_tensors, write_hf
from support.files.sentence_folder import write_pooling
from support.models.tiny_models import tiny

SOURCE = Path(__file__).parents[2] / "csrc" / "model" / "arch" / "unsupported.cpp"
TABLE = SOURCE.read_text().partition("kUnsupportedFamilies = {")[2].partition("\n};")[0]
NAMES = re.findall(r'Unsupported\{"([^"]+)"', TABLE)


def refusal(path: Path) -> str:
    with pytest.raises(_core.ModelError) as info:
        _core.inspect_model(_core.open_model_file(path))
    assert info.value.reason == "MODEL_UNSUPPORTED"
    return info.value.message


def gguf(folder: Path, **keys: Any) -> Path:
    contents = tiny("qwen3").contents()
    contents.keys |= {key.replace("__", "."): value for key, value in keys.items()}
    return contents.write(folder / "m.gguf")


def hub(folder: Path, **changes: Any) -> Path:
    model = tiny("qwen3")
    return write_hf(folder / "model.safetensors", hf_config(model) | changes, hf_tensors(model))


def test_mod_7_mod_31_no_family_is_both_supported_and_not() -> None:
    known = {*core.architectures("gguf"), *core.architectures("hf")}
    assert len(NAMES) == len(set(NAMES)) > 60
    assert {"gemma3n", "deepseek2", "clip", "jina-bert-v2"} <= set(NAMES)
    assert known.isdisjoint(NAMES)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("minimax-m2", "this is MiniMax M2; llama.cpp runs it"),
        ("deepseek2", "its distilled Qwen and Llama models run"),
        (
            "clip",
            "a vision projector (mmproj), without its language model; give the language model, and this file as "
            "model.projector",
        ),
        ("nomic-bert-moe", "this is an embedding model (Nomic); BERT and embedding models of decoders run"),
    ],
)
def test_mod_7_mod_31_a_family_is_refused_with_advice(name: str, words: str, tmp_path: Path) -> None:
    message = refusal(gguf(tmp_path, general__architecture=name))
    assert f"key general.architecture: {name}: " in message
    assert words in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layer_types": ["attention", "mamba"]}, "key layer_types: mamba, expected attention for every layer"),
        ({}, "key layer_types: none, expected attention for every layer: imp has no Mamba"),
        ({"layer_types": ["attention"], "num_local_experts": 4}, "key num_local_experts: 4, expected 0"),
    ],
)
def test_mod_7_mod_31_granite_4_with_mamba_layers_or_experts_is_refused(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    assert words in refusal(hub(tmp_path, model_type="granitemoehybrid", **changes))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"general__type": "adapter"}, "a LoRA adapter, not a model; merge it into its base model"),
        ({"general__type": "mmproj"}, "a vision projector (mmproj)"),
        ({"qwen3__pooling_type": 2}, "key qwen3.pooling_type: cls, expected mean or last"),
        ({"qwen3__pooling_type": 5}, "key qwen3.pooling_type: 5, expected 0 to 4"),
    ],
)
def test_mod_7_mod_31_another_kind_of_gguf_is_refused(keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in refusal(gguf(tmp_path, **keys))


def test_mod_7_mod_31_a_model_that_says_that_it_is_one(tmp_path: Path) -> None:
    path = gguf(tmp_path, general__type="model", qwen3__pooling_type=0)
    assert _core.inspect_model(_core.open_model_file(path))["architecture"] == "qwen3"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "minimax_m2"}, "key model_type: minimax_m2: this is MiniMax M2"),
        ({"architectures": ["Qwen3ForSequenceClassification"]}, "this is a classifier or reranker"),
        ({"architectures": ["Qwen3Model"]}, "key architectures: Qwen3Model: this is an embedding model"),
        ({"architectures": ["Qwen3ForRewardModel"]}, "this is a reward model"),
    ],
)
def test_mod_7_mod_31_another_kind_of_directory_is_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in refusal(hub(tmp_path, **changes))


def test_mod_7_mod_31_one_class_that_generates_is_enough(tmp_path: Path) -> None:
    path = hub(tmp_path, architectures=["Qwen3Model", "Qwen3ForCausalLM"])
    assert _core.inspect_model(_core.open_model_file(path))["architecture"] == "qwen3"


def test_mod_31_a_directory_of_an_adapter_is_refused(tmp_path: Path) -> None:
    path = hub(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    assert _core.inspect_model(_core.open_model_file(path))["architecture"] == "qwen3"
    renamed = path.rename(tmp_path / "adapter_model.safetensors")
    for _ in range(2):  # with a configuration of the base model, as some repositories have, and without
        with pytest.raises(_core.ModelError, match="this is a LoRA adapter, not a model; merge it") as info:
            _core.open_model_file(renamed)
        assert info.value.reason == "MODEL_UNSUPPORTED"
        (tmp_path / "config.json").unlink(missing_ok=True)


@pytest.mark.parametrize("classes", [["Qwen3ForCausalLM"], ["Qwen3Model"]])
def test_mod_31_emb_1_a_decoder_in_a_folder_with_modules_is_an_embedding_model(
    classes: list[str], tmp_path: Path
) -> None:
    write_pooling(hub(tmp_path, architectures=classes).parent, "last")
    found = _core.inspect_model(_core.open_model_file(tmp_path))
    assert {fact["name"]: fact["value"] for fact in found["facts"]}["pooling"] == "last"
