"""Trains the vocabularies of tests/data/vocabularies, and writes llama.cpp's ids of the texts there.

`--vectors` does not change the vocabularies. Needs gguf and llama-cpp-python (extra `peers`). The
texts and everything made from them are imp's own. Training does not split text into words, so merges cross spaces,
digits, lines and scripts: a pre-tokenizer that splits elsewhere gives other ids.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from imp_service.text.tokens.pre_tokenizers import PRE_TOKENIZERS
from support.run.needed import PEERS, needs
from support.text.own_vocabularies import (
    DEPARTURES,
    FOLDER,
    OTHER_KINDS,
    as_oracle_reads,
    texts,
    vocabulary,
)
from support.text.tiny_vocabularies import BYTE, CONTROL, NORMAL, UNKNOWN

N_MERGES = 700
SPACE = "\u2581"
UNREACHED = "\u0120nowherebutwhole"


def main() -> None:
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", action="store_true", help="write the vectors alone")
    if not parser.parse_args().vectors:
        trained = {"gpt2": _byte_level(), "llama": _scored_merges(), "t5": _unigram(), "bert": _word_piece()}
        (FOLDER / "vocabularies.json").write_text(
            json.dumps(trained, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8"
        )
    variants: list[dict[tuple[int, ...], list[str]]] = [{} for _ in texts()]
    for rule in rules():
        for number, ids in oracle_ids(rule).items():
            variants[number].setdefault(ids, []).append(rule)
    lines = [json.dumps(list(found.items()), separators=(",", ":")) for found in variants]
    (FOLDER / "vectors.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def rules() -> list[str]:
    """Returns every kind of vocabulary, and each pre-tokenizer by its first name, except those of SentencePiece."""
    first: dict[Any, str] = {}
    for name, rule in PRE_TOKENIZERS.items():
        if not rule.is_sentencepiece:
            first.setdefault(rule, name)
    return [*OTHER_KINDS, *first.values()]


def oracle_ids(rule: str) -> dict[int, tuple[int, ...]]:
    """Returns number of a text -> ids, for the texts for which llama.cpp is an oracle."""
    with needs(PEERS):
        import llama_cpp

        from support.files.gguf_contents import GgufContents
    with tempfile.TemporaryDirectory() as folder:
        path = GgufContents({"general.architecture": "llama", **vocabulary(rule)}, {}).write(Path(folder) / "v.gguf")
        model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    departs = DEPARTURES.get(rule, lambda _: False)
    return {
        number: tuple(model.tokenize(as_oracle_reads(rule, text).encode(), add_bos=False, special=False))
        for number, text in enumerate(texts())
        if not departs(text)
    }


def _byte_level() -> dict[str, Any]:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + N_MERGES, initial_alphabet=alphabet, show_progress=False, min_frequency=2
    )
    trained.train_from_iterator([text for text in texts() if UNREACHED[1:] not in text], trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda pair: pair[1])]
    # No merges lead to it: only a tokenizer that first looks up whole words finds it.
    tokens.append(UNREACHED)
    end = "<|end|>"
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [*tokens, end],
        "tokenizer.ggml.token_type": [NORMAL] * len(tokens) + [CONTROL],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.eos_token_id": len(tokens),
        "tokenizer.ggml.bos_token_id": len(tokens),
    }


def _scored_merges() -> dict[str, Any]:
    trained = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=N_MERGES, show_progress=False, min_frequency=2)
    trained.train_from_iterator([text.replace(" ", SPACE) for text in texts()], trainer)
    pieces = sorted(trained.get_vocab().items(), key=lambda pair: pair[1])
    return _sentencepiece("llama", [(piece, -float(rank)) for piece, rank in pieces])


def _unigram() -> dict[str, Any]:
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(SPACE)  # no piece of such a vocabulary crosses words
    trainer = trainers.UnigramTrainer(vocab_size=N_MERGES, show_progress=False, unk_token="<unk>")
    trained.train_from_iterator(texts(), trainer)
    pieces = json.loads(trained.to_str())["model"]["vocab"]
    # Rounded as a model file stores them.
    found = _sentencepiece("t5", [(piece, round(score, 3)) for piece, score in pieces if piece != "<unk>"])
    return {**found, "tokenizer.ggml.remove_extra_whitespaces": True}


def _sentencepiece(model: str, pieces: list[tuple[str, float]]) -> dict[str, Any]:
    special = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    of_bytes = [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    first = [*special, *of_bytes]
    return {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": [*(text for text, _ in first), *(piece for piece, _ in pieces)],
        "tokenizer.ggml.scores": [0.0] * len(first) + [score for _, score in pieces],
        "tokenizer.ggml.token_type": [*(kind for _, kind in first), *[NORMAL] * len(pieces)],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": True,
    }


def _word_piece() -> dict[str, Any]:
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=N_MERGES, special_tokens=special, show_progress=False)
    trained.train_from_iterator([text.lower() for text in texts()], trainer)
    pieces = [piece for piece, _ in sorted(trained.get_vocab().items(), key=lambda pair: pair[1])][len(special) :]
    # In a model file, pieces that begin a word have a mark; pieces that continue one have none.
    written = [piece.removeprefix("##") if piece.startswith("##") else SPACE + piece for piece in pieces]
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": [*special, *written],
        "tokenizer.ggml.token_type": [CONTROL, UNKNOWN, CONTROL, CONTROL, *[NORMAL] * len(written)],
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.eos_token_id": 3,
    }


if __name__ == "__main__":
    main()
