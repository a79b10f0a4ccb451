"""Flags of tokenizer_config.json give the ids of `transformers`, with a tokenizer.json and without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import processors

from imp_service.text import Tokenizer
from support.text.hub_tokenizers import library_of, random_texts
from support.text.vocabulary_files import files_of_pairs

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

BEGIN, END = "<|im_start|>", "<|im_end|>"
ENDS = {"bos_token": BEGIN, "eos_token": END}
BOTH = {"add_bos_token": True, "add_eos_token": True}
NEITHER = {"add_bos_token": False, "add_eos_token": False}


def texts() -> list[str]:
    return ["Hi there", " Hi", "\nHi x", f"a{END}b {END} c", "", " ", *random_texts(60, seed=4, spelled=(END,))]


def ids_of_both(files: dict[str, bytes], folder: Path) -> tuple[list[list[int]], list[list[int]]]:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = Tokenizer.from_directory(files)
    return (
        [ours.encode(text, parse_special_tokens=True) for text in texts()],
        [theirs(text)["input_ids"] for text in texts()],
    )


def beside_tokenizer_json(kind: str, named: str, config: dict[str, Any], *, adds: bool) -> dict[str, bytes]:
    library = Library.from_str(library_of(kind).to_str())
    library.post_processor = None
    if adds:
        library.post_processor = processors.TemplateProcessing(
            single=f"{BEGIN} $A", special_tokens=[(BEGIN, library.token_to_id(BEGIN))]
        )
    written = {"tokenizer_class": named, "unk_token": "<unk>", **ENDS, **config}
    return {"tokenizer.json": library.to_str().encode(), "tokenizer_config.json": json.dumps(written).encode()}


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("byte level", "PreTrainedTokenizerFast"),
        ("pairs, first", "LlamaTokenizerFast"),
        ("pairs, never", "GemmaTokenizerFast"),
    ],
)
def test_hub_1_hon_1_flags_beside_a_tokenizer_json_have_no_effect(
    kind: str, named: str, adds: bool, tmp_path: Path
) -> None:
    for i, flags in enumerate(({}, BOTH, NEITHER)):
        ours, theirs = ids_of_both(beside_tokenizer_json(kind, named, flags, adds=adds), tmp_path / str(i))
        assert ours == theirs
    ours, _ = ids_of_both(beside_tokenizer_json(kind, named, {}, adds=not adds), tmp_path / "other")
    assert ours != theirs  # HON-1


@pytest.mark.parametrize("named", ["GPT2Tokenizer", "Qwen2Tokenizer"])
@pytest.mark.parametrize("flags", [BOTH, {"add_prefix_space": True}, {"add_prefix_space": True, **BOTH}])
def test_hub_11_hon_1_flags_beside_pairs_have_their_effect(named: str, flags: dict[str, bool], tmp_path: Path) -> None:
    library = library_of("byte level")
    ours, theirs = ids_of_both(files_of_pairs(library, tokenizer_class=named, **ENDS, **flags), tmp_path / "with")
    assert ours == theirs
    without, theirs = ids_of_both(files_of_pairs(library, tokenizer_class=named, **ENDS), tmp_path / "without")
    assert without == theirs
    assert without != ours  # HON-1
