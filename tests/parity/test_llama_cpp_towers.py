"""Projectors in GGUF give the cells of llama.cpp's library for images (libmtmd)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from support.models.forward_runs import rms_distance
from support.models.tiny_towers import PROJECTION, TinyTower, encoded, open_tower
from support.models.worded_models import write_worded
from support.oracles.forward_bounds import float16_products_bound, int8_activations_bound
from support.oracles.numpy_tower import NumpyTower

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

# llama.cpp divides images into tiles by itself: the longest side of these is one tile.
TOWERS = {
    "of 8 by 8": TinyTower(hidden_size=64, ffn_size=96, n_heads=2, longest_side=56),
    # Four pixels of each side belong to no patch.
    "of 6 by 6": TinyTower(tile_size=46, longest_side=46, shuffle=3, hidden_size=64, ffn_size=96, n_heads=2),
}
# llama.cpp rounds patches and activations to float16 in every file, and to int8 for matrices of 8 bits.
BOUNDS = {"f32": float16_products_bound, "f16": float16_products_bound, "q8_0": int8_activations_bound}


@pytest.fixture(scope="module", autouse=True)
def _started() -> None:
    from support.oracles import llama_cpp_peer, llama_cpp_towers

    llama_cpp_peer.start()
    llama_cpp_towers.start()


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 40 numbers, as the cells have."""
    path = tmp_path_factory.mktemp("text") / "m.gguf"
    write_worded(path, ["<image>"], family="llama")
    return path


def shuffled_by_columns(tower: TinyTower) -> dict[str, NDArray[np.float32]]:
    """The patches of a cell by columns."""
    tensors = tower.tensors()
    by_place = tensors[PROJECTION].reshape(tower.width, tower.shuffle, tower.shuffle, -1)
    tensors[PROJECTION] = by_place.swapaxes(1, 2).reshape(tower.width, -1)
    return tensors


@pytest.mark.parametrize("matrix_type", BOUNDS)
@pytest.mark.parametrize("name", TOWERS)
def test_vis_3_hon_1_a_projector_has_the_cells_of_llama_cpp(
    name: str, matrix_type: str, text_model: Path, tmp_path: Path
) -> None:
    from support.oracles.llama_cpp_towers import cells_of

    tower, pixels = TOWERS[name], TOWERS[name].pixels()
    path = tower.projector(matrix_type).write(tmp_path / "mmproj.gguf")
    got = encoded(open_tower(path, tower, kv_type=None), pixels)
    controls = (
        np.roll(got, 1, axis=0),
        NumpyTower(tower, tower.tensors()).encode(pixels[:, ::-1]),
        NumpyTower(tower, shuffled_by_columns(tower)).encode(pixels),
    )
    bound = BOUNDS[matrix_type](tower.as_decoder())
    images = cells_of(tower, path, text_model, pixels)
    assert len(images) == 2  # an overview, and the tile
    for expected in images:
        assert rms_distance(got, expected) < bound
        assert min(rms_distance(control, expected) for control in controls) > 4 * bound
