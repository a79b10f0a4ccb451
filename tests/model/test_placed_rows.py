"""Rows of an encoding in a decoder's batch: in place of embeddings, with keys ahead, and with several positions."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.devices import GPU_KINDS
from support.models.forward_runs import Cache, distance, logits, prompt
from support.models.media_runs import MediaRun, embeddings, load_for_media
from support.models.tiny_heads import TinyNextN
from support.models.tiny_models import FAMILIES, TinyModel, tiny
from support.oracles.forward_bounds import float32_bound

N, FIRST, END = 60, 11, 47  # tokens, and the cells of a span
CHUNKS = (0, 1, 7, 16)
# Every token of the span; no token elsewhere.
IN_SPAN = prompt(END - FIRST, 21, seed=3)
ROW_TOKEN = 22


def tokens_of(source: TinyModel) -> tuple[list[int], list[int]]:
    """Returns a text whose span has tokens below 21 that occur nowhere else, and the same with the row token there."""
    text = [23 + token for token in prompt(N, source.vocab_size - 23)]
    return (
        text[:FIRST] + IN_SPAN + text[END:],
        text[:FIRST] + [ROW_TOKEN] * (END - FIRST) + text[END:],
    )


def with_one_table_row(source: TinyModel, path: Path) -> Path:
    """Writes the model with the row token's embeddings of layers, where it has some, for all tokens of the span."""
    contents = source.contents()
    if table := contents.tensors.get("per_layer_token_embd.weight"):
        table.values[:21] = table.values[ROW_TOKEN]
    return contents.write(path)


@pytest.mark.few(8)
@pytest.mark.parametrize("family", FAMILIES)
def test_med_25_placed_embeddings_equal_the_tokens(family: str, tmp_path: Path) -> None:
    """Also where the embedding is scaled, and where layers have embeddings: those are the row token's."""
    source = tiny(family)
    text, with_cells = tokens_of(source)
    model = load_for_media(with_one_table_row(source, tmp_path / "m.gguf"), tmp_path)
    values = embeddings(model, source, IN_SPAN)
    expected = logits(model, text)
    for chunk in CHUNKS:
        assert_same_bits(MediaRun(model, with_cells, placed=(FIRST, values)).prefill(chunk), expected)
    # Negative controls: one element of the last row, the rows in another order, the row token's own embedding.
    values[-1, 3] += np.float32(0.5)
    changed = MediaRun(model, with_cells, placed=(FIRST, values)).prefill()
    assert_same_bits(changed[: END - 1], expected[: END - 1])
    assert (changed[END - 1 :] != expected[END - 1 :]).any(axis=1).all()
    values = embeddings(model, source, IN_SPAN)
    for wrong in ((FIRST, values[::-1].copy()), None):
        assert (MediaRun(model, with_cells, placed=wrong).prefill()[FIRST:] != expected[FIRST:]).any(axis=1).all()


def test_med_25_layers_read_the_row_tokens_own_embeddings(tmp_path: Path) -> None:
    """The control of the test above: with a table row of its own for each token, the row token gives other logits."""
    source = tiny("gemma4")
    text, with_cells = tokens_of(source)
    model = load_for_media(source, tmp_path)
    placed = (FIRST, embeddings(model, source, IN_SPAN))
    expected = logits(model, text)
    assert_same_bits(MediaRun(model, text, placed=placed).prefill(), expected)
    other = MediaRun(model, with_cells, placed=placed).prefill()
    assert_same_bits(other[:FIRST], expected[:FIRST])
    assert (other[FIRST:] != expected[FIRST:]).any(axis=1).all()


def test_med_25_rows_of_several_sequences_from_wider_matrices(tmp_path: Path) -> None:
    """In any order, from matrices whose further columns are no part of the row."""
    source = tiny("llama")
    model = load_for_media(source, tmp_path)
    first, second = prompt(20, source.vocab_size), prompt(9, source.vocab_size, seed=2)
    cache = Cache(model)
    expected = cache.run((first, 0, cache.blocks(20)), (second, 0, cache.blocks(9)))
    order = np.random.default_rng(1).permutation(source.vocab_size)
    table = embeddings(model, source, order.tolist())
    wide = np.concatenate([table, np.full((len(table), 40), np.nan, np.float32)], axis=1)
    row_of = {int(token): row for row, token in enumerate(order)}
    placed = [
        (3, wide, [row_of[token] for token in first[3:7]]),
        (20, table, [row_of[token] for token in second[:5]]),
        (25, wide, [row_of[token] for token in second[5:]]),
    ]
    parts = [
        core.SequenceInput(first[:3] + [0] * 4 + first[7:], 0, cache.blocks(20)),
        core.SequenceInput([0] * 9, 0, cache.blocks(9)),
    ]
    assert_same_bits(cache.forward.run(parts, list(range(29)), placed), np.concatenate(expected))


