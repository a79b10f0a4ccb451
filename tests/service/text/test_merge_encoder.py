"""Byte-pair encoding by the core gives the ids and places of the `tokenizers` library, built from the same file."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service.text import Tokenizer
from imp_service.text.tokens.encoders import LibraryEncoder
from imp_service.text.tokens.library_tokenizer import build_backend
from imp_service.text.tokens.merge_encoder import IS_COMPOSED, MergeEncoder, encodes_merges
from imp_service.text.tokens.vocabulary import Vocabulary, read_vocabulary
from make_vocabularies import rules
from support.text.own_vocabularies import COMPOSING, OTHER_KINDS, texts, vocabulary
from support.text.tiny_vocabularies import USER_DEFINED, sentencepiece

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
PAIRS = {"▁a": -4.0, "ab": -3.0, "▁ab": -3.0, "bc": -3.0, "a▁": -9.0}
PIECES = [("▁", -1.0), *((c, -2.0) for c in "abcde"), *PAIRS.items()]
# Two of these pieces are spelled alike.
ODD = [("ab", -1.0), ("▁▁", -0.5), ("", 0.0), ("d▁e", -0.1), ("de", 0.0)]
ODD_TEXTS = ("e\u0301", "\u1112\u1161\u11ab", "か\u3099", "日本", "😀", "▁", "<0x0A>", "</s>", "\0")
SYMBOLS = ("<think>", "  ", "\n\n", "ab", "▁x", "éé")


def with_symbols(metadata: dict[str, Any]) -> dict[str, Any]:
    """The vocabulary with tokens that are found in any text."""
    n = len(metadata["tokenizer.ggml.tokens"])
    types = metadata.get("tokenizer.ggml.token_type", [1] * n)
    found = {
        "tokenizer.ggml.tokens": [*metadata["tokenizer.ggml.tokens"], *SYMBOLS],
        "tokenizer.ggml.token_type": [*types, *[USER_DEFINED] * len(SYMBOLS)],
    }
    if "tokenizer.ggml.scores" in metadata:
        found["tokenizer.ggml.scores"] = [*metadata["tokenizer.ggml.scores"], *[0.0] * len(SYMBOLS)]
    return {**metadata, **found}


def listed(*, add_space_prefix: bool) -> dict[str, Any]:
    metadata = sentencepiece([*PIECES, *ODD], add_space_prefix=add_space_prefix)
    del metadata["tokenizer.ggml.scores"]
    merges = ["a b", "▁ a", "▁a b", "b c", "a ▁", "b c", "d e"]
    named = {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.pre": "gemma4", "tokenizer.ggml.merges": merges}
    return {**metadata, **named}


BYTE_RULES = [rule for rule in rules() if rule not in OTHER_KINDS and rule != "falcon"]
OWN: dict[str, Callable[[], dict[str, Any]]] = {
    **{rule: lambda rule=rule: vocabulary(rule) for rule in [*BYTE_RULES, "llama"]},  # type: ignore[misc]
    "llama, symbols": lambda: with_symbols(vocabulary("llama")),
    "llama-bpe, symbols": lambda: with_symbols(vocabulary("llama-bpe")),
    "qwen2, symbols": lambda: with_symbols(vocabulary("qwen2")),
    "scores": lambda: sentencepiece(PIECES),
    "scores, no prefix": lambda: with_symbols(sentencepiece(PIECES, add_space_prefix=False)),
    "scores, odd": lambda: with_symbols(sentencepiece([*PIECES, *ODD])),
    "merges": lambda: listed(add_space_prefix=False),
    "merges, symbols": lambda: with_symbols(listed(add_space_prefix=True)),
}
PUBLISHED = ("deepseek-coder", "gpt-2", "llama-spm", "mpt", "starcoder")


@cache
def own(name: str) -> Vocabulary:
    return read_vocabulary(OWN[name]())


def drawn(tokens: tuple[bytes, ...], n: int, seed: int) -> Iterator[str]:
    """Pieces of texts, tokens, code points of every plane, and runs."""
    chosen = random.Random(seed)
    spelled = [token.decode("utf-8", "replace") for token in tokens]
    parts = (" ", "  ", "\n", "a", "ab", "b", *ODD_TEXTS, *SYMBOLS)
    for number in range(n):
        match number % 5:
            case 0:
                text = chosen.choice(texts())
                begin = chosen.randrange(len(text) + 1)
                yield text[begin : begin + chosen.randint(0, 60)]
            case 1:
                yield "".join(chosen.choices(spelled, k=chosen.randint(1, 8)))
            case 2:
                yield "".join(chosen.choices(parts, k=chosen.randint(1, 20)))
            case 3:
                codes = (chosen.choice((chosen.randrange(0x300), chosen.randrange(0x110000))) for _ in range(12))
                yield "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
            case _:
                yield chosen.choice(parts) * chosen.randint(1, 60)


def differing(of: Vocabulary, samples: Iterator[str] | list[str], oracle: LibraryEncoder | None = None) -> list[str]:
    """The texts for which the two encoders do not agree about ids or places."""
    merging = MergeEncoder(of)
    oracle = LibraryEncoder(build_backend(of)) if oracle is None else oracle
    kept = [text for text in samples if not set(text.encode()) & set(of.missing_bytes)]
    found = merging.ids(kept)
    expected = oracle.ids(kept)
    return [
        text
        for text, ids, wanted in zip(kept, found, expected, strict=True)
        if ids != wanted or merging.starts(text, ids) != oracle.starts(text, wanted)
    ]


@pytest.mark.parametrize("name", OWN)
def test_txt_37_the_core_gives_the_ids_of_the_library(name: str) -> None:
    assert encodes_merges(own(name))
    corpus = [path.read_bytes().decode("utf-8", "replace")[:5000] for path in sorted(CORPUS.glob("*/*"))[::7]]
    assert differing(own(name), ["", *texts(), *corpus, *drawn(own(name).token_bytes, 100, 1)]) == []


@pytest.mark.long
@pytest.mark.parametrize("name", OWN)
def test_txt_37_the_core_gives_the_ids_of_the_library_for_a_million_texts(name: str) -> None:
    assert differing(own(name), drawn(own(name).token_bytes, 1_000_000 // len(OWN) + 1, 2)) == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_txt_37_the_core_gives_the_library_s_ids_of_published_vocabularies(
    name: str, published_metadata: Callable[[str], dict[str, object]]
) -> None:
    found = read_vocabulary(published_metadata(name))
    assert differing(found, [*texts(), *drawn(found.token_bytes, 5000, 3)]) == []


@pytest.mark.parametrize("unit", ["a", "ab", " ", "▁", "字", " a", "😀"])
@pytest.mark.parametrize("name", ["gpt-2", "scores, odd", "merges, symbols"])
def test_txt_37_txt_25_very_long_words_have_the_same_ids(name: str, unit: str) -> None:
    assert differing(own(name), [unit * (2**16 // len(unit)), unit * 70 + "\n" + unit * 2**14]) == []


@pytest.mark.parametrize("name", ["gpt-2", "llama"])
def test_txt_37_control_one_other_rank_is_seen(name: str) -> None:
    oracle = LibraryEncoder(build_backend(own(name)))
    changed = OWN[name]()
    if name == "llama":
        scores = changed["tokenizer.ggml.scores"]
        place = min(i for i, token in enumerate(changed["tokenizer.ggml.tokens"]) if len(token) == 2 and scores[i] < 0)
        changed["tokenizer.ggml.scores"] = [*scores[:place], min(scores) - 1, *scores[place + 1 :]]
    else:
        first, *rest = changed["tokenizer.ggml.merges"]
        changed["tokenizer.ggml.merges"] = [*rest, first]
    assert differing(read_vocabulary(changed), list(texts()), oracle) != []


def test_txt_37_the_library_encodes_what_the_core_does_not() -> None:
    without_byte = vocabulary("llama")
    without_byte["tokenizer.ggml.token_type"] = [1 if t == 6 else t for t in without_byte["tokenizer.ggml.token_type"]]
    rewritten = vocabulary("llama") | {"tokenizer.ggml.remove_extra_whitespaces": True}
    joined_byte = sentencepiece([*PIECES, ("<0x0A>a", 0.0)])
    others = [vocabulary(rule) for rule in ("falcon", "t5", "bert")]
    for metadata in (*others, without_byte, rewritten, joined_byte):
        assert not encodes_merges(read_vocabulary(metadata))
        tokenizer = Tokenizer.from_metadata(metadata)
        assert isinstance(tokenizer._backends.first, LibraryEncoder)


def test_txt_37_composed_characters_never_change() -> None:
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    composed = [c for c in every if IS_COMPOSED.fullmatch(c)]
    parts = (unicodedata.decomposition(c).split() for c in every)
    seconds = {chr(int(part[1], 16)) for part in parts if len(part) == 2 and not part[0].startswith("<")}
    seconds |= set(map(chr, range(0x1161, 0x1176))) | set(map(chr, range(0x11A8, 0x11C3)))  # of Korean syllables
    assert len(composed) > 30_000
    assert [c for c in composed if c in seconds or unicodedata.combining(c)] == []
    assert unicodedata.is_normalized("NFC", "".join(composed))
    assert {rule for rule in COMPOSING if own(rule).cut_rules.composes} == set(COMPOSING)


NAMES = [b"<0x%02X>" % byte for byte in range(256)]


@pytest.mark.parametrize(
    ("names", "scores"), [(NAMES, [0.0] * 255), (NAMES, [0.0] * 257), (NAMES[1:], [0.0] * 255), ([], [])]
)
def test_txt_37_tables_that_do_not_fit_are_refused(names: list[bytes], scores: list[float]) -> None:
    with pytest.raises(_core.InvalidArgument):
        _core.ScoredMerges(names, np.array(scores, np.float32))


WRONG = ([(0, 4)], [(1, 2)], [(0, 2), (1, 3)], [(0, 2), (2, 1)], [(0,)], [(0, -1)], [3])


@pytest.mark.parametrize("offsets", WRONG)
def test_txt_37_words_that_are_none_of_the_text_are_refused(offsets: list[Any]) -> None:
    merges = _core.ScoredMerges(NAMES, np.zeros(256, np.float32))
    assert merges.encode("aéa", [(0, 1), (1, 3)], [-1, 7]) == [97, 7]
    with pytest.raises(_core.InvalidArgument):
        merges.encode("aéa", offsets, [])
    with pytest.raises(_core.InvalidArgument):
        merges.encode("aéa", [(0, 3)], [-1, 1])
