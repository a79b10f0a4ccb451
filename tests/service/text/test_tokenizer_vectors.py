"""Vocabularies, published and our own, against the ids of their own tokenizers and of llama.cpp."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import decoders, models, pre_tokenizers

from imp_service.text import FieldInvalid, Tokenizer
from make_vocabularies import oracle_ids, rules
from support.text.own_vocabularies import COMPOSING, DEPARTURES, OTHER_KINDS, texts, vectors, vocabulary

NAMES = ("bert-bge", "deepseek-coder", "falcon", "gpt-2", "llama-spm", "mpt", "starcoder")
LOSSLESS = ("deepseek-coder", "falcon", "gpt-2", "llama-spm", "starcoder")


def _cases(vectors: Path, name: str) -> list[tuple[str, list[int]]]:
    texts = (vectors / f"{name}.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = (vectors / f"{name}.gguf.out").read_text().split("\n")
    assert len(texts) == len(lines) == 47
    return [(text, [int(token) for token in line.split()]) for text, line in zip(texts, lines, strict=True)]


@pytest.mark.parametrize("name", NAMES)
def test_txt_16_published_vectors(name: str, vectors: Path, published: Callable[[str], Tokenizer]) -> None:
    for text, ids in _cases(vectors, name):
        assert published(name).encode(text, add_special_tokens=False) == ids, text


def test_txt_16_control_a_wrong_rule_is_seen(
    vectors: Path, published_metadata: Callable[[str], dict[str, object]]
) -> None:
    wrong = Tokenizer.from_metadata(published_metadata("deepseek-coder"), pre="gpt-2")
    n_wrong = sum(wrong.encode(t, add_special_tokens=False) != ids for t, ids in _cases(vectors, "deepseek-coder"))
    assert n_wrong >= 1


@pytest.mark.parametrize("name", LOSSLESS)
def test_txt_16_t16_t19_round_trip_is_exact(name: str, published: Callable[[str], Tokenizer]) -> None:
    tokenizer = published(name)

    @settings(max_examples=150, deadline=None)
    @given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
    def check(text: str) -> None:
        try:
            ids = tokenizer.encode(text)
        except FieldInvalid as error:
            assert "has no token" in error.message
            return
        assert tokenizer.decode_bytes(ids) == text.encode()

    check()
    for text in ("\0", "\uffff", "a\ufe0f\ufe0f", "\u202eabc\u2066", "😶\u200d🌫️"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_t16_a_byte_without_a_token_is_an_error_that_names_it(published: Callable[[str], Tokenizer]) -> None:
    with pytest.raises(FieldInvalid, match="0xF2"):
        published("falcon").encode("ok \U000a0000")


def test_txt_16_gpt_2_equals_the_library_s_own_reading(
    published: Callable[[str], Tokenizer], published_metadata: Callable[[str], dict[str, object]]
) -> None:
    """The reference is the library's built-in GPT-2 with the same vocabulary, over every plane of Unicode."""
    metadata = published_metadata("gpt-2")
    tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    assert isinstance(tokens, list) and isinstance(merges, list)
    reference = LibraryTokenizer(
        models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in merges])
    )
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    reference.decoder = decoders.ByteLevel()
    for plane in range(17):
        points = [plane * 0x10000 + step for step in range(0, 0x10000, 97)]
        text = "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)
        assert published("gpt-2").encode(text) == reference.encode(text).ids, plane


@pytest.mark.parametrize("name", ["gpt-2", "falcon", "llama-spm", "bert-bge", "mpt"])
def test_txt_27_start_bytes_are_offsets_into_the_text(name: str, published: Callable[[str], Tokenizer]) -> None:
    tokenizer = published(name)
    text = "Füh rer 🦙 said: 3 llamas\n\n — ok"
    encoding = tokenizer.encode_with_offsets(text)
    assert encoding.ids == tokenizer.encode(text)
    assert encoding.start_bytes == sorted(encoding.start_bytes)
    raw = text.encode()
    if name not in ("bert-bge",):
        pieces = list(zip(encoding.ids, encoding.start_bytes, strict=True))
        for token, start in pieces:
            if token in tokenizer.special_ids:
                continue
            piece = tokenizer.token_bytes(token)
            # The first piece of a SentencePiece text begins with the space that the tokenizer adds.
            assert raw.startswith(piece, start) or (start == 0 and raw.startswith(piece[1:]))
    else:
        words = [raw[start:].split()[0] for start in encoding.start_bytes[1:-1]]
        assert words[0] == "Füh".encode()


def test_txt_16_composing_tokenizers_trace_offsets_through_composition(published: Callable[[str], Tokenizer]) -> None:
    """MPT's tokenizer composes "e" and a combining acute into one character, which is three bytes of the text."""
    encoding = published("mpt").encode_with_offsets("e\u0301 x")
    assert published("mpt").decode(encoding.ids) == "é x"
    assert encoding.start_bytes[-1] == 3


def encoded(rule: str, number: int) -> tuple[int, ...]:
    return tuple(TOKENIZERS[rule].encode(texts()[number], add_special_tokens=False))


TOKENIZERS = {rule: Tokenizer.from_metadata(vocabulary(rule)) for rule in rules()}


def test_txt_16_every_rule_has_vectors() -> None:
    assert sorted(vectors()) == sorted(rules())
    assert len(rules()) > 25
    assert len(texts()) > 70
    # Where llama.cpp is no oracle, the published vocabularies are. Most texts remain.
    assert [rule for rule in rules() if len(vectors()[rule]) < len(texts()) // 2] == []
    assert [rule for rule in rules() if rule not in DEPARTURES and len(vectors()[rule]) != len(texts())] == []


@pytest.mark.few(15)
@pytest.mark.parametrize("rule", rules())
def test_txt_16_the_ids_are_those_of_llama_cpp(rule: str) -> None:
    for number, ids in vectors()[rule].items():
        assert encoded(rule, number) == ids, texts()[number]


def test_txt_16_control_a_rule_taken_for_another_fails() -> None:
    byte_level = [rule for rule in rules() if rule not in OTHER_KINDS]
    ids = {rule: [encoded(rule, number) for number in range(len(texts()))] for rule in byte_level}
    alike = {
        (first, second)
        for first, second in itertools.combinations(byte_level, 2)
        for one, other in ((first, second), (second, first))
        if all(ids[one][number] == wanted for number, wanted in vectors()[other].items())
    }
    # llama.cpp is no oracle for Falcon's differences. The other two are names of one rule.
    assert alike == {("default", "falcon"), ("deepseek-r1-qwen", "bailingmoe")}


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule not in (*OTHER_KINDS, *COMPOSING)])
def test_txt_16_t16_byte_level_texts_come_back(rule: str) -> None:
    for number, text in enumerate(texts()):
        assert TOKENIZERS[rule].decode(list(encoded(rule, number))) == text


@pytest.mark.few(4)
@pytest.mark.parametrize("rule", rules())
def test_txt_16_the_vectors_are_what_llama_cpp_says_today(rule: str) -> None:
    pytest.importorskip("llama_cpp", reason="llama_cpp is not installed")
    assert oracle_ids(rule) == vectors()[rule]
