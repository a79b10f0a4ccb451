"""A vision tower gives the cells of its definition, whatever the pieces, the threads, the format and the names."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core, _testing
from support.files.gguf_contents import Tensor
from support.kernels.devices import ISAS
from support.models.forward_runs import distance, rms_distance
from support.models.tiny_gemma3_tower import Gemma3Tower
from support.models.tiny_gemma4_tower import Gemma4Tower
from support.models.tiny_idefics3_tower import Idefics3Tower
from support.models.tiny_models import tiny
from support.models.tiny_qwen_tower import QwenTower
from support.models.tiny_tower import TinyTower
from support.models.tiny_towers import TOWERS, encoded, open_tower
from support.oracles.forward_bounds import bfloat16_activations_bound, float16_cache_bound, int8_activations_bound
from support.oracles.numpy_tower import numpy_tower

TOWER = Idefics3Tower()


@pytest.mark.parametrize("name", TOWERS)
def test_vis_2_hon_1_cells_equal_the_definition(name: str, tmp_path: Path) -> None:
    tower, tensors = TOWERS[name], TOWERS[name].tensors()
    path = tower.write(tmp_path)
    got = encoded(open_tower(path, tower), tower.pixels())
    assert got.shape == (tower.n_cells, tower.width)
    assert distance(got, numpy_tower(tower, tensors).encode(tower.pixels())) < tower.bound()
    tensors[tower.weight_of_values(1)][-3, 5] += 0.05  # HON-1
    assert distance(got, numpy_tower(tower, tensors).encode(tower.pixels())) > 4 * tower.bound()
    pixels = tower.pixels()
    pixels[0, 0, 1] ^= 0x80  # HON-1
    assert distance(got, numpy_tower(tower, tower.tensors()).encode(pixels)) > 4 * tower.bound()


@pytest.mark.parametrize("name", TOWERS)
def test_vis_2_a_projector_and_a_directory_give_equal_bits(name: str, tmp_path: Path) -> None:
    tower = TOWERS[name]
    paths = (tower.write(tmp_path / "model"), tower.projector().write(tmp_path / "mmproj.gguf"))
    loaded = [open_tower(path, tower, kv_type=None) for path in paths]
    np.testing.assert_array_equal(*(encoded(each, tower.pixels()) for each in loaded))
    assert loaded[0].facts == loaded[1].facts
    assert loaded[0].warnings == loaded[1].warnings == []


@pytest.mark.parametrize("name", TOWERS)
def test_vis_2_pieces_of_any_size_give_equal_bits(name: str, tmp_path: Path) -> None:
    tower = TOWERS[name]
    path = tower.write(tmp_path)
    whole = encoded(open_tower(path, tower, max_piece=tower.n_patches), tower.pixels())
    for max_piece, n_rows in [(1, 1), (7, 3), (64, 1), (64, 50), (64, 1 << 20), (tower.n_patches, 1)]:
        loaded = open_tower(path, tower, max_piece=max_piece, decoder_row_cost=20_000)
        np.testing.assert_array_equal(encoded(loaded, tower.pixels(), n_rows), whole)


@pytest.mark.parametrize("name", ["many patches", "qwen3_vl"])
@pytest.mark.parametrize("isa", ISAS)
def test_threads_and_instruction_sets_decide_no_bit(isa: str, name: str, tmp_path: Path) -> None:
    tower = TOWERS[name]
    path = tower.write(tmp_path)
    one = encoded(open_tower(path, tower), tower.pixels())
    np.testing.assert_array_equal(encoded(open_tower(path, tower, threads=3, isa=isa), tower.pixels()), one)


def test_a_tile_begins_anew_in_the_middle_of_another(tmp_path: Path) -> None:
    path = TOWER.write(tmp_path)
    loaded = open_tower(path, TOWER, decoder_row_cost=20_000)
    fresh = encoded(open_tower(path, TOWER), TOWER.pixels(2))
    loaded.begin(TOWER.pixels(1))
    for _ in range(9):
        loaded.advance(1)
    assert not loaded.is_done
    np.testing.assert_array_equal(encoded(loaded, TOWER.pixels(2), 1), fresh)
    np.testing.assert_array_equal(encoded(loaded, TOWER.pixels(2)), fresh)


SIZES = [(1, 1), (1, 9), (9, 1), (2, 3), (5, 6)]


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5"])
def test_vis_2_hon_1_parts_of_every_size_equal_the_definition(name: str, tmp_path: Path) -> None:
    """One after the other: none leaves anything for the next."""
    tower = TOWERS[name]
    assert isinstance(tower, QwenTower)
    loaded, tensors = open_tower(tower.write(tmp_path), tower), tower.tensors()
    for cells in SIZES:
        sized = dataclasses.replace(tower, cells=cells)
        got = encoded(loaded, sized.pixels())
        assert got.shape == (cells[0] * cells[1], tower.width)
        assert distance(got, numpy_tower(sized, tensors).encode(sized.pixels())) < tower.bound()
        turned = dataclasses.replace(tower, cells=cells[::-1])  # HON-1
        other = numpy_tower(turned, tensors).encode(sized.pixels().swapaxes(0, 1))
        if cells != (1, 1):
            assert distance(got, other) > 4 * tower.bound()


def test_parts_of_any_size_have_as_many_cells_as_file_and_server_allow(tmp_path: Path) -> None:
    tower = TOWERS["qwen3_vl"]
    assert isinstance(tower, QwenTower)
    path, of_cell = tower.write(tmp_path / "model"), 14**2
    for most_cells, expected in [(1024, 30), (30, 30), (8, 8)]:
        facts = open_tower(path, tower, most_cells=most_cells).facts
        assert facts["max_rows"] == expected
        assert (facts["min_pixels"], facts["max_pixels"]) == (of_cell, 30 * of_cell)
    contents = tower.projector()
    for key in ("min", "max"):
        del contents.keys[f"clip.vision.image_{key}_pixels"]
    silent = contents.write(tmp_path / "mmproj.gguf")
    for most_cells, least in [(20, 8), (5, 5)]:
        facts = open_tower(silent, tower, most_cells=most_cells).facts
        assert facts["max_rows"] == most_cells
        assert (facts["min_pixels"], facts["max_pixels"]) == (least * of_cell, most_cells * of_cell)


@pytest.mark.parametrize(("shape", "n_rows"), [((14, 15, 3), 1), ((14, 14 * 31, 3), 31), ((28, 14, 3), 1)])
def test_a_part_of_no_size_of_the_tower_is_refused(shape: tuple[int, ...], n_rows: int, tmp_path: Path) -> None:
    tower = TOWERS["qwen3_vl"]
    loaded = open_tower(tower.write(tmp_path), tower)
    with pytest.raises(_core.InvalidArgument, match="expected multiples of 14 pixels for at most 30 cells"):
        loaded.begin(np.zeros(shape, np.uint8), n_rows)


def swapped(tower: TinyTower) -> dict[str, Tensor]:
    """The names of older files."""
    names = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    tensors = tower.projector().tensors
    return {".".join(names.get(part, part) for part in name.split(".")): tensor for name, tensor in tensors.items()}


def fused(tower: TinyTower) -> dict[str, Tensor]:
    """q, k and v in one tensor."""
    tensors = tower.projector().tensors
    for layer in range(tower.n_layers):
        for kind in ("weight", "bias"):
            parts = [tensors.pop(f"v.blk.{layer}.attn_{name}.{kind}").values for name in "qkv"]
            tensors[f"v.blk.{layer}.attn_qkv.{kind}"] = Tensor(np.concatenate(parts))
    return tensors


@pytest.mark.parametrize("change", [swapped, fused])
def test_vis_3_other_names_of_a_projectors_tensors_give_equal_bits(change: Any, tmp_path: Path) -> None:
    contents = TOWER.projector()
    usual = encoded(open_tower(contents.write(tmp_path / "usual.gguf"), TOWER), TOWER.pixels())
    contents.tensors = change(TOWER)
    path = contents.write(tmp_path / "other.gguf")
    np.testing.assert_array_equal(encoded(open_tower(path, TOWER), TOWER.pixels()), usual)


# Heads and feed-forward of whole blocks of 32.
BLOCKS: dict[str, TinyTower] = {
    "smolvlm": Idefics3Tower(hidden_size=64, ffn_size=96, n_heads=2),
    "qwen3_vl": QwenTower(hidden_size=64, ffn_size=96, n_heads=2, slice_width=64),
    "gemma3": Gemma3Tower(hidden_size=64, ffn_size=96, n_heads=2),
    "gemma4": Gemma4Tower(hidden_size=64, ffn_size=96, n_heads=2),
    "gemma4 without bounds": Gemma4Tower(hidden_size=64, ffn_size=96, n_heads=2, is_clipped=False),
}
# The types of matrices. Products with those of 8 bits have int8 activations, and with those of bfloat16 such ones. The
# cache is of bfloat16 then, else of float16; that of Gemma 4 is of float32.
BOUNDS = {"f16": float16_cache_bound, "bf16": bfloat16_activations_bound, "q8_0": int8_activations_bound}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("matrix_type", BOUNDS)
def test_vis_3_hon_1_projectors_of_other_types_equal_the_values_that_they_store(
    matrix_type: str, name: str, tmp_path: Path
) -> None:
    tower = BLOCKS[name]
    contents = tower.projector(matrix_type)
    loaded = open_tower(contents.write(tmp_path / "mmproj.gguf"), tower, kv_type=None)
    assert f" {matrix_type}_" in loaded.kernels["v.blk.0.attn_out.weight"]
    tensors = tower.stored(contents)
    got = encoded(loaded, tower.pixels())
    # Gemma 4 multiplies two products in its feed-forward, whose errors add up.
    bound = BOUNDS[matrix_type](tower.as_decoder()) * (2 if isinstance(tower, Gemma4Tower) else 1)
    assert rms_distance(got, numpy_tower(tower, tensors).encode(tower.pixels())) < bound
    tensors[tower.last_product] = np.roll(tensors[tower.last_product], 1, axis=0)  # HON-1
    assert rms_distance(got, numpy_tower(tower, tensors).encode(tower.pixels())) > 4 * bound


@pytest.mark.parametrize(("matrix_type", "kv_type"), [("f16", "f16"), ("bf16", "bf16"), ("q8_0", "bf16")])
def test_vis_3_a_tower_caches_keys_and_values_as_its_matrices_allow(
    matrix_type: str, kv_type: str, tmp_path: Path
) -> None:
    tower = BLOCKS["smolvlm"]
    path = tower.projector(matrix_type).write(tmp_path / "mmproj.gguf")
    own, same, other = (
        encoded(open_tower(path, tower, kv_type=each), tower.pixels()) for each in (None, kv_type, "f32")
    )
    np.testing.assert_array_equal(own, same)
    assert not np.array_equal(own, other)  # HON-1


@pytest.mark.parametrize("n_rows", [1, 10, 100])
def test_a_tile_costs_the_rows_of_its_multiplications(n_rows: int, tmp_path: Path) -> None:
    """A call is worth at most the rows that it is given, unless these are less than a piece."""
    cost = 20_000
    loaded = open_tower(TOWER.write(tmp_path), TOWER, decoder_row_cost=cost)
    least = 16 * 2 * TOWER.hidden_size * (TOWER.hidden_size + TOWER.ffn_size + TOWER.n_patches) / cost
    loaded.begin(TOWER.pixels())
    spent = []
    while not loaded.is_done:
        spent.append(loaded.advance(n_rows))
    assert max(spent) <= max(n_rows, np.ceil(least))
    exact = TOWER.products / cost
    assert exact <= sum(spent) < exact + len(spent)  # each is rounded up


@pytest.mark.parametrize("n_experts", [0, 4])
def test_a_row_of_a_decoder_costs_the_products_of_its_layers(n_experts: int, tmp_path: Path) -> None:
    """Two of the experts count, and the output head does not."""
    model = tiny("llama", n_experts=n_experts)
    q, kv = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    n_forwards = 1 if n_experts == 0 else model.n_experts_used
    of_layer = 2 * q + 2 * kv + 3 * n_forwards * model.ffn_size + n_experts
    file = _core.open_model_file(model.write(tmp_path / "m.gguf"))
    assert _testing.products_per_row(file) == model.n_layers * model.hidden_size * of_layer


def test_facts_and_memory_of_a_tower(tmp_path: Path) -> None:
    path = TOWER.write(tmp_path)
    loaded = open_tower(path, TOWER)
    assert loaded.facts == {
        "tile_size": 56, "longest_side": 224, "min_pixels": 0, "max_pixels": 0, "width": 40, "max_rows": 16,
        "max_atomic_cells": 0, "placeholder_token": 7, "row_token": 7,
    }  # fmt: skip
    memory = loaded.memory
    n_values = sum(values.size for values in TOWER.tensors().values())
    assert 4 * n_values <= memory["weights"] < 4 * n_values + (1 << 16)  # panels have 16 rows
    assert memory["scratch"] == memory["scratch_held"]
    wider = open_tower(path, TOWER, max_piece=192).memory
    # The pixels of a piece are in the host's memory too.
    widths = [*[3 * TOWER.patch_size**2] * 2, TOWER.cell_width, *[TOWER.hidden_size] * 7, TOWER.ffn_size]
    of_row = sum(-(-width // 16) * 64 for width in widths)  # rows begin at multiples of 64 bytes
    assert wider["activations"] - memory["activations"] == 64 * of_row


@pytest.mark.parametrize(
    ("shape", "n_rows"), [((56, 55, 3), 16), ((28, 112, 3), 16), ((56, 56), 16), ((56, 56, 3), 15)]
)
def test_a_tile_of_another_size_is_refused(shape: tuple[int, ...], n_rows: int, tmp_path: Path) -> None:
    loaded = open_tower(TOWER.write(tmp_path), TOWER)
    with pytest.raises(_core.InvalidArgument, match="expected 56 x 56 pixels for 16 cells"):
        loaded.begin(np.zeros(shape, np.uint8), n_rows)


def test_a_directory_has_a_tower_if_its_family_and_its_tensors_do(tmp_path: Path) -> None:
    file = _core.open_model_file(TOWER.write(tmp_path / "model"))
    assert file.has_vision
    qwen = TOWERS["qwen3_vl"]
    assert _core.open_model_file(qwen.write(tmp_path / "qwen")).has_vision
    text_alone = {"model.language_model.norm.weight": np.ones(40, np.float32)}
    assert not _core.open_model_file(qwen.write(tmp_path / "text", text_alone)).has_vision
    assert not _core.open_model_file(TOWER.projector().write(tmp_path / "mmproj.gguf")).has_vision
