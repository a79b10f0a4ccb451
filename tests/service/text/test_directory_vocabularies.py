"""Vocabularies of directories without a tokenizer.json: SentencePiece's file, BPE in two files, Mistral's file."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest
from tokenizers import Tokenizer as Library

from imp_service.text import Tokenizer, TokenizerInvalid, UnknownPreTokenizer
from support.hub_tokenizers import CHATML, byte_level, library_of, random_texts
from support.own_vocabularies import texts
from support.tiny_vocabularies import byte_alphabet

IDENTITY = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
MODELS: dict[str, dict[str, Any]] = {
    "pairs": {"model_type": "bpe", **IDENTITY},
    "pairs, no prefix": {"model_type": "bpe", **IDENTITY, "add_dummy_prefix": False},
    "unigram": {"model_type": "unigram", **IDENTITY},
}


def trained(**options: Any) -> bytes:
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts()), model_writer=out, vocab_size=600, byte_fallback=True,
        character_coverage=0.98, hard_vocab_limit=False, control_symbols=list(CHATML), minloglevel=2, **options,
    )  # fmt: skip
    return out.getvalue()


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


def files_of_pairs(library: Library, **config: Any) -> dict[str, bytes]:
    described = json.loads(library.to_str())
    flags = ("content", "special", "lstrip", "rstrip", "single_word", "normalized")
    decoder = {str(token["id"]): {flag: token[flag] for flag in flags} for token in described["added_tokens"]}
    lines = ["#version: 0.2", *(" ".join(pair) for pair in described["model"]["merges"]), ""]
    return {
        "vocab.json": json.dumps(described["model"]["vocab"]).encode(),
        "merges.txt": "\n".join(lines).encode(),
        "tokenizer_config.json": json.dumps({"added_tokens_decoder": decoder, **config}).encode(),
    }


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


def tekken() -> tuple[bytes, Library]:
    """Returns a file of ranks, and the same vocabulary in the library: 3 special tokens, then tokens by rank."""
    library = byte_level("tekken", composes=False, ignore_merges=True)
    described = json.loads(library.to_str())
    byte_of = {char: byte for byte, char in enumerate(byte_alphabet())}
    bytes_first = [bytes([byte]) for byte in range(256)]
    spelled = [bytes(byte_of[char] for char in name) for name in described["model"]["vocab"]]
    ranks = [*bytes_first, *(piece for piece in spelled if len(piece) > 1)]
    described["model"]["vocab"] = {"".join(byte_alphabet()[b] for b in piece): 3 + i for i, piece in enumerate(ranks)}
    described["added_tokens"] = []
    (split, _) = described["pre_tokenizer"]["pretokenizers"]
    file = {
        "config": {
            "pattern": split["pattern"]["Regex"],
            "default_vocab_size": 3 + len(ranks),
            "default_num_special_tokens": 3,
        },
        "vocab": [{"rank": i, "token_bytes": base64.b64encode(piece).decode()} for i, piece in enumerate(ranks)],
        "special_tokens": [{"rank": i, "token_str": text} for i, text in enumerate(("<unk>", "<s>", "</s>"))],
    }
    return json.dumps(file).encode(), Library.from_str(json.dumps(described))


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
