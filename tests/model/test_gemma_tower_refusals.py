"""A tower of Gemma 3 or 4 that cannot run is refused with its file, what is wrong, and what is expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from model.test_vision_refusals import key, set_key, tensor
from support.files.gguf_contents import GgufContents, Tensor
from support.files.refusals import assert_refused
from support.models.tiny_gemma3_tower import Gemma3Tower
from support.models.tiny_gemma4_tower import LAYERS, Gemma4Tower
from support.models.tiny_tower import TinyTower
from support.models.tiny_towers import open_tower

GEMMA3, GEMMA4 = Gemma3Tower(), Gemma4Tower()
Row = tuple[TinyTower, Callable[[GgufContents], None], str, tuple[str, ...]]


def add(name: str, shape: tuple[int, ...] = (48,)) -> Callable[[GgufContents], None]:
    return lambda contents: contents.tensors.update({name: Tensor(np.ones(shape, np.float32))})


PROJECTORS: dict[str, Row] = {
    "erf": (GEMMA3, key("clip.use_gelu", None), "MODEL_UNSUPPORTED", ("clip.use_gelu", "expected true")),
    "cells of 3": (GEMMA3, key("clip.vision.projector.scale_factor", 3), "MODEL_VALUE", ("a multiple of 3",)),
    "no cells": (GEMMA3, key("clip.vision.projector.scale_factor", 0), "MODEL_VALUE", ("scale_factor: 0, expected 1",)),
    "no norm of cells": (GEMMA3, tensor("mm.soft_emb_norm.weight", None), "MODEL_TENSOR",
     ("mm.soft_emb_norm.weight: missing, expected [48]",)),
    "inputs fastest": (GEMMA3, tensor("mm.input_projection.weight", lambda old: np.ascontiguousarray(old.T)),
     "MODEL_TENSOR", ("shape [48, 40], expected [40, 48]",)),
    "a bias of the projection": (GEMMA3, add("mm.input_projection.bias", (40,)), "MODEL_TENSOR",
     ("mm.input_projection.bias", "no such tensor in this tower")),
    "silu": (GEMMA4, key("clip.use_silu", True), "MODEL_VALUE", ("clip.use_silu: true, expected false",)),
    "one table": (GEMMA4, tensor("v.position_embd.weight", lambda old: old[0]), "MODEL_TENSOR",
     ("shape [48, 30], expected [48, 30, 2]",)),
    "no table": (GEMMA4, tensor("v.position_embd.weight", None), "MODEL_TENSOR",
     ("v.position_embd.weight: missing, expected [48, 10240, 2]",)),
    "a bias of patches": (GEMMA4, add("v.patch_embd.bias"), "MODEL_TENSOR", ("v.patch_embd.bias", "no such tensor")),
    "a norm behind the layers": (GEMMA4, add("v.post_ln.weight"), "MODEL_TENSOR", ("v.post_ln.weight",)),
    "factors alone": (GEMMA4, tensor("v.std_bias", None), "MODEL_TENSOR", ("v.std_bias: missing, expected [48]",)),
    "an empty range": (GEMMA4, tensor("v.blk.1.ffn_up.input_max", lambda old: old - 9), "MODEL_VALUE",
     ("v.blk.1.ffn_up.input_min: ", "expected a number that is at most the ", "v.blk.1.ffn_up.input_max")),
    "no number": (GEMMA4, tensor("v.blk.1.ffn_up.output_min", lambda old: old * np.nan), "MODEL_VALUE",
     ("v.blk.1.ffn_up.output_min: nan",)),
    "bounds of each output": (GEMMA4, tensor("v.blk.0.attn_q.input_min", lambda old: np.repeat(old, 48)),
     "MODEL_TENSOR", ("v.blk.0.attn_q.input_min: shape [48], expected one element",)),
    "bounds of the projection": (GEMMA4, add("mm.input_projection.input_min", (1,)), "MODEL_TENSOR",
     ("mm.input_projection.input_min", "no such tensor in this tower")),
    "heads of six": (GEMMA4, key("clip.vision.attention.head_count", 8), "MODEL_TENSOR",
     ("v.blk.0.attn_q_norm.weight: shape [16], expected [6]",)),
    "five heads": (GEMMA4, key("clip.vision.attention.head_count", 5), "MODEL_VALUE", ("5 heads",)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROJECTORS)
def test_vis_11_a_projector_that_does_not_fit(name: str, tmp_path: Path) -> None:
    tower, change, reason, words = PROJECTORS[name]

    def opener(path: Path) -> Any:
        return open_tower(path, tower)

    contents = tower.projector()
    opener(contents.write(tmp_path / "good.gguf"))
    change(contents)
    assert_refused(contents.write(tmp_path / "mmproj.gguf"), reason, *words, opener=opener)


# The file of a directory, a key, its value (None: the key is missing), and the error.
DIRECTORIES: list[tuple[TinyTower, str, str, Any, str, tuple[str, ...]]] = [
    (GEMMA3, "config.json", "mm_tokens_per_image", 15, "MODEL_CONFIG",
     ("mm_tokens_per_image: 15", "the square of a divisor of 8")),
    (GEMMA3, "config.json", "mm_tokens_per_image", 9, "MODEL_CONFIG", ("mm_tokens_per_image: 9",)),
    (GEMMA3, "config.json", "mm_tokens_per_image", 0, "MODEL_CONFIG", ("mm_tokens_per_image: 0",)),
    (GEMMA3, "config.json", "vision_config.hidden_act", "gelu", "MODEL_UNSUPPORTED", ("expected gelu_pytorch_tanh",)),
    (GEMMA3, "config.json", "vision_config.hidden_size", None, "MODEL_TENSOR", ("hidden_size (768 by default)",)),
    (GEMMA3, "preprocessor_config.json", "resample", 3, "MODEL_CONFIG", ("resample: 3, expected 2, the bilinear",)),
    (GEMMA3, "preprocessor_config.json", "size.height", 64, "MODEL_CONFIG", ("size.height: 64, expected 56",)),
    (GEMMA3, "preprocessor_config.json", "size.width", None, "MODEL_CONFIG", ("size.width",)),
    (GEMMA3, "preprocessor_config.json", "do_pan_and_scan", True, "MODEL_CONFIG", ("do_pan_and_scan: true",)),
    (GEMMA3, "preprocessor_config.json", "do_normalize", False, "MODEL_CONFIG", ("do_normalize: false",)),
    (GEMMA4, "config.json", "vision_config.hidden_activation", "silu", "MODEL_UNSUPPORTED", ("gelu_pytorch_tanh",)),
    (GEMMA4, "config.json", "vision_config.rope_parameters", {"rope_type": "yarn"}, "MODEL_UNSUPPORTED",
     ("rope_type: yarn, expected axial or default",)),
    (GEMMA4, "config.json", "vision_config.position_embedding_size", 31, "MODEL_TENSOR", ("expected [48, 31, 2]",)),
    (GEMMA4, "config.json", "vision_config.use_clipped_linears", False, "MODEL_TENSOR",
     ("put_m", "no such tensor in this tower")),
    (GEMMA4, "config.json", "vision_config.standardize", False, "MODEL_TENSOR", ("std_bias", "no such tensor")),
    (GEMMA4, "preprocessor_config.json", "resample", 2, "MODEL_CONFIG", ("resample: 2, expected 3, the bicubic",)),
    (GEMMA4, "preprocessor_config.json", "do_normalize", True, "MODEL_CONFIG", ("do_normalize: true, expected false",)),
    (GEMMA4, "preprocessor_config.json", "patch_size", 16, "MODEL_CONFIG", ("patch_size: 16, expected 4",)),
    (GEMMA4, "preprocessor_config.json", "pooling_kernel_size", 2, "MODEL_CONFIG", ("size: 2, expected 3",)),
    (GEMMA4, "preprocessor_config.json", "max_soft_tokens", 0, "MODEL_CONFIG", ("max_soft_tokens: 0, expected 1 to",)),
]  # fmt: skip


@pytest.mark.parametrize("row", DIRECTORIES, ids=lambda row: f"{row[0].model_type} {row[2]} {row[3]}")
def test_vis_11_a_directory_whose_tower_does_not_fit(
    row: tuple[TinyTower, str, str, Any, str, tuple[str, ...]], tmp_path: Path
) -> None:
    tower, file, dotted, value, reason, words = row
    folder = tower.write(tmp_path)
    open_tower(folder, tower)
    set_key(folder / file, dotted, value)
    with pytest.raises(_core.ModelError) as raised:
        open_tower(folder, tower)
    assert raised.value.reason == reason, raised.value.message
    for word in words:
        assert word in raised.value.message, raised.value.message


def test_vis_11_a_tower_with_products_within_bounds_needs_all_of_them(tmp_path: Path) -> None:
    tensors = GEMMA4.tensors()
    del tensors[f"{LAYERS}1.mlp.up_proj.output_max"]
    folder = GEMMA4.write(tmp_path, tensors)
    with pytest.raises(_core.ModelError, match=r"1\.mlp\.up_proj\.output_max: missing, expected one element"):
        open_tower(folder, GEMMA4)
