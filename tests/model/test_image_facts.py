"""What files say of how a decoder reads images: planes of positions, DeepStack, layers that see ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.hf_directory import write_saved
from support.models.media_runs import load_for_media
from support.models.tiny_models import tiny
from support.oracles.stored_results import weights


def traits_of(path: Path) -> dict[str, Any]:
    return dict(core.media_traits(load_for_media(path, path.parent)))


def of_gguf(folder: Path, family: str, keys: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Returns the traits of a tiny model. A key of None is left out."""
    contents = tiny(family, **changes).contents()
    for key, value in (keys or {}).items():
        whole = key if key.startswith("tokenizer.") else f"{family}.{key}"
        contents.keys.pop(whole, None)
        if value is not None:
            contents.keys[whole] = value
    return traits_of(contents.write(folder / "m.gguf"))


def of_directory(folder: Path, name: str, text: dict[str, Any], vision: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns the traits of a stored model, with other entries of its configuration."""
    model = weights(name)
    model.text.update(text)
    if vision is not None:
        model.config["vision_config"] = vision
    return traits_of(write_saved(model, folder))


def planes(n_pairs: int, sections: tuple[int, int, int]) -> list[int]:
    """By the slices of the reference: every third pair, up to three times the number of its axis."""
    found = [0] * n_pairs
    for axis in (1, 2):
        places = range(n_pairs)[axis : 3 * sections[axis] : 3]
        for place in places:
            found[place] = axis
    return found


SECTIONS = [(24, 20, 20), (11, 11, 10), (4, 2, 2), (2, 0, 1), (16, 24, 24)]


@pytest.mark.parametrize("sections", SECTIONS)
@pytest.mark.parametrize(("family", "rope_dims"), [("qwen3vl", 128), ("qwen35", 64)])
def test_med_18_pairs_take_the_axes_in_turn(
    family: str, rope_dims: int, sections: tuple[int, int, int], tmp_path: Path
) -> None:
    changes = {"head_dim": 128, "rope_dims": rope_dims, "n_layers": 4}
    found = of_gguf(tmp_path, family, {"rope.dimension_sections": [*sections, 0]}, **changes)
    assert found["planes"] == planes(rope_dims // 2, sections)
    assert found["planes"] != planes(rope_dims // 2, (0, 1, 1))  # HON-1


ROPE = {"rope_type": "default", "rope_theta": 10000.0}


@pytest.mark.parametrize("section", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("interleaved", [{}, {"mrope_interleaved": True}, {"mrope_interleaved": False}])
def test_med_18_a_directory_has_its_axes_in_either_section(
    section: str, interleaved: dict[str, bool], tmp_path: Path
) -> None:
    """Without them, it has those of the published models, whose heads have 64 pairs. The library always interleaves."""
    both = {"rope_parameters": None, "rope_scaling": None, "rope_theta": 10000.0}
    given = {section: ROPE | interleaved | {"mrope_section": [5, 2, 1]}}
    assert of_directory(tmp_path / "given", "qwen3_vl", both | given)["planes"] == planes(8, (5, 2, 1))
    missing = {section: ROPE | interleaved}
    assert of_directory(tmp_path / "missing", "qwen3_vl", both | missing)["planes"] == planes(8, (24, 20, 20))


@pytest.mark.parametrize("sections", [[1, 2], [1, 2, 3, 4]])
def test_med_18_other_numbers_of_axes_are_refused(sections: list[int], tmp_path: Path) -> None:
    with pytest.raises(_core.ModelError, match=f"{len(sections)} axes, expected three") as info:
        of_gguf(tmp_path, "qwen3vl", {"rope.dimension_sections": sections})
    assert info.value.reason == "MODEL_UNSUPPORTED"


@pytest.mark.parametrize(("found", "layers"), [(None, 0), (0, 0), (2, 2), (3, 3)])
def test_med_27_rows_have_a_part_for_each_layer_of_deepstack(found: int | None, layers: int, tmp_path: Path) -> None:
    assert of_gguf(tmp_path, "qwen3vl", {"n_deepstack_layers": found})["width"] == 40 * (1 + layers)
    indexes = {} if found is None else {"deepstack_visual_indexes": [8, 16, 24][:found]}
    in_directory = of_directory(tmp_path / "saved", "qwen3_vl", {}, indexes)
    assert in_directory["width"] == 40 * (1 + (3 if found is None else layers))


def test_med_27_more_layers_of_deepstack_than_layers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(_core.ModelError, match=r"qwen3vl\.n_deepstack_layers: 4, expected at most the 3 layers"):
        of_gguf(tmp_path, "qwen3vl", {"n_deepstack_layers": 4})
    with pytest.raises(_core.ModelError, match=r"vision_config\.deepstack_visual_indexes: 4, expected at most the 3"):
        of_directory(tmp_path / "saved", "qwen3_vl", {}, {"deepstack_visual_indexes": [0, 1, 2, 3]})


def test_med_16_the_layers_in_which_cells_see_ahead(tmp_path: Path) -> None:
    """All of Gemma 3; the windowed ones of the larger Gemma 4; none of others."""
    assert of_gguf(tmp_path, "gemma3")["layers_ahead"] == [1] * 7
    assert of_gguf(tmp_path, "gemma4", layer_embedding=0)["layers_ahead"] == [1, 0] * 3
    assert of_gguf(tmp_path, "gemma4", layer_embedding=24)["layers_ahead"] == [0] * 6
    assert not of_gguf(tmp_path, "qwen3vl")["is_atomic"]
    windowed = [1, 0, 1, 0]
    for name, said, expected in (
        ("gemma4_31b", {"use_bidirectional_attention": "vision"}, windowed),
        ("gemma4_31b", {"use_bidirectional_attention": None}, [0] * 4),
        ("gemma4_31b", {}, [0] * 4),
        ("gemma4_unified_that_sees", {"use_bidirectional_attention": None}, [0] * 4),
        ("gemma4_unified_that_sees", {"use_bidirectional_attention": "vision"}, windowed),
    ):
        found = of_directory(tmp_path / f"{name}{len(said)}{expected}", name, said)
        assert (found["layers_ahead"], found["is_atomic"]) == (expected, any(expected))


def test_med_16_unified_gemma_4_says_if_its_cells_do_not_see_ahead(tmp_path: Path) -> None:
    model = weights("gemma4_unified_that_sees")
    model.text.pop("use_bidirectional_attention", None)
    assert traits_of(write_saved(model, tmp_path))["layers_ahead"] == [1, 0, 1, 0]


def test_med_25_layers_read_the_padding_token_in_cells(tmp_path: Path) -> None:
    """Of models whose layers have embeddings of their own: others read the placeholder, for which -1 stands here."""
    pad = "tokenizer.ggml.padding_token_id"
    assert [of_gguf(tmp_path, "gemma4", {pad: given})["cell_token"] for given in (None, 9)] == [0, 9]
    assert of_gguf(tmp_path, "gemma4", {pad: 9}, layer_embedding=0)["cell_token"] == -1
    assert of_directory(tmp_path / "whole", "gemma4_that_sees", {"pad_token_id": 5})["cell_token"] == 5
    assert of_directory(tmp_path / "text", "gemma4_e2b", {"pad_token_id": 6})["cell_token"] == 6
    assert of_directory(tmp_path / "other", "gemma4_31b", {"pad_token_id": 6})["cell_token"] == -1
    with pytest.raises(_core.ModelError, match=r"tokenizer\.ggml\.padding_token_id: 51, expected less than 51"):
        of_gguf(tmp_path, "gemma4", {pad: 51})
    with pytest.raises(_core.ModelError, match=r"text_config\.pad_token_id: 99, expected less than 53"):
        of_directory(tmp_path / "beyond", "gemma4_that_sees", {"pad_token_id": 99})
