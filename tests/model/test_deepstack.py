"""DeepStack: after the first layers, the rows of cells get further parts of their encoding."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from imp_service import _testing as core
from model.test_placed_rows import CHUNKS, END, FIRST, tokens_of
from support.kernels.bits import assert_same_bits
from support.models.forward_runs import Cache, logits, prompt
from support.models.media_runs import MediaRun, load_for_media
from support.models.tiny_models import tiny


def rows_with_parts(n_rows: int, n_parts: int) -> np.ndarray:
    """Returns encodings of a tiny Qwen 3 VL, with a part for each of its layers of DeepStack."""
    return np.random.default_rng(5).normal(size=(n_rows, 40 * (1 + n_parts))).astype(np.float32)


def test_med_27_deepstack_changes_no_bit_of_the_text_before_and_none_by_chunks(tmp_path: Path) -> None:
    source = tiny("qwen3vl", n_layers=4)
    model = load_for_media(source, tmp_path)
    tokens = tokens_of(source)[1]
    values = rows_with_parts(END - FIRST, 3)
    found = MediaRun(model, tokens, placed=(FIRST, values)).prefill()
    for chunk in CHUNKS:
        assert_same_bits(MediaRun(model, tokens, placed=(FIRST, values)).prefill(chunk), found)
    assert_same_bits(found[:FIRST], logits(model, tokens)[:FIRST])
    for part in (1, 2, 3):
        changed = values.copy()
        changed[0, 40 * part] += np.float32(0.5)
        other = MediaRun(model, tokens, placed=(FIRST, changed)).prefill()
        assert_same_bits(other[:FIRST], found[:FIRST])
        assert (other[FIRST:] != found[FIRST:]).any(axis=1).all()


def test_med_27_deepstack_leaves_other_sequences_of_a_batch_as_they_are(tmp_path: Path) -> None:
    source = tiny("qwen3vl")
    cache = Cache(load_for_media(source, tmp_path))
    first, second = prompt(20, source.vocab_size), prompt(9, source.vocab_size, seed=2)
    alone = cache.run((first, 0, cache.blocks(20)), (second, 0, cache.blocks(9)))
    parts = [
        core.SequenceInput(first, 0, cache.blocks(20)),
        core.SequenceInput(second[:4] + [0] * 5, 0, cache.blocks(9)),
    ]
    placed = [(24, rows_with_parts(5, 3), list(range(5)))]
    together = cache.forward.run(parts, list(range(29)), placed)
    assert_same_bits(together[:24], np.concatenate([alone[0], alone[1][:4]]))
    assert (together[24:] != alone[1][4:]).any(axis=1).all()
