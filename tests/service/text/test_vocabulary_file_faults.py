"""The message of each fault in a vocabulary file names the file and the place, for every format but tokenizer.json."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from imp_service.text import Tokenizer, TokenizerInvalid
from imp_service.text.directory.sentencepiece_model import _model_class
from support.text.hub_tokenizers import library_of
from support.text.tiny_vocabularies import byte_level, sentencepiece
from support.text.vocabulary_files import MODELS, files_of_pairs, tekken, trained

P = "tokenizer.ggml."
N = 259
MISSING = object()
LONG = base64.b64encode(b"x" * 5000).decode()
LETTER = base64.b64encode(b"a").decode()
HALF = "\ud800"


def put(document: Any, way: tuple[Any, ...], value: object) -> Any:
    """Returns the document with a value at a place, or without the place."""
    place = document
    for step in way[:-1]:
        place = place[step]
    if value is MISSING:
        del place[way[-1]]
    else:
        place[way[-1]] = value
    return document


def refusal(files: dict[str, bytes]) -> str:
    with pytest.raises(TokenizerInvalid) as info:
        Tokenizer.from_directory(files)
    return str(info.value)


# The way to a place in tekken.json, its value, and the message after the file's name.
TEKKEN: list[tuple[tuple[Any, ...], object, str]] = [
    (("config",), [], "config: a list, expected an object"),
    (("config", "default_vocab_size"), MISSING, "config.default_vocab_size: None, expected a token id"),
    (("config", "default_vocab_size"), 2, "config.default_vocab_size: 2, expected 3 to 503"),
    (("config", "default_vocab_size"), 504, "config.default_vocab_size: 504, expected 3 to 503"),
    (("config", "default_num_special_tokens"), "3", "config.default_num_special_tokens: '3', expected a token id"),
    (("config", "default_num_special_tokens"), 1 << 30, "config.default_vocab_size: 503, expected 1073741824 to "),
    (("config", "pattern"), MISSING, "config.pattern: missing or empty"),
    (("config", "pattern"), 3, "config.pattern: a number, expected a string"),
    (("config", "pattern"), "(", "config.pattern: Oniguruma error: end pattern with unmatched parenthesis"),
    (("config", "pattern"), "(a+)+b|.", "pre_tokenizer.pretokenizers[0].pattern: '(a+)+b|.': its time grows faster"),
    (("vocab",), MISSING, "config.default_vocab_size: 503, expected 3 to 3"),
    (("vocab",), {}, "vocab: an object, expected a list"),
    (("vocab", 5), 7, "vocab[5]: a number, expected an object"),
    (("vocab", 5, "rank"), 9, "vocab[5].rank: 9, expected 5"),
    (("vocab", 5, "token_bytes"), MISSING, "vocab[5].token_bytes: missing or empty"),
    (("vocab", 5, "token_bytes"), 7, "vocab[5].token_bytes: a number, expected a string"),
    (("vocab", 5, "token_bytes"), "\xfc", "vocab[5].token_bytes: not base64"),
    (("vocab", 300, "token_bytes"), LETTER, "vocab[300].token_bytes: the bytes of rank 97 again"),
    (("vocab", 300, "token_bytes"), LONG, "token 303: 5000 bytes, limit 4096"),
    (("vocab", 97, "token_bytes"), "cXpxenF6", "no token for byte 0x61 (1 of 256 are missing)"),
    (("special_tokens",), {}, "special_tokens: an object, expected a list"),
    (("special_tokens", 0), 3, "special_tokens[0]: a number, expected an object"),
    (("special_tokens", 0, "rank"), MISSING, "special_tokens[0].rank: None, expected a token id"),
    (("special_tokens", 0, "rank"), 50, "special_tokens[0].rank: 50, expected 0 to 2, each once"),
    (("special_tokens", 2, "rank"), 1, "special_tokens[2].rank: 1, expected 0 to 2, each once"),
    (("special_tokens", 2, "token_str"), MISSING, "special_tokens[2].token_str: missing or empty"),
    (("special_tokens", 2, "token_str"), 2, "special_tokens[2].token_str: a number, expected a string"),
    (("special_tokens", 2, "token_str"), "<s>", "special_tokens[2].token_str: '<s>' again"),
    (("special_tokens", 2, "token_str"), HALF, "special_tokens[2].token_str: holds half of a surrogate pair"),
]  # fmt: skip


@pytest.mark.few(11)
@pytest.mark.parametrize(("way", "value", "said"), TEKKEN, ids=[said for _, _, said in TEKKEN])
def test_hub_8_each_fault_of_tekken_names_its_place(way: tuple[Any, ...], value: object, said: str) -> None:
    content = json.dumps(put(json.loads(tekken()[0]), way, value)).encode()
    assert refusal({"tekken.json": content}).startswith(f"tekken.json: {said}")


# A key of vocab.json, its value, and the message.
VOCAB: list[tuple[str, object, str]] = [
    ("a", MISSING, "merges.txt: line 5: 'a' is not a token"),
    ("~", MISSING, "vocab.json: no token for byte 0x7E (1 of 256 are missing)"),
    ("a", "1", "vocab.json: expected names of tokens, each with an id"),
    ("a", -1, "vocab.json: expected ids from 0, each once"),
    ("a", 5, "vocab.json: expected ids from 0, each once"),
    ("zzzz", 1 << 40, "vocab.json: 1099511627777 tokens, limit 4194304"),
    (HALF, 700, "vocab.json: a name: holds half of a surrogate pair"),
]


@pytest.mark.parametrize(("key", "value", "said"), VOCAB, ids=[repr(said) for _, _, said in VOCAB])
def test_hub_8_each_fault_of_vocab_json_names_its_place(key: str, value: object, said: str) -> None:
    files = files_of_pairs(library_of("byte level"), tokenizer_class="Qwen2Tokenizer")
    files["vocab.json"] = json.dumps(put(json.loads(files["vocab.json"]), (key,), value)).encode()
    assert refusal(files).startswith(said)


# A line after the others of merges.txt, and the message.
MERGES: list[tuple[bytes, str]] = [
    (b"a", "line 246: expected two tokens with a space between them"),
    (b"a b c", "line 246: expected two tokens with a space between them"),
    (b"zz qq", "line 246: 'zz' is not a token"),
    (b"a qq", "line 246: 'qq' is not a token"),
    (b"~ !", "line 246: '~!' is not a token"),
    (b" a", "line 246: '' is not a token"),
    (b"#version: 0.2", "line 246: '#version:' is not a token"),
    (b"\xe9 a", "not UTF-8"),
]


@pytest.mark.parametrize(("line", "said"), MERGES, ids=[repr(line) for line, _ in MERGES])
def test_hub_8_each_fault_of_merges_names_its_line(line: bytes, said: str) -> None:
    files = files_of_pairs(library_of("byte level"), tokenizer_class="Qwen2Tokenizer")
    files["merges.txt"] += line + b"\n"
    assert refusal(files).startswith(f"merges.txt: {said}")


# A file in addition to vocab.json and merges.txt, its content, and the message.
BESIDE: list[tuple[str, str, str]] = [
    ("vocab.json", "[]", "vocab.json: a list, expected an object"),
    ("vocab.json", '{"a": 1', "vocab.json: not JSON: "),
    ("vocab.json", "{}", "merges.txt: line 2: "),
    ("added_tokens.json", "[]", "added_tokens.json: a list, expected an object"),
    ("added_tokens.json", '{"<x>": "7"}', "added_tokens.json: <x>: '7', expected a token id"),
    ("added_tokens.json", '{"<x>": -7}', "added_tokens.json: <x>: -7, expected a token id"),
    ("added_tokens.json", '{"": 600}', 'added_tokens.json: "": expected the name of a token'),
    ("added_tokens.json", '{"\\ud800": 600}', "added_tokens.json: a name: holds half of a surrogate pair"),
    ("added_tokens.json", '{"<x>": 5}', "vocab.json: added_tokens: '<x>': id 5 is another token's"),
    ("added_tokens.json", '{"<x>": 2000000000}', "vocab.json: 2000000001 tokens, limit 4194304"),
    ("special_tokens_map.json", "[]", "special_tokens_map.json: a list, expected an object"),
    ("special_tokens_map.json", '{"eos_token": 3}', "special_tokens_map.json: eos_token: a number, expected a string"),
    ("special_tokens_map.json", '{"additional_special_tokens": [3]}',
     "special_tokens_map.json: additional_special_tokens: expected tokens"),
    ("special_tokens_map.json", '{"additional_special_tokens": "x"}',
     "special_tokens_map.json: additional_special_tokens: a string, expected a list"),
    ("special_tokens_map.json", '{"extra_special_tokens": {"image_token": 3}}',
     "special_tokens_map.json: extra_special_tokens.image_token: a number, expected a string"),
    ("tokenizer_config.json", '{"tokenizer_class": "Own"}', "vocab.json: tokenizer_class Own; set model.overrides."),
    ("tokenizer_config.json", '{"tokenizer_class": 3}', "tokenizer_config.json: tokenizer_class: a number, expected"),
    ("tokenizer_config.json", '{"eos_token": ["a"]}', "tokenizer_config.json: eos_token: a list, expected a string"),
    ("tokenizer_config.json", '{"eos_token": "\\udfff"}', "tokenizer_config.json: eos_token: holds half of a surrog"),
    *((
        "tokenizer_config.json",
        json.dumps({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": decoder}),
        f"{place} {said}",
    ) for decoder, place, said in [
        ({"\u0663": {"content": "a"}}, "tokenizer_config.json: added_tokens_decoder.\u0663:", "expected an id"),
        ({"9" * 5000: {"content": "a"}}, f"tokenizer_config.json: added_tokens_decoder.{'9' * 40}:", "expected an id"),
        ({"5": None}, "tokenizer_config.json: added_tokens_decoder.5:", "expected an id and its token"),
        ({"600": {"content": "<x>", "special": "yes"}}, "tokenizer_config.json: added_tokens_decoder.600.special:",
         "a string, expected true or false"),
        ({"600": {"content": "x" * 5000}}, "vocab.json: token 600:", "5000 bytes, limit 4096"),
        ({"600": {"content": HALF}}, "tokenizer_config.json: added_tokens_decoder.600.content:", "holds half of"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "said"), BESIDE, ids=[said for _, _, said in BESIDE])
def test_hub_8_each_fault_beside_vocab_json_names_its_place(name: str, content: str, said: str) -> None:
    files = files_of_pairs(library_of("byte level"), tokenizer_class="Qwen2Tokenizer")
    assert refusal({**files, name: content.encode()}).startswith(said)


def piece(index: int, **values: object) -> Callable[[Any], None]:
    """Returns a change of one piece."""

    def change(message: Any) -> None:
        for name, value in values.items():
            setattr(message.pieces[index], name, value)

    return change


def model_of(kind: int) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        message.trainer_spec.model_type = kind

    return change


def spelled_by(characters: bytes) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        message.normalizer_spec.precompiled_charsmap = characters

    return change


def without_unknown(message: Any) -> None:
    """No token for unknown text, and none for single bytes."""
    kept = [each for each in message.pieces if each.type != 6]
    del message.pieces[:]
    message.pieces.extend(kept)
    message.pieces[0].type = 1
    message.trainer_spec.unk_id = -1


# A kind of tokenizer.model, a change of its message, and the message after the file's name.
PIECES: list[tuple[str, Callable[[Any], None], str]] = [
    ("pairs", lambda message: message.ClearField("pieces"), "is no SentencePiece model: it has no pieces"),
    ("pairs", model_of(3), "a model of words, expected unigram or BPE"),
    ("pairs", model_of(4), "a model of characters, expected unigram or BPE"),
    ("pairs", model_of(-9), "a model of -9, expected unigram or BPE"),
    ("pairs", piece(300, type=0), "token_type: token 300: unknown type 0"),
    ("pairs", piece(300, type=77), "token_type: token 300: unknown type 77"),
    ("pairs", piece(300, score=float("nan")), "scores: token 300: not finite"),
    ("unigram", piece(300, score=float("inf")), "scores: token 300: not finite"),
    ("pairs", piece(300, piece=b"x" * 5000), "tokens: token 300: 5000 bytes, limit 4096"),
    ("pairs", piece(50, piece=b"<0xZZ>"), "tokens: byte token b'<0xZZ>' has no byte"),
    ("pairs", without_unknown, "unknown_token_id: missing, and not every byte has a token"),
    ("unigram", spelled_by(b"abc"), "precompiled_charsmap: cannot be read: "),
    ("unigram", spelled_by(b"\x08\0\0\0" + b"\xff" * 20), "precompiled_charsmap: cannot be read: "),
]
CUT = "is no SentencePiece model"


@pytest.mark.parametrize(("kind", "change", "said"), PIECES, ids=[f"{kind} {said}" for kind, _, said in PIECES])
def test_hub_8_each_fault_of_tokenizer_model_names_its_place(
    kind: str, change: Callable[[Any], None], said: str
) -> None:
    message = _model_class()()
    message.ParseFromString(trained(**MODELS[kind]))
    change(message)
    assert refusal({"tokenizer.model": message.SerializeToString()}).startswith(f"tokenizer.model: {said}")


@pytest.mark.parametrize("n_bytes", [1, 20, 1000])
def test_hub_8_a_tokenizer_model_that_is_cut_is_refused(n_bytes: int) -> None:
    assert refusal({"tokenizer.model": trained(**MODELS["pairs"])[:-n_bytes]}) == f"tokenizer.model: {CUT}"


@pytest.mark.parametrize("content", [b"{}", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 4689\n"])
def test_hub_8_another_file_named_tokenizer_model_is_refused(content: bytes) -> None:
    assert refusal({"tokenizer.model": content}) == f"tokenizer.model: {CUT}"


UNIGRAM = {**sentencepiece([("a", -1.0), ("b", -2.0)]), P + "model": "t5"}
SCORED = sentencepiece([("a", -1.0), ("b", -2.0)])
BYTES = byte_level()
# The keys of a GGUF file, one of them, its value, and the message after the key.
GGUF: list[tuple[dict[str, object], str, object, str]] = [
    (BYTES, "model", MISSING, "missing"),
    (BYTES, "model", b"\xff", "not UTF-8"),
    (BYTES, "model", "plamo2", "unknown tokenizer 'plamo2', known: bert, gemma4, gpt2, llama, t5"),
    (BYTES, "model", "", "unknown tokenizer '', known: bert, gemma4, gpt2, llama, t5"),
    (BYTES, "pre", 3, "expected a string, found int"),
    (BYTES, "pre", b"\xff", "not UTF-8"),
    (BYTES, "tokens", MISSING, "missing or empty"),
    (BYTES, "tokens", [["a"]], "entry 0: expected a string, found list"),
    (BYTES, "tokens", ["a", HALF], "entry 1: holds a surrogate"),
    (BYTES, "token_type", [[1] * N], "expected a list, found list of rank 2"),
    (BYTES, "token_type", [[1], [1, 2]], "expected a list of numbers, found lists of different lengths"),
    (BYTES, "token_type", [1.5] * N, "expected integers, found float64"),
    (BYTES, "token_type", "abc", "expected a list, found str of rank 0"),
    (BYTES, "token_type", [-1] * N, "token 0: unknown type -1"),
    (BYTES, "merges", MISSING, "missing"),
    (BYTES, "merges", "a b", "expected a list of strings, found str"),
    (BYTES, "merges", [1, 2], "entry 0: expected a string, found int"),
    (BYTES, "merges", [b"\xff \xfe"], "merge 0: not UTF-8"),
    (BYTES, "bos_token_id", "1", "expected a token id, found str"),
    (BYTES, "bos_token_id", True, "expected a token id, found bool"),
    (BYTES, "bos_token_id", 1 << 70, "token id 1180591620717411303424, expected 0 to 258"),
    (BYTES, "eos_token_ids", "a", "expected a list, found str of rank 0"),
    (BYTES, "eos_token_ids", [5000], "token id 5000, expected 0 to 258"),
    (BYTES, "eos_token_ids", [[1]], "expected a list, found list of rank 2"),
    (BYTES, "suppress_tokens", [5000], "token id 5000, expected 0 to 258"),
    (BYTES, "add_bos_token", 1, "expected true or false, found int"),
    (BYTES, "add_sep_token", True, "true, but the file names no such token"),
    (SCORED, "scores", MISSING, "missing; "),
    (SCORED, "scores", ["a"] * 261, "expected numbers, found <U1"),
    (SCORED, "scores", [0.0] * 3, "3 entries, expected 261"),
    (SCORED, "scores", [float("inf")] * 261, "token 0: not finite"),
    (SCORED, "add_space_prefix", 1, "expected true or false, found int"),
    (SCORED, "remove_extra_whitespaces", "no", "expected true or false, found str"),
    (UNIGRAM, "precompiled_charsmap", b"abc", "cannot be read: "),
    (UNIGRAM, "precompiled_charsmap", [1.5], "expected integers, found float64"),
    (UNIGRAM, "precompiled_charsmap", "abc", "expected a list, found str of rank 0"),
]


@pytest.mark.parametrize(("metadata", "key", "value", "said"), GGUF, ids=[f"{key} {said}" for _, key, _, said in GGUF])
def test_hub_8_each_fault_of_a_gguf_vocabulary_names_its_key(
    metadata: dict[str, object], key: str, value: object, said: str
) -> None:
    with pytest.raises(TokenizerInvalid) as info:
        Tokenizer.from_metadata(put(dict(metadata), (P + key,), value))
    assert str(info.value).startswith(f"{P}{key}: {said}")
