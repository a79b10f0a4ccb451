"""Every family gives the logits and the text that `transformers` computed when the table of its results was made."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import imp_service
from imp_service import _testing as core
from support.files.hf_directory import write_saved
from support.files.hf_export import export
from support.files.hub_directory import words_of
from support.files.sentence_folder import write_pooling
from support.files.text_export import export_text
from support.models.cell_peers import CELL_CASES
from support.models.cell_prompts import CellReader
from support.models.family_text import EOS, OPTIONS, SETTINGS
from support.models.forward_runs import Cache, Logits, load, logits
from support.models.text_cases import CASES as TEXT_CASES
from support.models.text_runs import vectors
from support.models.tiny_towers import TOWERS, encoded, open_tower
from support.oracles.stored_results import (
    FAMILIES,
    STORED,
    bound,
    entry,
    error,
    error_at_end,
    error_of_cells,
    error_of_cells_read,
    error_of_vectors,
    lacking,
    model_types,
    table,
    text_weights,
    vector_weights,
    weights,
)
from support.oracles.tolerances import VECTORS
from support.text.hub_tokenizers import files_of, library_of

# transformers has no MiMo, and saves the text part of this Gemma 4 only within the whole model.
NOT_SAVED = {"mimo", "gemma4_unified_text"}
# The output of attention in the second layer.
CHANGED = ("1.self_attn.o_proj.weight", "1.linear_attn.out_proj.weight")
CHANGED_IN_TEXTS = (CHANGED[0], "1.attention.output.dense.weight", "1.attn.Wo.weight")


def logits_of(name: str, path: Path) -> Logits:
    context = STORED[name].max_context
    model = load(path, path.parent, kv_dtype="f32", **({"max_context": context} if context else {}))
    assert model.warnings == [] or context
    return logits(model, STORED[name].tokens)


@pytest.mark.parametrize("name", STORED)
def test_mod_5_mod_30_gen_22_hon_1_a_family_has_the_stored_logits_of_transformers(name: str, tmp_path: Path) -> None:
    case, model = STORED[name].case, weights(name)
    paths = [write_saved(model, tmp_path / "saved")]
    if case.architecture:
        paths.append(export(model, case.architecture, case.keys).write(tmp_path / "m.gguf"))
    for path in paths:
        got = logits_of(name, path)
        assert error(name, got) < bound(name)
        assert lacking(name, got) < 2 * bound(name)
    [output] = [tensor for tensor in model.tensors if tensor.endswith(CHANGED)]  # HON-1
    model.tensors[output][3, 5] += np.float32(0.05)
    assert error(name, logits_of(name, write_saved(model, tmp_path / "changed"))) > 4 * bound(name)


@pytest.mark.parametrize("name", FAMILIES)
def test_gen_21_hon_1_a_position_off_by_one_is_seen_in_the_table(name: str, tmp_path: Path) -> None:
    tokens = STORED[name].tokens
    cache = Cache(load(write_saved(weights(name), tmp_path), tmp_path, kv_dtype="f32"))
    blocks = cache.blocks(len(tokens) + 1)
    cache.run((tokens[:-1], 0, blocks))
    [moved] = cache.run((tokens[-1:], len(tokens), blocks))
    assert error_at_end(name, moved[0]) > 10 * bound(name)


@pytest.mark.parametrize("name", FAMILIES)
def test_hub_9_mod_30_hon_1_a_family_continues_a_text_as_transformers_did(name: str, tmp_path: Path) -> None:
    library = library_of("byte level")
    model, prompt = text_weights(name), table()["text"]["prompt"]
    folder = write_saved(model, tmp_path / "model")
    for file, content in files_of(library, eos_token=EOS).items():
        (folder / file).write_bytes(content)
    contents = export(model, STORED[name].case.architecture, STORED[name].case.keys)
    contents.keys |= words_of(library, "qwen2", table()["text"]["vocabulary"], EOS)
    for path in (folder, contents.write(tmp_path / "m.gguf")):
        with imp_service.load(path, *SETTINGS) as served:
            found = served.generate(prompt, **OPTIONS).result()
            other = served.generate([*prompt, prompt[0]], **OPTIONS).result()
        assert list(found.token_ids) == entry(name)["text"]
        assert found.text == library.decode(entry(name)["text"])
        assert found.logprobs != other.logprobs  # HON-1


@pytest.mark.parametrize("name", TOWERS)
def test_vis_2_hon_1_a_tower_has_the_stored_cells_of_transformers(name: str, tmp_path: Path) -> None:
    tower, tensors = TOWERS[name], TOWERS[name].tensors()
    got = encoded(open_tower(tower.write(tmp_path / "model"), tower), tower.pixels())
    assert error_of_cells(name, got) < tower.bound()
    tensors[tower.weight_of_values(1)][-3:, 5] += np.float32(0.05)  # HON-1
    changed = encoded(open_tower(tower.write(tmp_path / "changed", tensors), tower), tower.pixels())
    assert error_of_cells(name, changed) > 4 * tower.bound()


@pytest.mark.parametrize("name", CELL_CASES)
def test_med_16_med_18_med_27_hon_1_a_decoder_reads_cells_as_transformers_did(name: str, tmp_path: Path) -> None:
    case, model = CELL_CASES[name], weights(name)
    model.config["vision_config"] = case.family.vision
    given = case.prompt
    turned = dataclasses.replace(given, rows=[rows[::-1].copy() for rows in given.rows])
    files = export(model, case.family.architecture, case.family.keys).write(tmp_path / "m.gguf")
    for path in (files, write_saved(model, tmp_path / "saved")):
        reader = CellReader(path)
        assert error_of_cells_read(name, reader.logits(given, chunk=7)) < bound(name)
        assert error_of_cells_read(name, reader.logits(turned, chunk=7)) > 4 * bound(name)  # HON-1


@pytest.mark.parametrize("name", TEXT_CASES)
def test_emb_1_hon_1_a_model_has_the_stored_vectors_of_transformers(name: str, tmp_path: Path) -> None:
    case, model = TEXT_CASES[name], vector_weights(name)
    folder = write_saved(model, tmp_path / "saved")
    if case.pooling != "rank":
        write_pooling(folder, case.pooling)
    for path in (folder, export_text(model, case.architecture, case.pooling, case.keys).write(tmp_path / "m.gguf")):
        loaded = load(path, tmp_path, kv_dtype="f32")
        assert loaded.warnings == []
        assert error_of_vectors(name, vectors(loaded, case.texts)) < VECTORS
    changed = next(tensor for tensor in model.tensors if tensor.endswith(CHANGED_IN_TEXTS))
    model.tensors[changed][3, 5] += np.float32(0.05)  # HON-1
    write_saved(model, folder)
    assert error_of_vectors(name, vectors(load(folder, tmp_path, kv_dtype="f32"), case.texts)) > 4 * VECTORS


def test_mod_30_the_table_has_every_family() -> None:
    assert table()["cases"].keys() == STORED.keys()
    assert table()["vectors"].keys() == TEXT_CASES.keys()
    vectors_in_gguf = {case.architecture for case in TEXT_CASES.values()}
    assert set(core.architectures("gguf")) <= {case.architecture for case in FAMILIES.values()} | vectors_in_gguf
    assert set(core.architectures("hf")) - model_types() == NOT_SAVED
