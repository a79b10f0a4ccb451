"""The towers of `transformers`, by family."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.hf_weights import fill
from support.models import gemma3_peer, gemma4_peer, idefics3_peer, qwen_peer
from support.models.tiny_gemma3_tower import Gemma3Tower
from support.models.tiny_gemma4_tower import Gemma4Tower
from support.models.tiny_idefics3_tower import Idefics3Tower
from support.models.tiny_qwen_tower import QwenTower
from support.models.tiny_tower import Pixels, TinyTower, TurnOff
from support.models.tiny_towers import TOWERS

_KINDS: dict[type[TinyTower], ModuleType] = {
    Gemma3Tower: gemma3_peer, Gemma4Tower: gemma4_peer, Idefics3Tower: idefics3_peer, QwenTower: qwen_peer,
}  # fmt: skip
_OF_BOUNDS = {"bounds of inputs", "bounds of outputs", "bounds of each product"}
# Facts that a tower of the table does not have, although its family does.
_WITHOUT = {
    "many patches": {"order of a cell"},  # of one patch
    "qwen3_5": {"norms of taps", "layers of taps", "corners of positions"},  # a table that is not interpolated
    "qwen3_5_moe": {"norms of taps", "layers of taps"},
    "gemma3 of many patches": {"mean of a square"},
    "gemma4 without bounds": _OF_BOUNDS,
    "gemma4 as it is": {"root of the width", "mean of cells", "factors of cells"},
}


def tower_peer(tower: TinyTower) -> Any:
    """Returns the whole model of the library, with the numbers of `TinyTower.tensors` in its tower."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = _KINDS[type(tower)].make(tower).eval()
    model.set_attn_implementation("eager")
    fill(model)
    return model


def image_processor(tower: TinyTower) -> Any:
    return _KINDS[type(tower)].image_processor(tower)


def encoded_by_peer(peer: Any, tower: TinyTower, pixels: Pixels) -> NDArray[np.float64]:
    """The library reads the pixels too."""
    import torch

    with torch.no_grad():
        cells: NDArray[np.float64] = _KINDS[type(tower)].encode(peer, tower, pixels).double().numpy()
    return cells


def facts_of(name: str) -> dict[str, TurnOff]:
    """How to turn each fact of a tower off."""
    off: dict[str, TurnOff] = _KINDS[type(TOWERS[name])].OFF
    return {fact: turn_off for fact, turn_off in off.items() if fact not in _WITHOUT.get(name, set())}
