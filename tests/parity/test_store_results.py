"""The table of results is what `transformers` computes now, for the models that tests build without it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from support.files.hf_directory import saved_tensors, write_saved
from support.files.hf_weights import weights_of
from support.models.cell_peers import CELL_CASES, peer_rows
from support.models.family_cases import peer_logits
from support.models.forward_runs import load, logits
from support.models.tiny_towers import TOWERS
from support.models.tower_peers import encoded_by_peer, tower_peer
from support.oracles.stored_results import (
    FAMILIES,
    STORED,
    bound,
    entry,
    error,
    error_of_cells,
    error_of_cells_read,
    lacking,
    table,
    weights,
)

pytest.importorskip("transformers", reason="transformers is not installed")
from safetensors.numpy import load_file

from parity.store_results import layout_of, results, text_of


@pytest.mark.few(3)
@pytest.mark.parametrize("name", STORED)
def test_mod_30_hon_1_the_table_is_what_transformers_computes(name: str) -> None:
    """Another machine may round otherwise."""
    peer, stored = STORED[name].case.peer(), weights(name)
    found = weights_of(peer)
    assert layout_of(found) == table()["layouts"][entry(name)["layout"]]
    assert found.frequencies == stored.frequencies
    assert found.tensors.keys() == stored.tensors.keys()
    for tensor, values in found.tensors.items():
        np.testing.assert_array_equal(stored.tensors[tensor], values)
    expected = peer_logits(peer, STORED[name].tokens)
    assert error(name, expected) < bound(name)
    assert lacking(name, expected) < 2 * bound(name)
    assert error(name, np.roll(expected, 1, axis=0)) > 4 * bound(name)  # HON-1


@pytest.mark.few(3)
@pytest.mark.parametrize("name", STORED)
def test_mod_30_hub_9_the_directory_is_what_transformers_saves(name: str, tmp_path: Path) -> None:
    """Its configuration has fewer keys, and the same bits come of it."""
    peer, stored = STORED[name].case.peer(), weights(name)
    peer.save_pretrained(tmp_path / "saved")
    tensors, saved = saved_tensors(stored), load_file(tmp_path / "saved" / "model.safetensors")
    others = saved.keys() - tensors
    assert all(re.search("vision|visual|projector|connector", tensor) for tensor in others)
    for tensor, values in tensors.items():
        np.testing.assert_array_equal(saved[tensor], values)
    folders = (tmp_path / "saved", write_saved(stored, tmp_path / "stored"))
    tokens = STORED[name].tokens
    np.testing.assert_array_equal(*(logits(load(folder, folder, kv_dtype="f32"), tokens) for folder in folders))


@pytest.mark.parametrize("name", TOWERS)
def test_vis_2_hon_1_the_table_has_the_cells_that_transformers_computes(name: str) -> None:
    tower = TOWERS[name]
    cells = encoded_by_peer(tower_peer(tower), tower, tower.pixels())
    assert error_of_cells(name, cells) < tower.bound()
    assert error_of_cells(name, np.roll(cells, 1, axis=1)) > 4 * tower.bound()  # HON-1


@pytest.mark.parametrize("name", CELL_CASES)
def test_med_27_hon_1_the_table_has_what_transformers_reads_in_cells(name: str) -> None:
    rows = peer_rows(CELL_CASES[name].peer(), CELL_CASES[name].prompt)
    assert error_of_cells_read(name, rows) < bound(name)
    assert error_of_cells_read(name, np.roll(rows, 1, axis=1)) > 4 * bound(name)  # HON-1


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_hub_9_the_text_in_the_table_is_that_of_transformers(name: str) -> None:
    assert text_of(STORED[name], **table()["text"]) == entry(name)["text"]


def test_mod_30_the_generator_makes_an_entry_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.store_results.STORED", {"olmo2": STORED["olmo2"]})
    made = results()
    assert made["layouts"] == {"olmo2": table()["layouts"][entry("olmo2")["layout"]]}
    found = made["cases"]["olmo2"]
    assert (found["config"], found["text"]) == (entry("olmo2")["config"], entry("olmo2")["text"])
    assert np.shape(found["logits"]) == np.shape(entry("olmo2")["logits"])
    assert (made["text"], made.keys()) == (table()["text"], table().keys())
