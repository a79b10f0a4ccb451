"""Decoders read the cells of images as `transformers` does, from GGUF files and from what the library saves."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from imp_service import _testing as core
from support.engine.media_prompts import Picture, media_prompt
from support.models.cell_peers import CELL_CASES, peer_rows
from support.models.cell_prompts import GRIDS, CellReader
from support.models.family_cases import bound
from support.models.forward_runs import distance

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")


@functools.cache
def peer(name: str) -> Any:
    return CELL_CASES[name].peer()


@functools.cache
def expected(name: str, n_images: int) -> NDArray[np.float64]:
    return peer_rows(peer(name), CELL_CASES[name].prompt_of(n_images))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Returns a function that writes a model in both formats, once."""

    @functools.cache
    def written(name: str) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp(name)
        peer(name).save_pretrained(folder / "saved")
        return CELL_CASES[name].family.written(peer(name), folder / "m.gguf"), folder / "saved"

    return written


@pytest.mark.parametrize("n_images", range(len(GRIDS) + 1))
@pytest.mark.parametrize("name", CELL_CASES)
def test_med_16_med_18_med_27_a_decoder_reads_cells_as_transformers_does(name: str, n_images: int, files: Any) -> None:
    """Chunks of 7 rows and of all give the same bits."""
    given = CELL_CASES[name].prompt_of(n_images)
    for path in files(name):
        reader = CellReader(path)
        found = [reader.logits(given, chunk) for chunk in (128, 7)]
        np.testing.assert_array_equal(*found)
        assert distance(found[0], expected(name, n_images)) < bound(peer(name))


@pytest.mark.parametrize(("name", "fact"), [(name, fact) for name, case in CELL_CASES.items() for fact in case.off])
def test_med_16_med_18_med_27_hon_1_a_decoder_without_a_fact_is_another(name: str, fact: str, files: Any) -> None:
    given = CELL_CASES[name].prompt
    found = CellReader(files(name)[0]).logits(given, 128)
    changed = CELL_CASES[name].peer()
    CELL_CASES[name].off[fact](changed)
    assert distance(found, peer_rows(changed, given)) > 4 * bound(changed)


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5_that_sees"])
def test_med_18_positions_are_those_of_transformers(name: str) -> None:
    """Text and images in any mix, in each plane; the control swaps rows and columns."""
    rng = random.Random(name)
    merged = peer(name).config.vision_config.spatial_merge_size
    n_seen = 0
    for _ in range(200):
        ledger, types, grids = core.Ledger(), list[int](), list[tuple[int, int]]()
        for number in range(rng.randrange(5)):
            text = [5] * rng.randrange(1, 9)
            grid = rng.randrange(1, 8), rng.randrange(1, 8)
            ledger.add_text(text)
            ledger.add_media(media_prompt(Picture(number, (grid,))).spans[0], core.LAST_MEDIA_TOKEN - 1 - number)
            types += [0] * len(text) + [1] * grid[0] * grid[1]
            grids.append(grid)
        ledger.add_text([5] * 3)
        types += [0] * 3
        three = [[1, merged * rows, merged * columns] for rows, columns in grids]
        [wanted] = (
            peer(name)
            .model.get_rope_index(
                torch.zeros(1, len(types), dtype=torch.long),
                mm_token_type_ids=torch.tensor([types]),
                image_grid_thw=torch.tensor(three) if three else None,
            )[0]
            .swapaxes(0, 1)
        )
        got = [[ledger.position_of(cell, plane) for cell in range(len(types))] for plane in range(3)]
        assert got == wanted.tolist()
        assert ledger.next_position == wanted.max() + 1
        n_seen += got != wanted[[0, 2, 1]].tolist()  # HON-1
    assert n_seen > 100
