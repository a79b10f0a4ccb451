"""Tiny vision towers of every family, and how to run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from imp_service import _core
from support.models.tiny_gemma3_tower import Gemma3Tower
from support.models.tiny_gemma4_tower import Gemma4Tower
from support.models.tiny_idefics3_tower import Idefics3Tower
from support.models.tiny_qwen_tower import QwenTower
from support.models.tiny_tower import Array, Pixels, TinyTower
from support.run.needed import TESTING, needs

TOWERS: dict[str, TinyTower] = {
    "smolvlm": Idefics3Tower(),
    # Three pixels of each side belong to no patch.
    "idefics3": Idefics3Tower("idefics3", tile_size=45, reduction=3, hidden_size=16, n_heads=2, n_layers=2),
    # Attention in two splits of keys, and one patch a cell.
    "many patches": Idefics3Tower(tile_size=51, patch_size=3, reduction=1, hidden_size=32, n_heads=2, n_layers=2),
    "qwen3_vl": QwenTower(),
    # One row of cells, and one tap, behind the second layer.
    "qwen3_vl_moe": QwenTower("qwen3_vl_moe", cells=(1, 6), taps=(1,)),
    # As many patches as places, on which they lie: a table is not interpolated.
    "qwen3_5": QwenTower("qwen3_5", cells=(3, 3), taps=(), n_layers=2),
    # Attention in two splits of keys.
    "qwen3_5_moe": QwenTower(
        "qwen3_5_moe", cells=(11, 6), taps=(), n_layers=2, hidden_size=32, n_heads=2, patch_size=3, max_pixels=70 * 36
    ),
    # Three pixels of each side belong to no patch.
    "gemma3": Gemma3Tower(tile_size=43, patch_size=5),
    # One patch a cell, and attention in two splits of keys.
    "gemma3 of many patches": Gemma3Tower(
        tile_size=51, patch_size=3, reduction=1, hidden_size=32, n_heads=2, n_layers=2
    ),
    "gemma4": Gemma4Tower(),
    "gemma4 without bounds": Gemma4Tower(cells=(3, 2), is_clipped=False),
    # Attention in two splits of keys.
    "gemma4 as it is": Gemma4Tower(
        cells=(6, 5), n_places=90, is_standardized=False, patch_size=3, hidden_size=32, n_heads=2, n_layers=2
    ),
}


def open_tower(path: Path, tower: TinyTower, **given: Any) -> Any:
    with needs(TESTING):
        import imp_service._testing as core
    return core.VisionTower(_core.open_model_file(path), **{"hidden_size": tower.width, "kv_type": "f32", **given})


def encoded(loaded: Any, pixels: Pixels, n_rows: int = 1 << 20) -> Array:
    """Encodes a part in pieces that are worth this many rows of the decoder."""
    loaded.begin(pixels)
    while not loaded.is_done:
        loaded.advance(n_rows)
    found: Array = loaded.encoding()
    return found
