"""The towers of Gemma 3 and 4 give the cells of their definitions, in every size and layout of their files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from imp_service import _core
from support.files.gguf_contents import GgufContents, Tensor
from support.kernels.devices import ISAS
from support.models.forward_runs import distance
from support.models.tiny_gemma3_tower import LAYOUTS, Gemma3Tower
from support.models.tiny_gemma4_tower import BOUNDS, LAYERS, Gemma4Tower
from support.models.tiny_tower import TinyTower
from support.models.tiny_towers import encoded, open_tower
from support.oracles.numpy_tower import numpy_tower

SMALL, SIZED = Gemma3Tower(), Gemma4Tower()
SIZES = [(1, 1), (1, 9), (9, 1), (2, 3), (5, 2)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_vis_2_the_layouts_of_published_files_give_equal_bits(layout: str, tmp_path: Path) -> None:
    usual = encoded(open_tower(SMALL.write(tmp_path / "usual"), SMALL), SMALL.pixels())
    loaded = open_tower(SMALL.write(tmp_path / "other", SMALL.renamed(layout, SMALL.tensors())), SMALL)
    np.testing.assert_array_equal(encoded(loaded, SMALL.pixels()), usual)


@pytest.mark.parametrize("is_clipped", [False, True])
def test_vis_2_hon_1_parts_of_every_size_equal_the_definition(is_clipped: bool, tmp_path: Path) -> None:
    """One after the other: none leaves anything for the next."""
    tower = dataclasses.replace(SIZED, is_clipped=is_clipped)
    loaded, tensors = open_tower(tower.write(tmp_path), tower), tower.tensors()
    for cells in SIZES:
        sized, turned = (dataclasses.replace(tower, cells=each) for each in (cells, cells[::-1]))
        got = encoded(loaded, sized.pixels())
        assert got.shape == (cells[0] * cells[1], tower.width)
        assert distance(got, numpy_tower(sized, tensors).encode(sized.pixels())) < tower.bound()
        other = numpy_tower(turned, tensors).encode(sized.pixels().swapaxes(0, 1))  # HON-1
        assert distance(got, other) > 4 * tower.bound()


@pytest.mark.parametrize("tower", [SMALL, SIZED])
@pytest.mark.parametrize("isa", ISAS)
def test_threads_and_instruction_sets_decide_no_bit(isa: str, tower: TinyTower, tmp_path: Path) -> None:
    path = tower.write(tmp_path)
    one = encoded(open_tower(path, tower), tower.pixels())
    np.testing.assert_array_equal(encoded(open_tower(path, tower, threads=3, isa=isa), tower.pixels()), one)


def test_an_image_has_at_most_the_cells_for_which_there_are_places_and_that_the_server_allows(tmp_path: Path) -> None:
    """A row of cells may not be longer than the table of its places."""
    path = SIZED.write(tmp_path)
    assert [open_tower(path, SIZED, most_cells=most).facts["max_rows"] for most in (1024, 10, 7)] == [10, 10, 7]


@pytest.mark.parametrize(("shape", "n_rows"), [((12, 13, 3), 1), ((12, 132, 3), 11), ((24, 12, 3), 1)])
def test_a_part_of_no_size_of_the_tower_is_refused(shape: tuple[int, ...], n_rows: int, tmp_path: Path) -> None:
    loaded = open_tower(SIZED.write(tmp_path), SIZED)
    with pytest.raises(_core.InvalidArgument, match="expected multiples of 12 pixels for at most 10 cells"):
        loaded.begin(np.zeros(shape, np.uint8), n_rows)


def changed(tower: TinyTower, change: Callable[[GgufContents], None], folder: Path) -> Path:
    contents = tower.projector()
    change(contents)
    return contents.write(folder / "mmproj.gguf")


def swap_products(contents: GgufContents) -> None:
    """The names of older files."""
    names = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    contents.tensors = {
        ".".join(names.get(part, part) for part in name.split(".")): tensor for name, tensor in contents.tensors.items()
    }


def fuse_attention(contents: GgufContents) -> None:
    """q, k and v in one tensor."""
    for layer in range(SMALL.n_layers):
        for kind in ("weight", "bias"):
            parts = [contents.tensors.pop(f"v.blk.{layer}.attn_{name}.{kind}").values for name in "qkv"]
            contents.tensors[f"v.blk.{layer}.attn_qkv.{kind}"] = Tensor(np.concatenate(parts))


def add_audio(contents: GgufContents) -> None:
    """A tower for sound, which some projectors have beside that for pictures."""
    contents.keys |= {"clip.has_audio_encoder": True, "clip.audio.projector_type": "gemma4a"}
    for name in ("a.conv1d.0.weight", "a.blk.0.attn_q.weight", "mm.a.input_projection.weight"):
        contents.tensors[name] = Tensor(np.ones((8, 8), np.float32))


@pytest.mark.parametrize(("tower", "change"), [(SMALL, swap_products), (SMALL, fuse_attention), (SIZED, add_audio)])
def test_vis_3_other_tensors_of_a_projector_give_equal_bits(
    tower: TinyTower, change: Callable[[GgufContents], None], tmp_path: Path
) -> None:
    usual = encoded(open_tower(tower.write(tmp_path / "usual"), tower), tower.pixels())
    found = encoded(open_tower(changed(tower, change, tmp_path), tower), tower.pixels())
    np.testing.assert_array_equal(found, usual)


def test_vis_3_hon_1_a_bound_that_a_projector_does_not_have_is_infinite(tmp_path: Path) -> None:
    def keep_some(contents: GgufContents) -> None:
        for name in list(contents.tensors):
            if name.endswith(BOUNDS) and not name.endswith("attn_q.input_max"):
                del contents.tensors[name]

    got = encoded(open_tower(changed(SIZED, keep_some, tmp_path), SIZED), SIZED.pixels())
    tensors = SIZED.tensors()
    infinite = {
        name: np.full_like(values, np.inf if name.endswith("max") else -np.inf)
        for name, values in tensors.items()
        if name.endswith(BOUNDS) and not name.endswith("q_proj.input_max")
    }
    assert distance(got, numpy_tower(SIZED, tensors | infinite).encode(SIZED.pixels())) < SIZED.bound()
    last = f"{LAYERS}{SIZED.n_layers - 1}.self_attn.q_proj.input_max"
    none = tensors | infinite | {last: np.float32(np.inf)}  # HON-1
    assert distance(got, numpy_tower(SIZED, none).encode(SIZED.pixels())) > 4 * SIZED.bound()


def test_vis_3_hon_1_colours_of_a_projector_are_normalized_before_they_are_doubled(tmp_path: Path) -> None:
    def set_colours(contents: GgufContents) -> None:
        contents.keys |= {"clip.vision.image_mean": [0.25] * 3, "clip.vision.image_std": [0.5] * 3}

    got = encoded(open_tower(changed(SIZED, set_colours, tmp_path), SIZED), SIZED.pixels())
    read = dataclasses.replace(SIZED, mean=(0.5,) * 3, deviation=(0.25,) * 3)
    assert distance(got, numpy_tower(read, read.tensors()).encode(read.pixels())) < read.bound()
    assert distance(got, numpy_tower(SIZED, SIZED.tensors()).encode(SIZED.pixels())) > 4 * SIZED.bound()  # HON-1


def test_a_directory_of_text_alone_has_no_tower(tmp_path: Path) -> None:
    text = {"model.language_model.norm.weight": np.ones(40, np.float32)}
    for tower in (SMALL, SIZED):
        assert _core.open_model_file(tower.write(tmp_path / "whole")).has_vision
        assert not _core.open_model_file(tower.write(tmp_path / "text", text)).has_vision


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_directory_whose_tower_lacks_its_patches_is_no_text_model(layout: str, tmp_path: Path) -> None:
    """A start with it fails and names the tensor. By whatever names, it must not answer without images."""
    named = SMALL.renamed(layout, SMALL.tensors())
    kept = {name: values for name, values in named.items() if "patch_embedding" not in name}
    assert 0 < len(kept) < len(named)
    assert _core.open_model_file(SMALL.write(tmp_path, kept)).has_vision
