"""The tokenizer as files: other programs can rebuild an equal one from them."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library

from imp_service.text import Tokenizer
from support.files.gguf_key_values import read_key_values
from support.text.tiny_vocabularies import byte_level, sentencepiece

DEMO = Path(str(files("imp_service.models"))) / "demo.gguf"
WORDS = [
    "the",
    " little",
    "girl",
    "<|im_end|>",
    "<|im_start|>",
    "<s>",
    "…",
    "👧🏽",
    "\n\n",
    "  ",
    "x" * 9,
    "été",
    "1234",
]


def texts() -> list[str]:
    chosen = random.Random(5)
    return ["", *("".join(chosen.choices(WORDS, k=chosen.randint(1, 12))) for _ in range(200))]


def pieces() -> list[tuple[str, float]]:
    words = ["▁", "t", "h", "e", "▁t", "he", "▁the", "l", "i", "g", "r", "gi", "rl", "girl", "x", "xx", "xxxx"]
    return [(word, -float(i)) for i, word in enumerate(words)]


VOCABULARIES = {
    "demo": lambda: read_key_values(DEMO),
    "byte-level": lambda: byte_level(merges=[("t", "h"), ("th", "e")], user_defined=["girl"]),
    "sentencepiece": lambda: sentencepiece(pieces()),
    "sentencepiece without prefix": lambda: sentencepiece(pieces(), add_space_prefix=False),
}


@pytest.fixture(params=VOCABULARIES)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.from_metadata(VOCABULARIES[request.param]())


@pytest.mark.few(2)
def test_txt_27_the_files_rebuild_an_equal_tokenizer(tokenizer: Tokenizer) -> None:
    with zipfile.ZipFile(io.BytesIO(tokenizer.archive("{{ messages }}"))) as archive:
        assert archive.namelist() == [
            "tokenizer.json",
            "tokenizer_config.json",
            "vocabulary.bin",
            "chat_template.jinja",
        ]
        library = Library.from_str(archive.read("tokenizer.json").decode())
        config = json.loads(archive.read("tokenizer_config.json"))
        assert archive.read("chat_template.jinja") == b"{{ messages }}"
    assert library.get_vocab_size() == tokenizer.vocab_size
    for text in texts():
        for added in (True, False):
            ours = tokenizer.encode(text, add_special_tokens=added, parse_special_tokens=True)
            assert library.encode(text, add_special_tokens=added).ids == ours, text
    for token_id in tokenizer.special_ids:
        spelled = tokenizer.token_bytes(token_id).decode()
        assert (library.id_to_token(token_id), library.token_to_id(spelled)) == (spelled, token_id)
    bos = tokenizer.bos_id
    assert config["bos_token"] == (None if bos is None else tokenizer.token_bytes(bos).decode())
    assert config["chat_template"] == "{{ messages }}"


def test_txt_27_the_bytes_are_always_the_same() -> None:
    made = [Tokenizer.from_metadata(read_key_values(DEMO)).archive("x") for _ in range(2)]
    assert made[0] == made[1]
    without = Tokenizer.from_metadata(read_key_values(DEMO)).archive(None)
    with zipfile.ZipFile(io.BytesIO(without)) as archive:
        assert archive.namelist() == ["tokenizer.json", "tokenizer_config.json", "vocabulary.bin"]
        assert "chat_template" not in json.loads(archive.read("tokenizer_config.json"))


def test_txt_27_byte_level_ids_are_read_back_alike() -> None:
    tokenizer = Tokenizer.from_metadata(read_key_values(DEMO))
    with zipfile.ZipFile(io.BytesIO(tokenizer.archive(None))) as archive:
        library = Library.from_str(archive.read("tokenizer.json").decode())
    for text in texts():
        ids = tokenizer.encode(text, parse_special_tokens=True)
        for special in (True, False):
            assert library.decode(ids, skip_special_tokens=not special) == tokenizer.decode(ids, special_tokens=special)


@pytest.mark.parametrize("name", ["bert-bge", "llama-spm"])
def test_txt_27_published_vocabularies_are_rebuilt(published: Callable[[str], Tokenizer], name: str) -> None:
    tokenizer = published(name)
    with zipfile.ZipFile(io.BytesIO(tokenizer.archive(None))) as archive:
        library = Library.from_str(archive.read("tokenizer.json").decode())
    for text in texts():
        ours = tokenizer.encode(text, parse_special_tokens=True)
        assert library.encode(text).ids == ours, text
