"""Gemma 4's assistant reads its model's cells, writes none, and guesses all tokens of a round at one position."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _testing
from model.test_draft_head import CHAIN, N_TOKENS, off
from support.kernels.bits import assert_same_bits
from support.models.forward_runs import logits, prompt
from support.models.head_runs import HEADS, bound_of, guesses, load_head, load_path
from support.models.tiny_assistant import NumpyAssistant, TinyAssistant, tiny_assistant

HEAD = tiny_assistant()
CLUSTERED = dataclasses.replace(HEAD, n_clusters=17)
TOKENS = prompt(N_TOKENS, HEAD.model.vocab_size)


def load_directory(head: TinyAssistant, folder: Path, **given: Any) -> Any:
    return load_path(head.model.write(folder / "m.gguf"), head.write_directory(folder / "head"), **given)


@pytest.mark.parametrize("head", [HEAD, CLUSTERED], ids=["all tokens", "clusters"])
def test_spd_13_assistants_of_directories_equal_their_formula(head: TinyAssistant, tmp_path: Path) -> None:
    """Small ones score the tokens of a few clusters only."""
    model = load_directory(head, tmp_path)
    assert model.head == "assistant" and model.warnings == []
    assert off(guesses(model, TOKENS, CHAIN), head.oracle().guesses(TOKENS, CHAIN)) < bound_of(head)


def test_spd_13_both_formats_give_the_same_bits(tmp_path: Path) -> None:
    directory = guesses(load_directory(HEAD, tmp_path), TOKENS, CHAIN)
    assert_same_bits(guesses(load_head(HEAD, tmp_path), TOKENS, CHAIN), directory)


@pytest.mark.parametrize("n_tokens", [2, 7, 8, 9, 16, 17])
def test_spd_13_sliding_layers_see_as_many_cells_as_their_window(n_tokens: int, tmp_path: Path) -> None:
    tokens = TOKENS[:n_tokens]
    got = guesses(load_head(HEAD, tmp_path), tokens, CHAIN)
    assert off(got, HEAD.oracle().guesses(tokens, CHAIN)) < bound_of(HEAD)


def changed(**fields: Any) -> Callable[[NumpyAssistant], NumpyAssistant]:
    return lambda oracle: dataclasses.replace(oracle, **fields)


def without_projection(oracle: NumpyAssistant) -> NumpyAssistant:
    """Further guesses read the model's hidden row again."""
    return dataclasses.replace(oracle, post=np.zeros_like(oracle.post))


def with_window(oracle: NumpyAssistant) -> NumpyAssistant:
    layers = [dataclasses.replace(each, window=each.window - 1 if each.window else 0) for each in oracle.layers.layers]
    return dataclasses.replace(oracle, layers=dataclasses.replace(oracle.layers, layers=layers))


CONTROLS: dict[str, Callable[[NumpyAssistant], NumpyAssistant]] = {
    "another sliding layer": changed(sources=(0, 2, 3)),
    "another full layer": changed(sources=(2, 2, 1)),
    "the position of the last cell": changed(ahead=-1),
    "a position for each guess": changed(advances=True),
    "the order of the halves": changed(hidden_comes_first=True),
    "no projection": without_projection,
    "a smaller window": with_window,
}


@pytest.mark.parametrize("control", CONTROLS)
def test_spd_13_hon_1_another_formula_is_seen(control: str, tmp_path: Path) -> None:
    got = guesses(load_head(HEAD, tmp_path), TOKENS, CHAIN)
    assert off(got, CONTROLS[control](HEAD.oracle()).guesses(TOKENS, CHAIN)) > 0.005


def test_spd_13_hon_1_another_number_of_clusters_is_seen(tmp_path: Path) -> None:
    got = guesses(load_directory(CLUSTERED, tmp_path), TOKENS, CHAIN)
    expected = dataclasses.replace(CLUSTERED.oracle(), n_used=3).guesses(TOKENS, CHAIN)
    assert not np.array_equal(got > -1e29, expected > -1e29)


def cells(head: Any, n_layers: int) -> list[bytes]:
    return [head.block(layer, block) for layer in range(n_layers) for block in range(8)]


@pytest.mark.parametrize("kv_dtype", ["f32", "bf16"])
def test_spd_13_guesses_change_no_bit_of_the_cells(kv_dtype: str, tmp_path: Path) -> None:
    model = load_head(HEAD, tmp_path, kv_dtype=kv_dtype)
    head = _testing.HeadForward(model, 8)
    head.evaluate(TOKENS[:-1], 0)
    before = cells(head, HEAD.model.n_kv_layers)
    n = len(TOKENS) - 1
    head.observe([TOKENS[-1]], n - 1, [n - 1])
    for token in CHAIN:
        head.guess([0], [n], [n - 1])
        head.observe_guesses(token, n, 0)
    assert cells(head, HEAD.model.n_kv_layers) == before
    head.evaluate([TOKENS[-1]], n)
    assert cells(head, HEAD.model.n_kv_layers) != before, "a step of the model is seen"


@pytest.mark.parametrize("kv_dtype", ["f16", "bf16", "q8_0", "rot8", "rot8/rot4"])
def test_spd_13_the_cells_may_have_any_type(kv_dtype: str, tmp_path: Path) -> None:
    """The guesses move no further from those over float32 cells than the model's own logits do."""
    head = tiny_assistant(head_dim=32)
    plain, other = (load_head(head, tmp_path, kv_dtype=dtype) for dtype in ("f32", kv_dtype))
    tokens = prompt(N_TOKENS, head.model.vocab_size)
    moved, moved_logits = (
        float(np.abs(b - a).max() / np.sqrt(np.mean(a**2)))
        for a, b in (
            (guesses(plain, tokens, []), guesses(other, tokens, [])),
            (logits(plain, tokens), logits(other, tokens)),
        )
    )
    assert 0 < moved < max(4 * moved_logits, 1e-3)


def test_spd_13_the_memory_plan_has_no_cache_for_it(tmp_path: Path) -> None:
    sizes = [load_head(HEAD, tmp_path, kv_bytes=n).memory["items"]["head"] for n in (1 << 18, 1 << 20)]
    assert sizes[0] == sizes[1]
    n_weights = sum(tensor.values.nbytes for tensor in HEAD.tensors().values())
    assert sizes[0] > n_weights


def test_spd_13_an_assistant_changes_no_bit_of_the_logits(tmp_path: Path) -> None:
    plain = load_path(HEAD.model.write(tmp_path / "plain.gguf"))
    assert (plain.head, load_head(HEAD, tmp_path).head) == (None, "assistant")
    assert_same_bits(logits(load_head(HEAD, tmp_path), TOKENS), logits(plain, TOKENS))


def test_spd_13_one_that_reads_a_model_without_shared_layers_equals_its_formula(tmp_path: Path) -> None:
    """There the last two layers are those that it reads."""
    head = HEADS["assistant_of_a_dense_model"]
    assert isinstance(head, TinyAssistant) and head.sources() == (2, 2, 3)
    tokens = prompt(23, head.model.vocab_size)
    assert off(guesses(load_head(head, tmp_path), tokens, CHAIN), head.oracle().guesses(tokens, CHAIN)) < bound_of(head)
