"""The message of each fault in a directory's text files names its place, and no faulty file gives a tokenizer."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models

from imp_service.text import Tokenizer, TokenizerInvalid
from imp_service.text.directory.json_files import MAX_TOKENIZER_BYTES
from imp_service.text.directory.templates import read_templates
from support.run.growth import LINEAR, growth
from support.text.hub_tokenizers import library_of, random_texts

JSON = dict[str, Any]


@cache
def _described(kind: str) -> str:
    return str(library_of(kind).to_str())


def changed(kind: str, change: Callable[[JSON], object]) -> dict[str, bytes]:
    document = json.loads(_described(kind))
    change(document)
    return {"tokenizer.json": json.dumps(document).encode()}


def at(*way: Any, value: Any) -> Callable[[JSON], None]:
    """Returns a change that puts a value at a place of the file."""

    def change(document: JSON) -> None:
        place: Any = document
        for step in way[:-1]:
            place = place[step]
        place[way[-1]] = copy.deepcopy(value)

    return change


def without(*way: Any) -> Callable[[JSON], None]:
    def change(document: JSON) -> None:
        place: Any = document
        for step in way[:-1]:
            place = place[step]
        del place[way[-1]]

    return change


def deep(n: int) -> Any:
    value: Any = 1
    for _ in range(n):
        value = [value]
    return value


def replaced(content: str) -> JSON:
    return {"type": "Replace", "pattern": {"String": "a"}, "content": content}


def sequence(*parts: JSON) -> JSON:
    return {"type": "Sequence", "normalizers": list(parts)}


BYTES, PAIRS, PIECES = "byte level", "pairs, prepended", "unigram"
WORDS = ("pre_tokenizer", "pretokenizers", 0, "pattern")
# A kind of tokenizer, a change of its file, and the message after the file's name.
CHANGES: list[tuple[str, Callable[[JSON], object], str]] = [
    (BYTES, at("model", value=None), "model: missing"),
    (BYTES, at("model", value=[]), "model: a list, expected an object"),
    (BYTES, at("model", "type", value="WordLevel"), "model.type: WordLevel, expected one of BPE,"),
    (BYTES, at("model", "type", value=3), "model.type: a number, expected a string"),
    (BYTES, without("model", "vocab"), "model.vocab: missing"),
    (BYTES, at("model", "vocab", value={}), "model.vocab: empty"),
    (BYTES, at("model", "vocab", value="a"), "model.vocab: missing"),
    (BYTES, at("model", "vocab", "a", value="b"), "model.vocab: expected names of tokens"),
    (BYTES, at("model", "vocab", "a", value=True), "model.vocab: expected names of tokens"),
    (BYTES, at("model", "vocab", "a", value=-1), "model.vocab: expected ids from 0, each once"),
    (BYTES, at("model", "vocab", "a", value=5), "model.vocab: expected ids from 0, each once"),
    (BYTES, at("model", "vocab", "a", value=1 << 40), "1099511627777 tokens, limit"),
    (BYTES, without("model", "vocab", "a"), "no token for byte 0x61 (1 of 256 are missing)"),
    (BYTES, at("model", "vocab", "x" * 5000, value=700), "token 700: 5000 bytes, limit 4096"),
    (BYTES, at("model", "vocab", "\ud800", value=700), "model.vocab: holds half of a surrogate pair"),
    (BYTES, at("model", "merges", value={}), "model.merges: an object, expected a list"),
    (BYTES, at("model", "merges", 3, value="abc"), "model.merges[3]: expected two tokens"),
    (BYTES, at("model", "merges", 3, value=["a"]), "model.merges[3]: expected two tokens"),
    (BYTES, at("model", "merges", 3, value=["a", 1]), "model.merges[3]: expected two tokens"),
    (BYTES, at("model", "merges", 3, value=["zz", "y"]), "refused by the tokenizer library: "),
    (BYTES, at("model", "fuse_unk", value=1), "model.fuse_unk: a number, expected true or false"),
    (BYTES, at("model", "unk_token", value="none"), "model.unk_token: 'none': not in the voc"),
    (BYTES, at("model", "end_of_word_suffix", value="</w>"), "model.end_of_word_suffix: '</w>', ex"),
    (BYTES, at("model", "continuing_subword_prefix", value="##"), "model.continuing_subword_p"),
    (BYTES, at("normalizer", value={"type": "None"}), "refused by the tokenizer library: "),
    (BYTES, at("normalizer", value={"type": "ByteLevel"}), "normalizer: ByteLevel, which imp"),
    (BYTES, at("normalizer", value=3), "normalizer: a number, expected an object"),
    (BYTES, at("pre_tokenizer", value=None), "pre_tokenizer: none, expected with BPE: ByteLevel"),
    (BYTES, at("pre_tokenizer", value={"type": "Whitespace"}), "pre_tokenizer: Whitespace, exp"),
    (BYTES, at("pre_tokenizer", "pretokenizers", 0, value=3), "pre_tokenizer.pretokenizers[0]: a"),
    (BYTES, at(*WORDS, value={"Regex": "("}), "refused"),
    (BYTES, at(*WORDS, value={"Regex": r"\p{L}+(?=\d)"}), r"pre_tokenizer.pretokenizers[0].pattern: "),
    (BYTES, at(*WORDS, value={"Regex": "(a+)+$"}), "pre_tokenizer.pretokenizers[0].pattern: "),
    (BYTES, at("post_processor", value={"type": "Own"}), "post_processor.type: Own, expected Te"),
    (BYTES, at("added_tokens", value={}), "added_tokens: an object, expected a list"),
    (BYTES, at("added_tokens", 0, value=3), "added_tokens[0]: a number, expected an object"),
    (BYTES, at("added_tokens", 0, "id", value="3"), "added_tokens[0].id: '3', expected a token"),
    (BYTES, at("added_tokens", 0, "id", value=-1), "added_tokens[0].id: -1, expected a token id"),
    (BYTES, at("added_tokens", 0, "id", value=64), "added_tokens: '<|im_start|>': id 64 is anoth"),
    (BYTES, at("added_tokens", 0, "id", value=4 << 20), "4194305 tokens, limit 4194304"),
    (BYTES, at("added_tokens", 0, "content", value=""), "added_tokens[0].content: missing or em"),
    (BYTES, at("added_tokens", 0, "lstrip", value="no"), "added_tokens[0].lstrip: a string, exp"),
    (BYTES, at("padding", value=deep(70)), "nested more than 64 deep"),
    (PAIRS, at("normalizer", value=replaced("a" * 1000)), "normalizer: may make a text 1000 times"),
    (PAIRS, at("normalizer", value=sequence(*[replaced("aa")] * 10)), "normalizer: may make a text 1024 times"),
    (PAIRS, at("normalizer", value=None), "pre_tokenizer: none, expected with BPE"),
    (PAIRS, without("post_processor", "special_tokens", "<s>"), "post_processor.single[0]."),
    (PAIRS, at("post_processor", "special_tokens", "<s>", "ids", value=["a"]), "post_proc"),
    (PAIRS, at("post_processor", "special_tokens", "<s>", "ids", value=[9999]), "post_pro"),
    (PIECES, at("model", "unk_id", value=5000), "model.unk_id: 5000, expected a token id"),
    (PIECES, at("model", "unk_id", value=None), "model.unk_token: missing, and not every byte"),
    (PIECES, at("model", "vocab", 5, value=["x"]), "model.vocab: "),
    (PIECES, at("model", "vocab", 5, value=["\u2581", "1"]), "model.vocab: "),
    (PIECES, at("model", "vocab", 5, value=7), "model.vocab: expected names of tokens"),
    (PIECES, at("pre_tokenizer", value=None), "pre_tokenizer: none, expected with Unigram: spaces"),
]  # fmt: skip
CONFIGS: list[tuple[Any, str]] = [
    ([], "a list, expected an object"),
    ({"bos_token": 3}, "bos_token: a number, expected a string"),
    ({"bos_token": {"content": 3}}, "bos_token.content: a number, expected a string"),
    ({"add_bos_token": "yes"}, "add_bos_token: a string, expected true or false"),
    ({"added_tokens_decoder": []}, "added_tokens_decoder: a list, expected an object"),
    (
        {"added_tokens_decoder": {"x": {"content": "a"}}},
        "added_tokens_decoder.x: expected an id",
    ),
    ({"added_tokens_decoder": {"5": 3}}, "added_tokens_decoder.5: a number, expected an object"),
    ({"added_tokens_decoder": {"5": {}}}, "added_tokens_decoder.5.content: missing or empty"),
]
NESTED = b'{"type": "Sequence", "normalizers": ['
RAW: list[tuple[bytes, str]] = [
    (b"", "tokenizer.json: not JSON: Expecting value at line 1"),
    (b"{", "tokenizer.json: not JSON: Expecting property name"),
    (b"[1]", "tokenizer.json: a list, expected an object"),
    (b"\xff\xfe\xfa", "tokenizer.json: not JSON: "),
    (b'{"a": "\xff"}', "tokenizer.json: not JSON: "),
    (b'{"a": ' + b"9" * 5000 + b"}", "tokenizer.json: not JSON: "),
    (b"[" * 100_000, "tokenizer.json: nested more than 64 deep"),
    (b'{"a":' * 100_000, "tokenizer.json: nested more than 64 deep"),
    (
        b'{"normalizer":' + NESTED * 1000 + b'{"type": "NFC"}' + b"]}" * 1000 + b"}",
        "tokenizer.json: nested more than 64 deep",
    ),
]
TEMPLATES: list[tuple[Any, str]] = [
    ({"chat_template": 3}, "tokenizer_config.json: chat_template: a number, expected a string"),
    ({"chat_template": [3]}, "tokenizer_config.json: chat_template[0]: a number, expected an object"),
    ({"chat_template": [{"name": "default"}]}, "tokenizer_config.json: chat_template[0].template: missing"),
    ({"chat_template": [{"template": "x"}]}, "tokenizer_config.json: chat_template[0].name: missing"),
]


def refusal(files: dict[str, bytes]) -> str:
    with pytest.raises(TokenizerInvalid) as info:
        Tokenizer.from_directory(files)
    return str(info.value)


@pytest.mark.few(9)
@pytest.mark.parametrize(("kind", "change", "said"), CHANGES, ids=[said for _, _, said in CHANGES])
def test_hub_8_t07_t08_t09_each_fault_of_a_tokenizer_names_its_place(
    kind: str, change: Callable[[JSON], object], said: str
) -> None:
    assert refusal(changed(kind, change)).startswith(f"tokenizer.json: {said}")


@pytest.mark.parametrize(("config", "said"), CONFIGS, ids=[said for _, said in CONFIGS])
def test_hub_8_each_fault_of_a_configuration_names_its_place(config: Any, said: str) -> None:
    files = {**changed("byte level", lambda _: None), "tokenizer_config.json": json.dumps(config).encode()}
    assert refusal(files).startswith(f"tokenizer_config.json: {said}")


@pytest.mark.parametrize(("content", "said"), RAW, ids=[f"{said} {len(content)}" for content, said in RAW])
def test_hub_8_t07_t09_a_file_that_is_no_json_object_is_refused(content: bytes, said: str) -> None:
    assert refusal({"tokenizer.json": content}).startswith(said)


@pytest.mark.parametrize(("config", "said"), TEMPLATES, ids=[said for _, said in TEMPLATES])
def test_hub_8_each_fault_of_a_template_s_place_is_reported(config: Any, said: str) -> None:
    with pytest.raises(TokenizerInvalid) as info:
        read_templates({"tokenizer_config.json": json.dumps(config).encode()})
    assert str(info.value).startswith(said)


@pytest.mark.long
def test_hub_8_t07_a_file_has_a_most_size_and_whole_words_are_refused_by_name() -> None:
    assert refusal({"tokenizer.json": b" " * (MAX_TOKENIZER_BYTES + 1)}) == "tokenizer.json: more than 134217728 bytes"
    config = {**changed("byte level", lambda _: None), "tokenizer_config.json": b" " * (4 << 20) + b"{}"}
    assert refusal(config) == "tokenizer_config.json: more than 4194304 bytes"
    words = {"tokenizer.json": Library(models.WordLevel({"a": 0}, unk_token="a")).to_str().encode()}
    assert refusal(words) == "tokenizer.json: model.type: WordLevel, expected one of BPE, Unigram, WordPiece"


def test_hub_8_a_published_pattern_of_quadratic_time_is_replaced_by_a_linear_one() -> None:
    files = changed("byte level, gpt-2", at(*WORDS, value={"Regex": r"\s+$"}))
    library = Library.from_str(files["tokenizer.json"].decode())
    tokenizer = Tokenizer.from_directory(files)
    for text in random_texts(300, spelled=("  ", "\n \n", "a  ", "\t")):
        assert tokenizer.encode(text) == library.encode(text).ids, text
    assert growth(lambda n: tokenizer.encode(" " * n + "x"), 2000) < LINEAR
