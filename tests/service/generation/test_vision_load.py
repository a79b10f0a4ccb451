"""A model is loaded with the tower of its projector or of its directory, and a start says what does not fit."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from imp_service import ConfigError, InvalidArgument, ModelError, _core
from imp_service.config import read_settings
from imp_service.core import EngineClient, LoadedModel, load_weights, open_file
from imp_service.core.inspect import inspect_model
from imp_service.core.reserve import image_bytes
from imp_service.generation import load_model
from imp_service.generation.images import sizes_of
from imp_service.media import EncodedImage, Idefics3Sizes, ImageSettingsInvalid, PillowMissing
from support.engine.model_engine import ModelEngine
from support.files.gguf_contents import GgufContents
from support.media.image_files import MODES, pixels_of
from support.models.forward_runs import distance
from support.models.tiny_models import tiny
from support.models.tiny_tower import Pixels
from support.models.tiny_towers import open_tower
from support.models.tiny_vision_models import (
    TOWER,
    text_model,
    vocabulary,
    write_model_file,
    write_vision_directory,
    write_vision_files,
)
from support.oracles.forward_bounds import float16_cache_bound, float32_bound
from support.oracles.numpy_tower import numpy_tower

MIB = 1024**2
SMALL = ("device.threads=1", "device.kind=cpu", "kv.bytes=1MiB")


def read(path: Path, *settings: str) -> Any:
    return read_settings(None, [*SMALL, f"model.path={path}", *settings])


def load(path: Path, *settings: str) -> LoadedModel:
    return load_weights(read(path, *settings))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and its projector in one folder."""
    return write_vision_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_directory(tmp_path_factory.mktemp("directory"))


