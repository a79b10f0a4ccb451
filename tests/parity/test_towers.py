"""Vision towers give the cells of `transformers`, from a projector in GGUF and from what the library saves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.models.forward_runs import distance
from support.models.tiny_towers import TOWERS, encoded, open_tower

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from support.models.tower_peers import encoded_by_peer, facts_of, image_processor, tower_peer


@pytest.mark.parametrize("name", TOWERS)
def test_vis_2_hon_1_cells_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    tower, pixels = TOWERS[name], TOWERS[name].pixels()
    peer = tower_peer(tower)
    peer.save_pretrained(tmp_path / "saved")
    image_processor(tower).save_pretrained(tmp_path / "saved")
    saved = open_tower(tmp_path / "saved", tower)
    assert saved.warnings == []
    got = encoded(saved, pixels)
    assert distance(got, encoded_by_peer(peer, tower, pixels)) < tower.bound()
    projector = open_tower(tower.projector().write(tmp_path / "mmproj.gguf"), tower)
    np.testing.assert_array_equal(encoded(projector, pixels), got)


CONTROLS = [(fact, name) for name in TOWERS for fact in facts_of(name)]


@pytest.mark.parametrize(("fact", "name"), CONTROLS)
def test_vis_2_hon_1_a_tower_without_a_fact_is_something_else(fact: str, name: str, tmp_path: Path) -> None:
    tower, pixels = TOWERS[name], TOWERS[name].pixels()
    got = encoded(open_tower(tower.write(tmp_path), tower), pixels)
    changed = tower_peer(tower)
    facts_of(name)[fact](changed)
    assert distance(got, encoded_by_peer(changed, tower, pixels)) > 4 * tower.bound()
