"""A tower that cannot run is refused with its file, what is wrong, and what is expected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from support.files.gguf_contents import GgufContents, Tensor
from support.files.refusals import assert_refused
from support.models.tiny_models import tiny
from support.models.tiny_tower import TinyTower
from support.models.tiny_towers import TOWERS, open_tower

TOWER, QWEN = TOWERS["smolvlm"], TOWERS["qwen3_vl"]


def opener(path: Path) -> Any:
    return open_tower(path, TOWER)


def qwen_opener(path: Path) -> Any:
    return open_tower(path, QWEN)


def key(name: str, value: Any) -> Callable[[GgufContents], None]:
    def change(contents: GgufContents) -> None:
        if value is None:
            del contents.keys[name]
        else:
            contents.keys[name] = value

    return change


def tensor(name: str, values: Callable[[Any], Any] | None) -> Callable[[GgufContents], None]:
    """Changes the values of a tensor; None takes it out."""

    def change(contents: GgufContents) -> None:
        old = contents.tensors.pop(name)
        if values is not None:
            contents.tensors[name] = Tensor(values(old.values))

    return change


def add(name: str) -> Callable[[GgufContents], None]:
    return lambda contents: contents.tensors.update({name: Tensor(np.ones(48, np.float32))})


def with_nan(values: Any) -> Any:
    values.flat[7] = np.nan
    return values


# A change, and the error.
Refused = tuple[Callable[[GgufContents], None], str, tuple[str, ...]]
PROJECTORS: dict[str, Refused] = {
    "audio only": (key("clip.has_vision_encoder", None), "MODEL_UNSUPPORTED", ("has_vision_encoder: false",)),
    "another family": (key("clip.projector_type", "pixtral"), "MODEL_UNSUPPORTED",
     ("pixtral", "expected one of", "idefics3, qwen3vl_merger")),
    "no family": (key("clip.projector_type", None), "MODEL_KEY", ("clip.projector_type",)),
    "erf": (key("clip.use_gelu", None), "MODEL_UNSUPPORTED", ("clip.use_gelu", "expected true")),
    "another width": (key("clip.vision.projection_dim", 64), "MODEL_CONFIG",
     ("rows of 64 numbers, expected 40, which the model reads",)),
    "no patch": (key("clip.vision.patch_size", 0), "MODEL_VALUE", ("clip.vision.patch_size: 0", "1 to 4096")),
    "a patch that is no tile": (key("clip.vision.patch_size", 57), "MODEL_VALUE", ("0 patches of 57",)),
    "a vast tile": (key("clip.vision.image_size", 1 << 20), "MODEL_LIMIT", ("clip.vision.image_size: 1048576",)),
    "cells of 3": (key("clip.vision.projector.scale_factor", 3), "MODEL_VALUE", ("8 patches", "a multiple of 3")),
    "two colours": (key("clip.vision.image_mean", [0.5, 0.5]), "MODEL_VALUE", ("image_mean: 2 values, expected 3",)),
    "no contrast": (key("clip.vision.image_std", [0.5, 0.0, 0.5]), "MODEL_VALUE", ("image_std: 0",)),
    "no number": (key("clip.vision.image_std", [0.5, float("nan"), 0.5]), "MODEL_VALUE", ("image_std", "finite")),
    "five heads": (key("clip.vision.attention.head_count", 5), "MODEL_VALUE", ("5 heads", "a divisor of its width 48")),
    "heads of six": (key("clip.vision.attention.head_count", 8), "MODEL_UNSUPPORTED", ("head_dim: 6",)),
    "no epsilon": (key("clip.vision.attention.layer_norm_epsilon", 0.0), "MODEL_VALUE", ("layer_norm_epsilon: 0",)),
    "another scale": (key("clip.vision.attention.scale", 0.5), "MODEL_UNSUPPORTED", ("clip.vision.attention.scale",)),
    "missing": (tensor("v.blk.1.attn_q.bias", None), "MODEL_TENSOR", ("v.blk.1.attn_q.bias: missing, expected [48]",)),
    "missing convolution": (tensor("v.patch_embd.weight", None), "MODEL_TENSOR",
     ("v.patch_embd.weight: missing, expected [7, 7, 3, 48]",)),
    "misshapen": (tensor("v.patch_embd.weight", lambda old: old[:, :2]), "MODEL_TENSOR",
     ("shape [7, 7, 2, 48], expected [7, 7, 3, 48]",)),
    "too few positions": (tensor("v.position_embd.weight", lambda old: old[1:]), "MODEL_TENSOR",
     ("shape [48, 63], expected [48, 64]",)),
    "a class": (add("v.class_embd"), "MODEL_TENSOR", ("v.class_embd", "no such tensor in this tower")),
    "a bias of the projection": (add("mm.model.fc.bias"), "MODEL_TENSOR", ("mm.model.fc.bias",)),
    "a fourth layer": (add("v.blk.3.ln1.weight"), "MODEL_TENSOR", ("v.blk.3.ln1.weight",)),
    "no numbers": (tensor("v.blk.0.ln1.weight", with_nan), "MODEL_NONFINITE", ("v.blk.0.ln1.weight: element 7",)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROJECTORS)
def test_vis_11_a_projector_that_does_not_fit(name: str, tmp_path: Path) -> None:
    change, reason, words = PROJECTORS[name]
    contents = TOWER.projector()
    opener(contents.write(tmp_path / "good.gguf"))
    change(contents)
    assert_refused(contents.write(tmp_path / "mmproj.gguf"), reason, *words, opener=opener)


PIXELS = "1 to 4294967296 pixels"
QWEN_PROJECTORS: dict[str, Refused] = {
    "cells of 3": (key("clip.vision.spatial_merge_size", 3), "MODEL_UNSUPPORTED", ("merge_size: 3, expected 2",)),
    "erf in layers": (key("clip.use_gelu", None), "MODEL_UNSUPPORTED", ("clip.use_gelu", "expected true")),
    "no pixels": (key("clip.vision.image_min_pixels", 0), "MODEL_VALUE", ("image_min_pixels: 0", PIXELS)),
    "less than a cell": (key("clip.vision.image_max_pixels", 195), "MODEL_VALUE", ("image_max_pixels: 195", "196 to")),
    "a range from its end": (key("clip.vision.image_min_pixels", 10_000), "MODEL_VALUE",
     ("image_max_pixels: 5880, expected 10000 to",)),
    "a picture too large for the table": (key("clip.vision.image_size", 49), "MODEL_TENSOR",
     ("v.position_embd.weight: shape [48, 36], expected [48, 49]",)),
    "a tap behind all layers": (key("clip.vision.is_deepstack_layers", [False, False, True]), "MODEL_VALUE",
     ("is_deepstack_layers: layer 2, expected ascending layers before the last of 3",)),
    "taps of two layers": (key("clip.vision.is_deepstack_layers", [True, False]), "MODEL_VALUE",
     ("is_deepstack_layers: 2 layers, expected 3",)),
    "no taps": (key("clip.vision.is_deepstack_layers", None), "MODEL_CONFIG",
     ("rows of 40 numbers, expected 120, which the model reads",)),
    "one frame": (tensor("v.patch_embd.weight.1", None), "MODEL_TENSOR",
     ("v.patch_embd.weight.1: missing, expected [7, 7, 3, 48]",)),
    "a misshapen frame": (tensor("v.patch_embd.weight.1", lambda old: old[:, :2]), "MODEL_TENSOR",
     ("v.patch_embd.weight.1: shape [7, 7, 2, 48], expected [7, 7, 3, 48]",)),
    "a third frame": (add("v.patch_embd.weight.2"), "MODEL_TENSOR", ("v.patch_embd.weight.2", "no such tensor")),
    "no biases of q, k and v": (tensor("v.blk.1.attn_qkv.bias", None), "MODEL_TENSOR",
     ("v.blk.1.attn_qkv.bias: missing, expected [144]",)),
    "a norm of a patch in a tap": (tensor("v.deepstack.1.norm.weight", lambda old: old[:48]), "MODEL_TENSOR",
     ("v.deepstack.1.norm.weight: shape [48], expected [192]",)),
    "no bias of cells": (tensor("mm.2.bias", None), "MODEL_TENSOR", ("mm.2.bias: missing, expected [40]",)),
    "no number of a place": (tensor("v.position_embd.weight", with_nan), "MODEL_NONFINITE",
     ("v.position_embd.weight: element 7",)),
}  # fmt: skip


@pytest.mark.parametrize("name", QWEN_PROJECTORS)
def test_vis_11_a_projector_of_qwen_that_does_not_fit(name: str, tmp_path: Path) -> None:
    change, reason, words = QWEN_PROJECTORS[name]
    contents = QWEN.projector()
    qwen_opener(contents.write(tmp_path / "good.gguf"))
    change(contents)
    assert_refused(contents.write(tmp_path / "mmproj.gguf"), reason, *words, opener=qwen_opener)


def test_vis_11_a_model_of_text_is_no_projector(tmp_path: Path) -> None:
    path = tiny("llama").write(tmp_path / "m.gguf")
    assert_refused(path, "MODEL_UNSUPPORTED", "general.architecture: llama, expected clip", opener=opener)


@pytest.mark.parametrize(
    ("n_bytes", "reason"), [(0, "MODEL_TRUNCATED"), (200, "MODEL_TRUNCATED"), (20_000, "MODEL_OFFSET")]
)
def test_vis_11_a_projector_that_ends_early(n_bytes: int, reason: str, tmp_path: Path) -> None:
    path = TOWER.projector().write(tmp_path / "mmproj.gguf")
    path.write_bytes(path.read_bytes()[:n_bytes])
    assert_refused(path, reason, opener=opener)


# The file of a directory, a key, its value (None: the key is missing), and the error.
Row = tuple[str, str, Any, str, tuple[str, ...]]
DIRECTORIES: list[Row] = [
    ("config.json", "vision_config.patch_size", 0, "MODEL_CONFIG", ("vision_config.patch_size: 0",)),
    ("config.json", "vision_config.hidden_act", "gelu", "MODEL_UNSUPPORTED", ("gelu, expected gelu_pytorch_tanh",)),
    ("config.json", "vision_config.num_channels", 4, "MODEL_UNSUPPORTED", ("num_channels: 4, expected 3",)),
    ("config.json", "vision_config.hidden_size", None, "MODEL_TENSOR", ("config.json does not have", "_size (1152")),
    ("config.json", "scale_factor", 7, "MODEL_CONFIG", ("8 patches", "a multiple of 7")),
    ("config.json", "text_config.hidden_size", 48, "MODEL_CONFIG", ("rows of 48 numbers, expected 40",)),
    ("config.json", "model_type", "llama", "MODEL_UNSUPPORTED",
     ("expected one of gemma3, gemma4", "idefics3, smolvlm, qwen3_vl")),
    ("preprocessor_config.json", "image_mean", [0.5, 0.5], "MODEL_CONFIG", ("image_mean: 2 values",)),
    ("preprocessor_config.json", "image_mean", None, "MODEL_CONFIG", ("image_mean",)),
    ("preprocessor_config.json", "image_std", [0.5, -0.5, 0.5], "MODEL_CONFIG", ("image_std: -0.5",)),
    ("preprocessor_config.json", "size.longest_edge", -1, "MODEL_CONFIG", ("size.longest_edge: -1",)),
    ("preprocessor_config.json", "max_image_size.longest_edge", 64, "MODEL_CONFIG", ("64, expected 56",)),
    ("preprocessor_config.json", "resample", 9, "MODEL_CONFIG", ("resample: 9, expected 1",)),
    ("preprocessor_config.json", "rescale_factor", 1.0, "MODEL_CONFIG", ("rescale_factor: 1,",)),
    ("preprocessor_config.json", "do_image_splitting", False, "MODEL_CONFIG", ("do_image_splitting: false",)),
]  # fmt: skip


def test_the_range_of_a_file_that_says_none_lies_within_the_limit(tmp_path: Path) -> None:
    """Also where the cells that the server allows have more pixels. So what is wrong is the next thing."""
    contents = QWEN.projector()
    for name in ("image_min_pixels", "image_max_pixels"):
        del contents.keys[f"clip.vision.{name}"]
    contents.keys |= {"clip.vision.patch_size": 42, "clip.vision.is_deepstack_layers": [False] * 3}

    def open_vast(path: Path) -> Any:
        return open_tower(path, QWEN, most_cells=1 << 20)

    path = contents.write(tmp_path / "mmproj.gguf")
    assert_refused(path, "MODEL_CONFIG", "rows of 40 numbers, expected 120", opener=open_vast)


QWEN_DIRECTORIES: list[Row] = [
    ("config.json", "vision_config.spatial_merge_size", 3, "MODEL_UNSUPPORTED", ("spatial_merge_size: 3, expected 2",)),
    ("config.json", "vision_config.temporal_patch_size", 1, "MODEL_UNSUPPORTED", ("size: 1, expected 2",)),
    ("config.json", "vision_config.in_channels", 4, "MODEL_UNSUPPORTED", ("in_channels: 4, expected 3",)),
    ("config.json", "vision_config.hidden_act", "gelu", "MODEL_UNSUPPORTED", ("gelu, expected gelu_pytorch_tanh",)),
    ("config.json", "vision_config.num_position_embeddings", 35, "MODEL_CONFIG", ("35, expected a square number",)),
    ("config.json", "vision_config.num_position_embeddings", None, "MODEL_TENSOR", ("num_position_embeddings (2304",)),
    ("config.json", "vision_config.num_heads", None, "MODEL_CONFIG", ("rope_dims: 3, expected even",)),
    ("config.json", "vision_config.hidden_size", None, "MODEL_TENSOR", ("does not have", "_size (1152 by default)")),
    ("config.json", "vision_config.out_hidden_size", 48, "MODEL_CONFIG", ("rows of 144 numbers, expected 120",)),
    ("config.json", "vision_config.deepstack_visual_indexes", [1, 0], "MODEL_CONFIG",
     ("layer 0, expected ascending layers before the last of 3",)),
    ("config.json", "vision_config.deepstack_visual_indexes", [0, 2], "MODEL_CONFIG",
     ("layer 2, expected ascending layers before the last of 3",)),
    ("config.json", "vision_config.deepstack_visual_indexes", [0], "MODEL_CONFIG", ("rows of 80 numbers",)),
    ("config.json", "vision_config.deepstack_visual_indexes", None, "MODEL_CONFIG",
     ("layer 8, expected ascending layers before the last of 3",)),
    ("config.json", "vision_config.rope_parameters", {"rope_type": "default"}, "MODEL_UNSUPPORTED",
     ("default, expected axial",)),
    ("config.json", "vision_config.rope_parameters", {"rope_theta": -1.0}, "MODEL_CONFIG", ("rope_theta: -1",)),
    ("preprocessor_config.json", "patch_size", 14, "MODEL_CONFIG", ("patch_size: 14, expected 7",)),
    ("preprocessor_config.json", "merge_size", 7, "MODEL_CONFIG", ("merge_size: 7, expected 2",)),
    ("preprocessor_config.json", "temporal_patch_size", 1, "MODEL_CONFIG", ("temporal_patch_size: 1, expected 2",)),
    ("preprocessor_config.json", "resample", 1, "MODEL_CONFIG", ("resample: 1, expected 3, the bicubic filter",)),
    ("preprocessor_config.json", "size", None, "MODEL_CONFIG", ("size.shortest_edge",)),
    ("preprocessor_config.json", "size.shortest_edge", -1, "MODEL_CONFIG", ("size.shortest_edge: -1", PIXELS)),
    ("preprocessor_config.json", "size.longest_edge", 195, "MODEL_CONFIG", ("size.longest_edge: 195", "196 to")),
    ("preprocessor_config.json", "max_pixels", 100, "MODEL_CONFIG", ("max_pixels: 100, expected 196",)),
    ("preprocessor_config.json", "min_pixels", 10_000, "MODEL_CONFIG", ("longest_edge: 5880, expected 10000",)),
    ("preprocessor_config.json", "do_resize", False, "MODEL_CONFIG", ("do_resize: false",)),
]  # fmt: skip


def set_key(path: Path, dotted: str, value: Any) -> None:
    content = json.loads(path.read_text())
    *sections, last = dotted.split(".")
    owner = content
    for section in sections:
        owner = owner[section]
    owner.pop(last, None)
    if value is not None:
        owner[last] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("tower", "row"), [*((TOWER, row) for row in DIRECTORIES), *((QWEN, row) for row in QWEN_DIRECTORIES)]
)
def test_vis_11_a_directory_whose_tower_does_not_fit(tower: TinyTower, row: Row, tmp_path: Path) -> None:
    file, dotted, value, reason, words = row
    folder = tower.write(tmp_path)
    set_key(folder / file, dotted, value)
    with pytest.raises(_core.ModelError) as raised:
        open_tower(folder, tower)
    assert raised.value.reason == reason, raised.value.message
    for word in words:
        assert word in raised.value.message


def test_vis_11_a_directory_that_does_not_say_how_images_are_read(tmp_path: Path) -> None:
    folder = TOWER.write(tmp_path)
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(_core.ModelError, match=r"has no preprocessor_config\.json beside it, .* model\.vision = false"):
        opener(folder)


def test_the_section_of_a_processor_counts_before_a_file_of_its_own(tmp_path: Path) -> None:
    folder = TOWER.write(tmp_path)
    section = TOWER.processor() | {"size": {"longest_edge": 112}}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": section}))
    assert opener(folder).facts["longest_side"] == 112
    (folder / "processor_config.json").write_text(json.dumps({"image_seq_len": 16}))
    assert opener(folder).facts["longest_side"] == 224
