"""Projectors in GGUF give the cells of llama.cpp's library for images (libmtmd)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from support.models.forward_runs import rms_distance
from support.models.tiny_gemma3_tower import Gemma3Tower
from support.models.tiny_gemma4_tower import Gemma4Tower
from support.models.tiny_idefics3_tower import Idefics3Tower
from support.models.tiny_qwen_tower import QwenTower
from support.models.tiny_tower import TinyTower
from support.models.tiny_towers import encoded, open_tower
from support.models.worded_models import write_worded
from support.oracles.forward_bounds import float16_products_bound, int8_activations_bound
from support.oracles.numpy_tower import numpy_tower

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

_BLOCKS: dict[str, Any] = {"hidden_size": 64, "ffn_size": 96, "n_heads": 2}
# llama.cpp divides images into tiles by itself: the longest side of these is one tile.
TOWERS: dict[str, TinyTower] = {
    "smolvlm": Idefics3Tower(longest_side=56, **_BLOCKS),
    # Four pixels of each side belong to no patch.
    "idefics3": Idefics3Tower(tile_size=46, longest_side=46, reduction=3, **_BLOCKS),
    # Positions between those of a table, and on them.
    "qwen3_vl": QwenTower(slice_width=64, **_BLOCKS),
    "qwen3_5": QwenTower("qwen3_5", cells=(3, 3), taps=(), slice_width=64, **_BLOCKS),
    "gemma3": Gemma3Tower(**_BLOCKS),
    # llama.cpp resizes smaller images to 70 cells.
    "gemma4": Gemma4Tower(cells=(9, 8), n_places=240, **_BLOCKS),
    "gemma4 without bounds": Gemma4Tower(
        cells=(10, 7), n_places=240, is_clipped=False, is_standardized=False, **_BLOCKS
    ),
}
# llama.cpp rounds patches and activations to float16 in every file, and to int8 for matrices of 8 bits.
# Gemma 4 multiplies two products in its feed-forward, whose errors add up.
BOUNDS = {"f32": float16_products_bound, "f16": float16_products_bound, "q8_0": int8_activations_bound}


@pytest.fixture(scope="module", autouse=True)
def _started() -> None:
    from support.oracles import llama_cpp_peer, llama_cpp_towers

    llama_cpp_peer.start()
    llama_cpp_towers.start()


def in_squares_by_columns(tower: TinyTower) -> dict[str, NDArray[np.float32]]:
    """The patches of a cell by columns."""
    tensors, by = tower.tensors(), tower.reduction
    weight = tensors[tower.product_of_squares]
    tensors[tower.product_of_squares] = weight.reshape(len(weight), by, by, -1).swapaxes(1, 2).reshape(weight.shape)
    return tensors


@pytest.mark.parametrize("matrix_type", BOUNDS)
@pytest.mark.parametrize("name", TOWERS)
def test_vis_3_hon_1_a_projector_has_the_cells_of_llama_cpp(name: str, matrix_type: str, tmp_path: Path) -> None:
    from support.oracles.llama_cpp_towers import cells_of

    tower, pixels = TOWERS[name], TOWERS[name].pixels()
    contents, model = tower.projector(matrix_type), tmp_path / "m.gguf"
    contents.keys["clip.use_gelu"] = True  # Gemma 4 needs no such key, but llama.cpp does
    path = contents.write(tmp_path / "mmproj.gguf")
    write_worded(model, ["<image>"], family="llama", hidden_size=tower.width)
    got = encoded(open_tower(path, tower, kv_type=None), pixels)
    controls = [np.roll(got, 1, axis=0), numpy_tower(tower, tower.tensors()).encode(pixels[:, ::-1])]
    if tower.product_of_squares:
        controls.append(numpy_tower(tower, in_squares_by_columns(tower)).encode(pixels))
    bound = BOUNDS[matrix_type](tower.as_decoder()) * (2 if isinstance(tower, Gemma4Tower) else 1)
    images = cells_of(tower, path, model, pixels)
    assert len(images) == (2 if isinstance(tower, Idefics3Tower) else 1)  # an overview, and the tile
    for expected in images:
        assert rms_distance(got, expected) < bound
        assert min(rms_distance(control, expected) for control in controls) > 2.5 * bound