@pytest.mark.parametrize(
    ("first_row", "width", "takes_media"), [(-1, 40, True), (2, 40, True), (0, 39, True), (0, 40, False)]
)
def test_med_25_rows_that_do_not_fit_the_batch_are_refused(
    first_row: int, width: int, takes_media: bool, tmp_path: Path
) -> None:
    source = tiny("llama")
    cache = Cache(load_for_media(source, tmp_path, takes_media=takes_media))
    assert source.hidden_size == 40
    part = core.SequenceInput([1, 2, 3], 0, cache.blocks(3))
    values = np.zeros((2, width), np.float32)
    with pytest.raises(_core.InternalError, match=r"decoder\.cpp"):
        cache.forward.run([part], [2], [(first_row, values, [0, 1])])


ENDS = [END if FIRST <= cell < END else cell + 1 for cell in range(N)]


@pytest.mark.parametrize(
    ("family", "changes", "layers_ahead"),
    [
        ("llama", {}, [0, 1, 2]),
        ("gemma3", {"window": 16, "n_layers": 6, "pattern": 3}, range(6)),
        ("gemma3", {"window": 16, "n_layers": 6, "pattern": 3}, [0, 1, 3, 4]),
    ],
)
def test_med_16_rows_of_a_span_see_each_other_in_some_layers(
    family: str, changes: dict[str, Any], layers_ahead: list[int], tmp_path: Path
) -> None:
    source = tiny(family, **changes)
    tokens = prompt(N, source.vocab_size)
    model = load_for_media(source, tmp_path, layers_ahead=layers_ahead, kv_dtype="f32")
    run = MediaRun(model, tokens, ends=ENDS)
    got = run.prefill()
    oracle = source.oracle()
    layers = [
        dataclasses.replace(layer, sees_ahead=number in layers_ahead) for number, layer in enumerate(oracle.layers)
    ]
    ahead = dataclasses.replace(oracle, layers=layers, ends=ENDS)
    assert distance(got, ahead.logits(tokens)) < float32_bound(source)
    # Negative controls: causal, and an end one cell earlier.
    earlier = [min(end, END - 1) if cell < END - 1 else end for cell, end in enumerate(ENDS)]
    for wrong in (oracle, dataclasses.replace(ahead, ends=earlier)):
        assert distance(got, wrong.logits(tokens)) > 10 * float32_bound(source)
    # What is left of the span after any part of it that is cached gives the same bits.
    for begin in (FIRST, FIRST + 1, 30, END - 1, END):
        assert_same_bits(run.rows(begin, N), got[begin:])
    assert_same_bits(MediaRun(model, tokens).prefill(7), logits(model, tokens))


def test_med_16_the_last_cell_of_a_span_changes_its_first_row_and_no_text_before(tmp_path: Path) -> None:
    source = tiny("gemma3", window=16)
    model = load_for_media(source, tmp_path, layers_ahead=range(source.n_layers))
    with_cells = tokens_of(source)[1]
    values = embeddings(model, source, IN_SPAN)
    found = MediaRun(model, with_cells, placed=(FIRST, values), ends=ENDS).prefill()
    values[-1, 0] += np.float32(1)
    changed = MediaRun(model, with_cells, placed=(FIRST, values), ends=ENDS).prefill()
    assert_same_bits(changed[:FIRST], found[:FIRST])
    assert (changed[FIRST:] != found[FIRST:]).any(axis=1).all()


PLANES = [0, 1, 2, 0]  # of the pairs of a head of 8