@pytest.fixture
def alone(files: tuple[Path, Path], tmp_path: Path) -> Path:
    """The model in a folder without its projector."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(files[0].read_bytes())
    return path


CELL = vocabulary().token_to_id("<image>")


AROUND = [40, 41, 42]


def failure_of(client: EngineClient) -> str | None:
    """Returns why an engine takes no image, or None."""
    media = _core.Media(bytes(32), [(56, 56, TOWER.pixels().tobytes(), TOWER.n_cells)])
    events: list[Any] = []
    ticket = client.expect(events.append)
    span, tokens = _core.MediaSpan(media, 0, 0), [*[CELL] * TOWER.n_cells, *AROUND]
    try:
        client.engine.generate(ticket, 1, tokens, limits=_core.RunLimits(max_outputs=1), media=[span])
    except InvalidArgument as error:
        return error.reason
    client.wait(lambda: any(isinstance(event, _core.FinishedEvent | _core.FailedEvent) for event in events))
    return next((event.reason for event in events if isinstance(event, _core.FailedEvent)), None)


def drawn(model: _core.Model, tiles: Sequence[Pixels]) -> list[bytes]:
    """Returns the logits of four outputs after some text, the tiles of an image, and text again."""
    engine = ModelEngine(model, placeholder=CELL, media_rows=model.media_rows)
    media = _core.Media(bytes(32), [(*tile.shape[:2], tile.tobytes(), TOWER.n_cells) for tile in tiles])
    firsts = [len(AROUND) + part * TOWER.n_cells for part in range(len(tiles))]
    spans = [_core.MediaSpan(media, part, first) for part, first in enumerate(firsts)]
    tokens = [*AROUND, *[CELL] * (len(tiles) * TOWER.n_cells), *AROUND]
    return engine.rows(engine.generate(tokens, 4, media=spans, logits=True))


def defined(tiles: Sequence[Pixels]) -> NDArray[np.float64]:
    """Returns the logits of the first of these outputs, from the definitions."""
    oracle, tower = text_model().oracle(), numpy_tower(TOWER, TOWER.tensors())
    n_tokens, cells = len(oracle.embedding), np.concatenate([tower.encode(tile) for tile in tiles])
    oracle.embedding = np.concatenate([oracle.embedding, cells])
    row: NDArray[np.float64] = oracle.logits([*AROUND, *range(n_tokens, n_tokens + len(cells)), *AROUND])[-1]
    return row


def test_vis_4_hon_1_text_after_an_image_is_that_of_the_definitions(files: tuple[Path, Path]) -> None:
    tiles = [TOWER.pixels(seed) for seed in range(3)]
    first = np.frombuffer(drawn(load(files[0], "kv.dtype=f32").model, tiles)[0], np.float32)
    bound = float32_bound(text_model()) + float16_cache_bound(TOWER.as_decoder())
    assert distance(first, defined(tiles)) < bound
    assert distance(first, defined([tiles[1], tiles[0], tiles[2]])) > 4 * bound  # HON-1


def test_vis_4_a_projector_and_a_directory_give_equal_bits(files: tuple[Path, Path], directory: Path) -> None:
    tiles = [TOWER.pixels(seed) for seed in range(3)]
    settings = ("model.overrides.deterministic=true",)
    file, folder = (load(path, *settings) for path in (files[0], directory))
    found = drawn(file.model, tiles)
    assert drawn(folder.model, tiles) == found
    assert folder.warnings == file.warnings == ()
    tiles[1][3, 5, 0] ^= 0x80  # HON-1
    assert drawn(load(directory, *settings).model, tiles) != found


def test_vis_4_cells_are_the_rows_that_the_decoder_reads(files: tuple[Path, Path]) -> None:
    """Tiles in another order are another image, and the encodings fit an arena for one tile alone."""
    tiles = [TOWER.pixels(seed) for seed in range(3)]
    one_tile = TOWER.n_cells * TOWER.width * 4
    model = load(files[0], f"media.cache_bytes={one_tile}").model
    assert model.media_rows == TOWER.n_cells
    found = drawn(model, tiles)
    assert drawn(load(files[0]).model, tiles) == found
    assert drawn(model, tiles[::-1]) != found


def test_vis_4_a_model_without_vision_is_as_it_was(files: tuple[Path, Path], alone: Path) -> None:
    seen, blind, other = load(files[0]), load(files[0], "model.vision=false"), load(alone)
    assert (seen.model.vision is None, blind.model.vision, other.model.vision) == (False, None, None)
    assert blind.model.memory == other.model.memory
    assert not {"projector", "media"} & set(blind.model.memory["items"])
    assert (blind.model.media_rows, blind.vision_name, blind.warnings) == (0, "", other.warnings)
    logits = []
    for loaded in (seen, blind, other):
        engine = ModelEngine(loaded.model)
        logits.append(engine.rows(engine.generate([3, 4, 5], 4, logits=True)))
    assert logits[0] == logits[1] == logits[2]


def test_vis_4_an_engine_takes_images_only_with_a_tower_and_the_token_of_cells(alone: Path) -> None:
    model = load(alone).model
    with pytest.raises(InvalidArgument, match="the model has no vision tower"):
        ModelEngine(model, placeholder=CELL)
    with pytest.raises(InvalidArgument, match="media"):
        media = _core.Media(bytes(32), [(56, 56, TOWER.pixels().tobytes(), 16)])
        ModelEngine(model).generate([CELL] * 16, 1, media=[_core.MediaSpan(media, 0, 0)])


@pytest.mark.parametrize("form", ["files", "directory"])
def test_vis_4_what_the_service_needs_comes_from_the_tower(form: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(form)
    path = found if form == "directory" else found[0]
    runtime = load_model(read(path))
    try:
        vision, images = runtime.core.vision, runtime.images
        assert vision is not None and images is not None
        sizes = sizes_of(vision)
        single = np.float32
        assert sizes == Idefics3Sizes(
            patch_size=7,
            image_mean=tuple(float(single(each)) for each in TOWER.mean),
            image_std=tuple(float(single(each)) for each in TOWER.deviation),
            resample=1,
            longest_edge=112,
            tile_edge=56,
            scale_factor=2,
        )
        assert sizes.own_cells == vision["max_image_cells"] == 5 * TOWER.n_cells
        assert runtime.cell_token == CELL
        assert images.plan(EncodedImage(MODES["rgb"](pixels_of(30, 20))), "image").n_cells == 80
    finally:
        runtime.close()


def test_vis_4_a_model_of_text_has_no_images(alone: Path) -> None:
    with closing(load_model(read(alone))) as runtime:
        assert (runtime.images, runtime.cell_token) == (None, None)


# memory


def test_kv_5_images_take_the_memory_that_the_plan_has_for_them(files: tuple[Path, Path], alone: Path) -> None:
    loaded, without = load(files[0]), load(alone)
    items, plain = loaded.model.memory["items"], without.model.memory["items"]
    assert items["media"] == 64 * MIB
    assert loaded.model.media_rows == 64 * MIB // (4 * TOWER.width)
    tower = open_tower(files[1], TOWER, kv_type=None).memory
    least = tower["weights"] + tower["activations"]
    assert least <= items["projector"] <= least + tower["scratch"]
    reserve = image_bytes(loaded.config.settings.limits, loaded.config.settings.media)
    # Six calls of gRPC that receive 20 MiB each, where a model of text has 8 MiB.
    assert reserve == 128 * MIB + 6 * 12 * MIB + 64 * MIB + 18 * 40_000_000 + 2 * 16 * MIB
    changed = {name: items[name] - plain.get(name, 0) for name in items if items[name] != plain.get(name)}
    assert changed == {"projector": items["projector"], "media": items["media"], "reserve": reserve}
    config = read(files[0])
    assert dict(inspect_model(open_file(config), config).memory.items) == items


def test_kv_5_two_of_the_largest_image_are_kept_where_that_is_more(tmp_path: Path) -> None:
    tower = dataclasses.replace(TOWER, longest_side=56 * 120)
    path, projector = write_model_file(tmp_path / "m.gguf"), tower.projector().write(tmp_path / "mmproj.gguf")
    config = read(path, f"model.projector={projector}")
    memory = inspect_model(open_file(config), config).memory
    assert memory.items["media"] == 2 * (120 * 120 + 1) * TOWER.n_cells * TOWER.width * 4 > 64 * MIB


def test_vis_5_a_cache_that_holds_no_tile_is_refused(files: tuple[Path, Path]) -> None:
    need = TOWER.n_cells * TOWER.width * 4
    load(files[0], f"media.cache_bytes={need}")
    with pytest.raises(ConfigError, match=r"media\.cache_bytes: 2\.5 KiB, a tile of an image takes 2\.5 KiB") as raised:
        load(files[0], f"media.cache_bytes={need - 1}")
    assert (raised.value.where, raised.value.reason) == ("media.cache_bytes", "CONFIG_INVALID")


# which projector


def test_vis_5_a_projector_elsewhere_is_named_by_the_settings(files: tuple[Path, Path], alone: Path) -> None:
    assert load(alone).model.vision is None
    loaded = load(alone, f"model.projector={files[1]}")
    assert loaded.model.vision is not None and loaded.vision_name == "mmproj-tiny.gguf"
    assert load(alone, f"model.projector={files[1]}", "model.vision=false").model.vision is None


def test_vis_5_two_projectors_in_the_folder_and_none_named(files: tuple[Path, Path], alone: Path) -> None:
    names = "mmproj-a.gguf", "MMPROJ-b.gguf"
    for name in names:
        (alone.parent / name).write_bytes(files[1].read_bytes())
    with pytest.raises(ConfigError, match=r"model\.projector: found MMPROJ-b\.gguf, mmproj-a\.gguf in the"):
        load(alone)
    assert load(alone, "model.vision=false").model.vision is None
    assert load(alone, f"model.projector={alone.parent / names[0]}").vision_name == names[0]


def test_vis_5_a_folder_with_one_model_and_its_projector_is_a_model(files: tuple[Path, Path]) -> None:
    assert load(files[0].parent).vision_name == "mmproj-tiny.gguf"
    with pytest.raises(ModelError, match="a vision projector"):
        load(files[1])


def test_vis_5_a_projector_of_another_model_that_lies_beside_is_left_out(files: tuple[Path, Path], alone: Path) -> None:
    contents = TOWER.projector()
    beside = alone.parent / "mmproj.gguf"
    for key, value in {"clip.projector_type": "pixtral", "clip.vision.projection_dim": 64}.items():
        changed = GgufContents({**contents.keys, key: value}, contents.tensors)
        changed.write(beside)
        loaded = load(alone)
        assert loaded.model.vision is None
        [warning] = [each for each in loaded.warnings if "mmproj.gguf" in each]
        assert warning.endswith("; the model is loaded without it, and reads no images")
        with pytest.raises(ModelError, match=r"model\.projector of tiny\.gguf: mmproj\.gguf: "):
            load(alone, f"model.projector={beside}")
    _without(contents, "v.blk.1.attn_q.bias")
    contents.write(beside)
    with pytest.raises(ModelError, match=r"model\.projector of tiny\.gguf: mmproj\.gguf: tensor v\.blk\.1\.attn_q"):
        load(alone)  # damaged, not of another model
    beside.write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"model\.projector of tiny\.gguf: .*mmproj\.gguf"):
        load(alone)


def _without(contents: GgufContents, *names: str) -> None:
    for name in names:
        contents.keys.pop(name, None)
        contents.tensors.pop(name, None)


def _with_nan(contents: GgufContents) -> None:
    contents.tensors["v.blk.0.ln1.weight"].values[7] = np.nan


UNFIT: dict[str, tuple[Any, str, str]] = {
    "audio only": (lambda c: _without(c, "clip.has_vision_encoder"), "MODEL_UNSUPPORTED", "has_vision_encoder"),
    "another family": (lambda c: c.keys.update({"clip.projector_type": "pixtral"}), "MODEL_UNSUPPORTED", "pixtral"),
    "another width": (
        lambda c: c.keys.update({"clip.vision.projection_dim": 64}),
        "MODEL_CONFIG",
        "rows of 64 numbers, expected 40",
    ),
    "a missing tensor": (lambda c: _without(c, "v.blk.1.attn_q.bias"), "MODEL_TENSOR", "v.blk.1.attn_q.bias: missing"),
    "no number": (_with_nan, "MODEL_NONFINITE", "v.blk.0.ln1.weight: element 7"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_vis_5_a_projector_that_does_not_fit_names_both_files(name: str, alone: Path) -> None:
    change, reason, words = UNFIT[name]
    contents = TOWER.projector()
    change(contents)
    path = contents.write(alone.parent / "p.gguf")
    with pytest.raises(ModelError) as raised:
        load(alone, f"model.projector={path}")
    assert raised.value.reason == reason
    for word in ("model.projector of tiny.gguf: p.gguf: ", words):
        assert word in raised.value.message


def test_vis_5_what_is_no_projector_names_both_files(alone: Path, tmp_path: Path) -> None:
    text = tiny("llama").write(tmp_path / "text.gguf")
    (tmp_path / "empty.gguf").write_bytes(b"")
    cases = {"text.gguf": "MODEL_UNSUPPORTED", "empty.gguf": "MODEL_TRUNCATED", "nothere.gguf": "MODEL_MISSING"}
    assert text.name in cases
    for name, reason in cases.items():
        with pytest.raises(ModelError) as raised:
            load(alone, f"model.projector={tmp_path / name}")
        assert raised.value.reason == reason
        assert raised.value.message.startswith("model.projector of tiny.gguf: ") and name in raised.value.message


# the directory, the vocabulary and the host


def test_vis_5_a_tower_that_no_image_processor_has_names_its_number(directory: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for path in directory.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    processor = folder / "preprocessor_config.json"
    processor.write_text(json.dumps(TOWER.processor() | {"size": {"longest_edge": 5000}}))
    with pytest.raises(ImageSettingsInvalid, match=r"model: size\.longest_edge: is 5000"):
        load_model(read(folder))
    processor.write_text(json.dumps(TOWER.processor() | {"size": {"longest_edge": 0}}))
    with pytest.raises(ModelError, match=r"size\.longest_edge: 0"):
        load_model(read(folder))
    load_model(read(folder, "model.vision=false")).close()


def test_vis_5_a_vocabulary_without_a_token_of_the_layout(tmp_path: Path) -> None:
    tower = dataclasses.replace(TOWER, longest_side=168)
    path, _ = write_vision_files(tmp_path, tower)
    with pytest.raises(ImageSettingsInvalid, match="has no token <row_1_col_3>") as raised:
        load_model(read(path))
    assert raised.value.reason == "MODEL_CONFIG"
    assert "mmproj-tiny.gguf" in str(raised.value)
    load_model(read(path, "model.vision=false")).close()


def test_vis_5_without_pillow_only_models_of_text_start(
    files: tuple[Path, Path], alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "11.3.0" if name == "pillow" else "1")
    load_model(read(alone)).close()
    load_model(read(files[0], "model.vision=false")).close()
    with pytest.raises(PillowMissing, match="Pillow 12 or newer"):
        load_model(read(files[0]))


def test_vis_5_a_gpu_refuses_a_tower_by_the_op_that_it_lacks(files: tuple[Path, Path]) -> None:
    settings = ("device.kind=cuda_emulated", "model.overrides.unvalidated_kernels=true")
    config = read(files[0], *settings, f"model.projector={files[1]}")
    with pytest.raises(ModelError, match=r"model\.projector of tiny\.gguf: mmproj-tiny\.gguf: .*layer_norm") as raised:
        inspect_model(open_file(config), config)
    assert raised.value.reason == "MODEL_UNSUPPORTED"
    blind = read(files[0], *settings, "model.vision=false")
    assert inspect_model(open_file(blind), blind).vision is None


def test_spc_1_the_engine_drafts_with_images_unless_the_settings_say_no(files: tuple[Path, Path]) -> None:
    for value in (True, False):
        loaded = load(files[0], f"speculation.with_media={str(value).lower()}")
        assert loaded.engine_options().draft_with_media is value


def test_vis_4_an_engine_takes_images_where_the_text_side_names_the_token_of_cells(files: tuple[Path, Path]) -> None:
    """Commands that measure a model start its engine without a tokenizer."""
    with closing(load(files[0]).client) as client:
        assert failure_of(client) == "FIELD_INVALID"
    with closing(load_model(read(files[0]))) as runtime:
        assert failure_of(runtime.client) is None
