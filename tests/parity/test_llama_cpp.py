"""GGUF models that llama.cpp quantized give the logits of llama.cpp."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from support.models.forward_runs import Cache, load, logits, prompt, rms_distance

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from support.models.llama_cpp_cases import FAMILIES, TYPES, bound, compare_errors, distance, source, written

# Cases of a plain run; --all runs all of them.
QUICK = (
    *("llama", "qwen2", "qwen35", "gemma3", "mixtral", "qwen3moe", "phi3", "cohere2", "mistral3", "apertus"),
    *("gemma4", "gpt-oss"),
)


@pytest.fixture(scope="module", autouse=True)
def _started() -> None:
    from support.oracles import llama_cpp_peer

    llama_cpp_peer.start()


@pytest.mark.sweep(quick=lambda family, file_type: family in QUICK and (family == "llama" or file_type == "f32"))
@pytest.mark.parametrize("file_type", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_llama_cpp(family: str, file_type: str, tmp_path: Path) -> None:
    from support.oracles import llama_cpp_peer

    model = source(family)
    path = written(model, file_type, tmp_path)
    tokens = prompt(60, model.vocab_size)
    loaded = load(path, tmp_path)
    types = {weight["dtype"] for weight in loaded.weights if weight["layout"] != "vector"}
    assert types >= TYPES[file_type]
    assert loaded.warnings == []
    assert distance(model, logits(loaded, tokens), llama_cpp_peer.logits(path, tokens)) < bound(model, file_type)


@pytest.mark.few(2)
@pytest.mark.parametrize("file_type", ["f32", "q8_0"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen35moe"])
def test_mod_5_llama_cpp_reads_fused_tensors_in_the_same_order(family: str, file_type: str, tmp_path: Path) -> None:
    from support.oracles import llama_cpp_peer

    model = source(family)
    path = written(model, file_type, tmp_path, fuses=True)
    tokens = prompt(60, model.vocab_size)
    got = logits(load(path, tmp_path), tokens)
    assert distance(model, got, llama_cpp_peer.logits(path, tokens)) < bound(model, file_type)


# `python tests/parity` compares the other families with Q8_0, too.
QUANTIZED = [
    (family, file_type) for file_type, families in (("q4_k_m", FAMILIES), ("q8_0", QUICK)) for family in families
]


@pytest.mark.long
@pytest.mark.parametrize(("family", "file_type"), QUANTIZED)
def test_mod_30_hon_1_errors_of_quantized_models_are_hardly_above_those_of_llama_cpp(
    family: str, file_type: str, tmp_path: Path
) -> None:
    found = compare_errors(family, file_type, tmp_path)
    assert found.is_near, found
    assert found.control_is_caught, found


@pytest.mark.few(2)
@pytest.mark.parametrize("file_type", TYPES)
def test_hon_1_other_weights_are_seen(file_type: str, tmp_path: Path) -> None:
    from support.oracles import llama_cpp_peer

    model = source("qwen2")
    tokens = prompt(60, model.vocab_size)
    (tmp_path / "other").mkdir()
    other = llama_cpp_peer.logits(written(source("qwen2", seed=1), file_type, tmp_path / "other"), tokens)
    got = logits(load(written(model, file_type, tmp_path), tmp_path), tokens)
    assert rms_distance(got, other) > 3 * bound(model, file_type)


@pytest.mark.long
@pytest.mark.parametrize("file_type", TYPES)
@pytest.mark.parametrize("change", ["used", "order"])
def test_mod_17_hon_1_another_routing_is_seen(change: str, file_type: str, tmp_path: Path) -> None:
    from support.oracles import llama_cpp_peer

    model = source("qwen3moe")
    tokens = prompt(60, model.vocab_size)
    path = written(model, file_type, tmp_path)
    (tmp_path / "other").mkdir()
    if change == "used":
        other = written(dataclasses.replace(model, n_experts_used=2), file_type, tmp_path / "other")
    else:
        other = written(model, file_type, tmp_path / "other", router_order=[1, 0, *range(2, 6)])
    got = logits(load(other, tmp_path), tokens)
    assert distance(model, got, llama_cpp_peer.logits(path, tokens)) > 3 * bound(model, file_type)


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_gen_21_hon_1_a_position_off_by_one_is_seen(family: str, tmp_path: Path) -> None:
    from support.oracles import llama_cpp_peer

    model = source(family)
    path = written(model, "f16", tmp_path)
    tokens = prompt(40, model.vocab_size)
    cache = Cache(load(path, tmp_path))
    blocks = cache.blocks(48)
    cache.run((tokens[:-1], 0, blocks))
    [right], [moved] = cache.run((tokens[-1:], 39, blocks)), cache.run((tokens[-1:], 40, blocks))
    expected = llama_cpp_peer.logits(path, tokens)[-1:]
    assert rms_distance(right, expected) < bound(model, "f16")
    assert rms_distance(moved, expected) > 3 * bound(model, "f16")
