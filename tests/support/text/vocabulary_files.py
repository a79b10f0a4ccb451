"""Makes the vocabulary files of directories without a tokenizer.json: of SentencePiece, of BPE, and tekken.json."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest
from tokenizers import Tokenizer as Library

from support.text.hub_tokenizers import CHATML, byte_level
from support.text.own_vocabularies import texts
from support.text.tiny_vocabularies import byte_alphabet

IDENTITY = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
MODELS: dict[str, dict[str, Any]] = {
    "pairs": {"model_type": "bpe", **IDENTITY},
    "pairs, no prefix": {"model_type": "bpe", **IDENTITY, "add_dummy_prefix": False},
    "unigram": {"model_type": "unigram", **IDENTITY},
    "pairs, no extra spaces": {"model_type": "bpe", **IDENTITY, "remove_extra_whitespaces": True},
}


def trained(**options: Any) -> bytes:
    """Returns a file that SentencePiece trains on our own texts."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts()), model_writer=out, vocab_size=600, byte_fallback=True,
        character_coverage=0.98, hard_vocab_limit=False, control_symbols=list(CHATML), minloglevel=2, **options,
    )  # fmt: skip
    return out.getvalue()


def files_of_pairs(library: Library, **config: Any) -> dict[str, bytes]:
    """Returns vocab.json, merges.txt and tokenizer_config.json."""
    described = json.loads(library.to_str())
    flags = ("content", "special", "lstrip", "rstrip", "single_word", "normalized")
    decoder = {str(token["id"]): {flag: token[flag] for flag in flags} for token in described["added_tokens"]}
    lines = ["#version: 0.2", *(" ".join(pair) for pair in described["model"]["merges"]), ""]
    return {
        "vocab.json": json.dumps(described["model"]["vocab"]).encode(),
        "merges.txt": "\n".join(lines).encode(),
        "tokenizer_config.json": json.dumps({"added_tokens_decoder": decoder, **config}).encode(),
    }


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
