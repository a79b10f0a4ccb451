"""GGUF files that llama.cpp's own converter writes give the logits of transformers."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.files.llama_cpp_converter import convert
from support.models.family_cases import CASES as OTHER_CASES
from support.models.family_cases import NO_WINDOWS, SIZES, WIDE, FamilyCase, TurnOff, bound, peer_logits
from support.models.forward_runs import distance, load, logits, prompt
from support.models.linear_attention_cases import LINEAR_CASES

pytest.importorskip("transformers", reason="transformers is not installed")
from safetensors.torch import load_file, save_file

SOURCE = os.environ.get("IMP_LLAMA_CPP_SOURCE", "")
# The converter gives Granite 4 without Mamba layers a rope, whatever the configuration says.
CASES = {name: case for name, case in (OTHER_CASES | LINEAR_CASES).items() if name != "granite_4_without_rope"}
QUICK = ("llama", "gemma4_e2b", "granite_4", "olmo3", "phi4_mini", "gpt_oss", "qwen3_5_grouped", "qwen3_next")
# The converter ignores the head size of these.
OF_PLAIN_HEADS = ("granite", "granite_4", "granitemoe", "granitemoeshared")
# Keys of published files that transformers does not save, or saves in another form, and the converter reads.
PUBLISHED: dict[str, dict[str, Any]] = {
    "cohere2": {"rotary_pct": 1.0},
    "granite_4": {"layer_types": ["attention"] * 3},
    "hunyuan": {"max_position_embeddings": 32768},
}


def normalized_routing(peer: Any) -> None:
    for layer in peer.model.layers:
        layer.mlp.gate.norm_topk_prob = True


# Facts of the directory that the converter leaves out of the file.
LOST: dict[str, TurnOff] = {
    "mistral": NO_WINDOWS["windows"],
    "mixtral": NO_WINDOWS["windows"],
    "starcoder2": NO_WINDOWS["windows"],
    "qwen3_moe_not_normalized": normalized_routing,
}


def case_of(name: str) -> FamilyCase:
    case = CASES[name]
    return dataclasses.replace(case, traits=case.traits | WIDE) if name in OF_PLAIN_HEADS else case


def transpose_experts(path: Path) -> None:
    """Stores the experts of Qwen 3 VL as published files do, and transformers no longer does."""
    tensors = {
        name: tensor.swapaxes(1, 2).contiguous() if ".experts." in name else tensor
        for name, tensor in load_file(path).items()
    }
    save_file(tensors, path, {"format": "pt"})


def save(name: str, directory: Path) -> Path:
    """Saves a case as transformers does, with what the converter needs besides."""
    peer = case_of(name).peer()
    peer.save_pretrained(directory)
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | PUBLISHED.get(name, {})))
    # The converter counts the tokens, to cut the embedding of Gemma.
    vocabulary = {str(token): token for token in range(peer.config.get_text_config().vocab_size)}
    if name == "qwen3_vl_moe":
        transpose_experts(directory / "model.safetensors")
    (directory / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))
    return directory


@pytest.fixture(scope="module")
def converted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the GGUF file of each case that this run tests: one process converts all of them."""
    if not SOURCE:
        pytest.skip("IMP_LLAMA_CPP_SOURCE names no source of llama.cpp")
    folder = tmp_path_factory.mktemp("converted")
    here = [
        item for item in request.session.items if isinstance(item, pytest.Function) and item.module is request.module
    ]
    faults = convert(
        Path(SOURCE), [save(name, folder / name) for name in {item.callspec.params["name"] for item in here}]
    )
    assert faults == ""
    return folder


@pytest.mark.sweep(quick=lambda name: name in QUICK)
@pytest.mark.parametrize("name", CASES)
def test_mod_5_mod_30_hon_1_a_converted_file_equals_transformers(name: str, converted: Path, tmp_path: Path) -> None:
    case = case_of(name)
    peer = case.peer()
    LOST.get(name, lambda _: None)(peer)
    tokens = prompt(100, peer.config.get_text_config().vocab_size)
    model = load(converted / f"{name}.gguf", tmp_path, kv_dtype="f32", max_context=SIZES["max_position_embeddings"])
    assert model.warnings == []
    got = logits(model, tokens)
    assert distance(got, peer_logits(peer, tokens)) < bound(peer)
    fact, turn_off = next(iter(case.off.items()))  # HON-1
    changed = case.peer()
    turn_off(changed)
    assert name in LOST or distance(got, peer_logits(changed, tokens)) > 4 * bound(peer), fact
