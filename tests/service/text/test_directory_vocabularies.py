"""Vocabularies of directories without a tokenizer.json: SentencePiece's file, BPE in two files, Mistral's file."""

from __future__ import annotations

import random

import pytest

from imp_service.text import Tokenizer, TokenizerInvalid, UnknownPreTokenizer
from support.text.hub_tokenizers import CHATML, library_of, random_texts
from support.text.own_vocabularies import texts
from support.text.vocabulary_files import MODELS, files_of_pairs, tekken, trained


@pytest.mark.parametrize("name", MODELS)
def test_hub_11_ids_are_those_of_sentencepiece(name: str) -> None:
    content = trained(**MODELS[name])
    import sentencepiece

    oracle = sentencepiece.SentencePieceProcessor(model_proto=content)
    tokenizer = Tokenizer.from_directory({"tokenizer.model": content})
    assert (tokenizer.vocab_size, tokenizer.special.unknown) == (oracle.get_piece_size(), 0)
    assert (tokenizer.bos_id, tokenizer.special.eos) == (1, 2)
    for text in random_texts(500, seed=31, spelled=(*CHATML, "<s>", "x")):
        assert tokenizer.encode(text, add_special_tokens=False) == oracle.encode(text), text
    end = oracle.piece_to_id("<|im_end|>")
    assert tokenizer.encode("<|im_end|>", add_special_tokens=False, parse_special_tokens=True) == [end]
    other = Tokenizer.from_directory({"tokenizer.model": trained(**MODELS[name], split_digits=True)})
    assert any(other.encode(text) != tokenizer.encode(text) for text in texts())


# User-defined symbols of a file. Of symbols that overlap themselves a unigram model may choose others.
SYMBOLS = {name: ["<U>", "<think>", "xy", *(("\n\n",) if name != "unigram" else ())] for name in MODELS}
SYMBOLS["pairs"] += ["\u2581\u2581", "  "]
SYMBOLS["pairs, no prefix"] += ["\u2581\u2581", "  "]


def texts_with(symbols: list[str]) -> list[str]:
    chosen = random.Random(41)
    pieces = [*symbols, *symbols, " ", "  ", "a", "b c", "Hi", "\n", ".", "\u2581", "\u3000"]
    return ["", *symbols, *("".join(chosen.choices(pieces, k=chosen.randint(1, 7))) for _ in range(500))]


@pytest.mark.parametrize("name", MODELS)
def test_hub_11_user_defined_symbols_are_those_of_sentencepiece(name: str) -> None:
    """A text has one space in front of it, and none behind a symbol."""
    symbols = SYMBOLS[name]
    content = trained(**MODELS[name], user_defined_symbols=symbols)
    import sentencepiece

    oracle = sentencepiece.SentencePieceProcessor(model_proto=content)
    tokenizer = Tokenizer.from_directory({"tokenizer.model": content})
    for text in [*texts_with(symbols), *random_texts(100, seed=42, spelled=("<U>",)), "the <U>" * 12_000]:
        expected = oracle.encode(text)
        found = tokenizer.encode_with_offsets(text, add_special_tokens=False)
        assert tokenizer.encode(text, add_special_tokens=False) == found.ids == expected, text[:100]
        assert found.start_bytes == sorted(found.start_bytes), text[:100]
        assert tokenizer.encode(text, add_special_tokens=False, parse_special_tokens=True) == expected, text[:100]
    without = Tokenizer.from_directory({"tokenizer.model": trained(**MODELS[name])})
    assert any(without.encode(text, add_special_tokens=False) != oracle.encode(text) for text in texts_with(symbols))


@pytest.mark.parametrize("name", MODELS)
def test_hub_11_t11_a_cut_model_and_a_piece_of_an_unknown_type_are_refused(name: str) -> None:
    content = trained(**MODELS[name])
    unknown = b"\x18\x02"  # the type of the first piece
    for broken, said in (
        (content[:-1], "tokenizer.model: is no SentencePiece model"),
        (content[:5], "tokenizer.model: is no SentencePiece model"),
        (content.replace(unknown, b"\x18\x63", 1), "tokenizer.model: token_type: token 0: unknown type 99"),
    ):
        with pytest.raises(TokenizerInvalid) as info:
            Tokenizer.from_directory({"tokenizer.model": broken})
        assert str(info.value).startswith(said)


def test_hub_11_t11_spaces_at_the_ends_of_words_are_refused() -> None:
    content = trained(**MODELS["unigram"], treat_whitespace_as_suffix=True)
    with pytest.raises(TokenizerInvalid, match=r"tokenizer\.model: treat_whitespace_as_suffix: "):
        Tokenizer.from_directory({"tokenizer.model": content})


def test_hub_11_vocab_and_merges_are_the_pairs_of_their_class() -> None:
    library = library_of("byte level")
    files = files_of_pairs(library, tokenizer_class="Qwen2TokenizerFast", eos_token="<|im_end|>")
    named = Tokenizer.from_directory(files_of_pairs(library), pre="qwen2")
    tokenizer = Tokenizer.from_directory(files)
    for text in random_texts(500, seed=32):
        expected = library.encode(text).ids
        assert tokenizer.encode(text, parse_special_tokens=True) == expected, text
        assert named.encode(text, parse_special_tokens=True) == expected, text
    assert tokenizer.eos_ids == {library.token_to_id("<|im_end|>")}
    other = Tokenizer.from_directory(files_of_pairs(library), pre="gpt-2")
    assert any(other.encode(text) != named.encode(text) for text in texts())


def test_hub_11_tekken_is_mistral_s_vocabulary() -> None:
    content, library = tekken()
    tokenizer = Tokenizer.from_directory({"tekken.json": content})
    for text in random_texts(500, seed=33, spelled=("x", "</s>")):
        assert tokenizer.encode(text) == [1, *library.encode(text).ids], text
    assert tokenizer.roles == {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    assert tokenizer.encode("</s>", parse_special_tokens=True, add_special_tokens=False) == [2]


def test_hub_11_a_vocabulary_that_is_not_clear_is_refused() -> None:
    library = library_of("byte level")
    cases: list[tuple[dict[str, bytes], str]] = [
        ({"tokenizer.model": b"\xff\xff"}, "tokenizer.model: is no SentencePiece model"),
        ({"tokenizer.model": b""}, "tokenizer.model: is no SentencePiece model"),
        ({"tekken.json": b"{}"}, "tekken.json: config: missing"),
        ({"tekken.json": tekken()[0].replace(b'"AA=="', b'"A"')}, "tekken.json: vocab[0].token_bytes: not base64"),
        ({**files_of_pairs(library, tokenizer_class="Qwen2Tokenizer"), "merges.txt": b"\xff"}, "merges.txt: not UTF-8"),
        ({"vocab.json": b"{}"}, "tokenizer.json: missing: imp reads a directory's text with one of "),
    ]
    for files, said in cases:
        with pytest.raises(TokenizerInvalid) as info:
            Tokenizer.from_directory(files)
        assert str(info.value).startswith(said)
    with pytest.raises(UnknownPreTokenizer, match=r"tokenizer_class missing; set model\.overrides\.pre_tokenizer"):
        Tokenizer.from_directory(files_of_pairs(library))
    with pytest.raises(TokenizerInvalid, match=r"tekken\.json states how words are cut, expected none"):
        Tokenizer.from_directory({"tekken.json": tekken()[0]}, pre="gpt-2")
