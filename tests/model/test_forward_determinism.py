"""The logits of a row depend on its sequence's tokens alone: not on chunks, other sequences, threads or the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _testing as core
from support.models.forward_runs import Cache, load, prompt
from support.models.tiny_models import FAMILIES, TinyModel, tiny

LONG = 530  # past two splits of 256 keys, and no multiple of a block
KINDS = {
    # A tied head tends to repeat its input.
    **{family: tiny(family, context=2048, tied=False) for family in FAMILIES},
    "command-r": tiny("command-r", context=2048, seed=1),
    "command-r_plus": tiny("command-r", context=2048, seed=1, head_norms=True),
    "llama_q8_0": tiny("llama", context=2048, hidden_size=64, ffn_size=96, head_dim=16, n_heads=4, dtype="q8_0"),
}


@pytest.fixture(scope="module", params=KINDS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[TinyModel, Any]:
    source = KINDS[request.param]
    return source, load(source, tmp_path_factory.mktemp("model"))


@pytest.mark.few(11)
def test_det_2_any_chunk_size(loaded: tuple[TinyModel, Any]) -> None:
    source, model = loaded
    tokens = prompt(LONG, source.vocab_size)
    whole = Cache(model).prefill(tokens)
    for chunk in (7, 16, 64, 512):
        assert np.array_equal(Cache(model).prefill(tokens, chunk), whole), chunk
    assert np.array_equal(Cache(model).prefill(tokens[:80], 1), whole[:80])


def test_det_1_any_batch_company_in_every_row(loaded: tuple[TinyModel, Any]) -> None:
    source, model = loaded
    tokens = prompt(40, source.vocab_size)
    alone = Cache(model).prefill(tokens)
    for n_others in (1, 7, 31):
        others = [prompt(5 + 3 * (i % 9), source.vocab_size, seed=100 + i) for i in range(n_others)]
        for place in {0, n_others // 2, n_others}:
            cache = Cache(model, n_blocks=128)
            parts = [(other, 0, cache.blocks(len(other))) for other in others]
            parts.insert(place, (tokens, 0, cache.blocks(40)))
            assert np.array_equal(cache.run(*parts)[place], alone), (n_others, place)


def test_det_1_decode_rows_beside_prefill_rows(loaded: tuple[TinyModel, Any]) -> None:
    source, model = loaded
    tokens, other = prompt(50, source.vocab_size), prompt(33, source.vocab_size, seed=2)
    whole = Cache(model).prefill(tokens)
    cache = Cache(model)
    blocks, other_blocks = cache.blocks(50), cache.blocks(33)
    cache.run((tokens[:49], 0, blocks))
    mixed = cache.run((other, 0, other_blocks), (tokens[49:], 49, blocks))
    assert np.array_equal(mixed[1], whole[49:])
    assert np.array_equal(mixed[0], Cache(model).prefill(other))


def test_det_6_several_rows_equal_one_at_a_time(loaded: tuple[TinyModel, Any]) -> None:
    source, model = loaded
    tokens = prompt(60, source.vocab_size)
    whole = Cache(model).prefill(tokens)
    for n_rows in range(1, 18):
        cache = Cache(model)
        blocks = cache.blocks(60)
        cache.run((tokens[: 60 - n_rows], 0, blocks))
        [rows] = cache.run((tokens[60 - n_rows :], 60 - n_rows, blocks))
        assert np.array_equal(rows, whole[60 - n_rows :]), n_rows


@pytest.mark.few(4)
def test_gen_23_gen_24_decoding_with_the_cache_equals_recomputing(loaded: tuple[TinyModel, Any]) -> None:
    """64 greedy tokens; the first two isolate the first true decode evaluation."""
    source, model = loaded
    tokens = prompt(21, source.vocab_size)
    cache = Cache(model)
    blocks = cache.blocks(21 + 64)
    row = cache.run((tokens, 0, blocks))[0][-1]
    for _ in range(64):
        tokens.append(int(row.argmax()))
        row = cache.run((tokens[-1:], len(tokens) - 1, blocks))[0][-1]
        recomputed = Cache(model).prefill(tokens)[-1]
        assert np.array_equal(row, recomputed), len(tokens)
    assert len(set(tokens[21:])) > 1


@pytest.mark.few(16)
def test_gen_24_stored_rows_do_not_depend_on_what_comes_after(loaded: tuple[TinyModel, Any]) -> None:
    """Three full blocks written by one prefill, by a longer one, and by prefill and 20 decode steps."""
    source, model = loaded
    tokens = prompt(90, source.vocab_size)
    layers = range(source.n_kv_layers)

    def stored(*parts: tuple[int, int]) -> list[list[bytes]]:
        cache = Cache(model)
        blocks = cache.blocks(90)
        for first, end in parts:
            cache.run((tokens[first:end], first, blocks))
        return [[cache.forward.block(layer, block) for block in blocks[:3]] for layer in layers]

    once = stored((0, 48))
    assert stored((0, 90)) == once
    assert stored((0, 28), *[(at, at + 1) for at in range(28, 48)]) == once
    for rows in once:
        assert len(set(rows)) == 3  # blocks of other tokens differ
    tokens[30], tokens[31] = tokens[31], tokens[30]
    swapped = stored((0, 48))
    assert all(swapped[layer][0] == once[layer][0] and swapped[layer][1] != once[layer][1] for layer in layers)


def test_gen_25_asking_for_logits_changes_nothing(loaded: tuple[TinyModel, Any]) -> None:
    source, model = loaded
    tokens = prompt(60, source.vocab_size)

    def last_row(asked: list[int]) -> Any:
        cache = Cache(model)
        blocks = cache.blocks(60)
        cache.forward.run([core.SequenceInput(tokens[:59], 0, blocks)], asked)
        return cache.run((tokens[59:], 59, blocks))[0]

    assert np.array_equal(last_row([]), last_row(list(range(59))))


def test_det_16_stale_scratch_changes_nothing(loaded: tuple[TinyModel, Any]) -> None:
    source, model = loaded
    tokens, stale = prompt(60, source.vocab_size), prompt(200, source.vocab_size, seed=9)
    runs = []
    for value in (0x00, 0x01, 0xFF):  # zeros, ones, NaN
        cache = Cache(model)
        cache.prefill(stale)
        cache.forward.fill_scratch(value)
        runs.append(cache.prefill(tokens))
    assert np.array_equal(runs[0], runs[1])
    assert np.array_equal(runs[0], runs[2])


@pytest.mark.parametrize("name", ["qwen3", "llama_q8_0"])
def test_det_4_any_number_of_threads(name: str, tmp_path: Path) -> None:
    source = KINDS[name]
    tokens = prompt(LONG, source.vocab_size)
    first, *others = (Cache(load(source, tmp_path, threads=threads)).prefill(tokens, 200) for threads in (1, 2, 3))
    assert all(np.array_equal(other, first) for other in others)


def test_det_8_two_models_of_one_file_agree(tmp_path: Path) -> None:
    source = KINDS["gemma2"]
    path = source.write(tmp_path / "m.gguf")
    first, second = load(path, tmp_path), load(path, tmp_path)
    tokens = prompt(60, source.vocab_size)
    assert np.array_equal(Cache(first).prefill(tokens), Cache(second).prefill(tokens))


def test_mod_21_models_come_and_go(tmp_path: Path) -> None:
    source = KINDS["gemma3"]
    path = source.write(tmp_path / "m.gguf")
    tokens = prompt(30, source.vocab_size)
    outputs = [Cache(load(path, tmp_path)).prefill(tokens) for _ in range(20)]
    assert all(np.array_equal(output, outputs[0]) for output in outputs)