def positions_around(first: int, rows: int, columns: int, n: int) -> np.ndarray:
    """Returns [3, n] positions of a text with a picture in it: the text goes on after its longer side."""
    cells = np.arange(rows * columns)
    before = np.tile(np.arange(first), (3, 1))
    inside = first + np.stack([0 * cells, cells // columns, cells % columns])
    after = first + max(rows, columns) + np.tile(np.arange(n - first - rows * columns), (3, 1))
    return np.concatenate([before, inside, after], axis=1)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_med_18_pairs_turn_by_rows_and_columns(family: str, tmp_path: Path) -> None:
    source = tiny(family)
    tokens = prompt(N, source.vocab_size)
    model = load_for_media(source, tmp_path, planes=PLANES, kv_dtype="f32")
    positions = positions_around(FIRST, 4, 9, N)
    got = MediaRun(model, tokens, positions=positions.tolist()).prefill(7)
    oracle = source.oracle()
    turned = [
        dataclasses.replace(layer, rope=dataclasses.replace(layer.rope, planes=tuple(PLANES)))
        for layer in oracle.layers
    ]
    by_planes = dataclasses.replace(oracle, layers=turned)
    bound = float32_bound(source)
    assert distance(got, by_planes.logits(tokens, positions.astype(np.float64))) < bound
    # Negative controls: rows for columns, and the positions of text.
    swapped = positions[[0, 2, 1]].astype(np.float64)
    assert distance(got, by_planes.logits(tokens, swapped)) > 10 * bound
    assert distance(got, oracle.logits(tokens)) > 10 * bound


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen35"])
def test_med_18_text_has_the_bits_of_a_model_with_one_plane(family: str, tmp_path: Path) -> None:
    source = tiny(family)
    n_pairs = (source.rope_dims or source.head_dim) // 2
    tokens = prompt(N, source.vocab_size)
    planes = [pair % 3 for pair in range(n_pairs)]
    plain = load_for_media(source, tmp_path, planes=[])
    expected = logits(plain, tokens)
    for takes_media in (True, False):
        model = load_for_media(source, tmp_path, planes=planes, takes_media=takes_media)
        cache = Cache(model)
        assert cache.forward.n_planes == (3 if takes_media else 1)
        assert_same_bits(cache.prefill(tokens, 16), expected)
        assert (cache.forward.launches["rope_planes"] > 0) == takes_media
        trials = [each.try_cache_types(tokens, n_judged=20, kv_dtype="f16") for each in (model, plain)]
        assert trials[0].divergence == trials[1].divergence


@pytest.mark.parametrize(
    ("planes", "message"),
    [([0, 1, 2], "3 planes, expected one for each of the 4 pairs"), ([0, 3, 1, 1], "3, expected less than 3")],
)
def test_med_18_planes_that_do_not_fit_are_refused(planes: list[int], message: str, tmp_path: Path) -> None:
    with pytest.raises(_core.ModelError, match=f"rope_planes: {message}") as info:
        load_for_media(tiny("llama"), tmp_path, planes=planes)
    assert info.value.reason == "MODEL_CONFIG"


def test_med_18_spc_20_a_head_turns_by_the_planes_of_its_target(tmp_path: Path) -> None:
    head = TinyNextN(tiny("qwen3"))
    path = head.write(tmp_path / "m.gguf")
    tokens = prompt(30, head.model.vocab_size)

    def guesses(model: Any) -> np.ndarray:
        forward = core.HeadForward(model, 8)
        forward.evaluate(tokens[:-1], 0)
        forward.observe(tokens[1:], 0, range(29))
        rows = [forward.guess([28], [28])]
        forward.observe_guesses(7, 29, 0)
        return np.concatenate([*rows, forward.guess([0], [29])])

    planes = [pair % 3 for pair in range(head.model.head_dim // 2)]
    assert_same_bits(
        guesses(load_for_media(path, tmp_path, planes=planes, with_head=True)),
        guesses(load_for_media(path, tmp_path, with_head=True)),
    )


@pytest.mark.parametrize("device", GPU_KINDS)
def test_med_25_placed_rows_on_a_gpu_equal_the_tokens(device: str, tmp_path: Path) -> None:
    """Also in steps of one row, which a GPU captures and replays if nothing is placed."""
    source = tiny("qwen3", n_layers=2)
    tokens = prompt(14, source.vocab_size)
    model = load_for_media(source, tmp_path, device=device)
    values = embeddings(model, source, tokens[2:12])
    cells = tokens[:2] + [0] * 10 + tokens[12:]
    assert_same_bits(MediaRun(model, cells, placed=(2, values)).prefill(), logits(model, tokens))
    one_at_a_time = Cache(model).prefill(tokens, 1)
    assert_same_bits(MediaRun(model, cells, placed=(2, values)).prefill(1), one_at_a_time)
    values[4:] = values[3:-1]
    assert not np.array_equal(MediaRun(model, cells, placed=(2, values)).prefill(1), one_at_a_time)


@pytest.mark.parametrize(
    ("op", "given"), [("attend_ahead", {"layers_ahead": [0]}), ("rope_planes", {"planes": PLANES})]
)
@pytest.mark.parametrize("device", GPU_KINDS)
def test_mod_7_only_media_need_the_ops_that_gpus_lack(
    device: str, op: str, given: dict[str, list[int]], tmp_path: Path
) -> None:
    source = tiny("llama", n_layers=1)
    with pytest.raises(_core.InvalidArgument, match=f"cuda lacks the op {op}, which the model needs; cpu has it"):
        load_for_media(source, tmp_path, device=device, **given)
    tokens = prompt(5, source.vocab_size)
    text = load_for_media(source, tmp_path, device=device, takes_media=False, **given)
    assert_same_bits(logits(text, tokens), logits(load_for_media(source, tmp_path, device=device), tokens))
