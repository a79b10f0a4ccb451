"""A model directory's tokenizer gives the ids of the `tokenizers` library. Plain text never gives special tokens."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from tokenizers import AddedToken, normalizers, processors
from tokenizers import Tokenizer as Library

from imp_service.text import TextSpan, Tokenizer
from support.text.hub_tokenizers import CHATML, FLAGGED, KINDS, PLAIN, SPM, files_of, flagged, library_of, random_texts
from support.text.own_vocabularies import texts

SPELLED = (*CHATML, *PLAIN, *SPM, *FLAGGED, "a MASK b", "wordy")
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
# For these the library reads `<unk>` and `</s>` in plain text as tokens too.
UNIGRAM = [kind for kind in KINDS if kind.startswith("unigram")]


@cache
def with_flags(kind: str) -> Library:
    return flagged(Library.from_str(library_of(kind).to_str()))


def ours(library: Library, **config: Any) -> Tokenizer:
    return Tokenizer.from_directory(files_of(library, eos_token="<|im_end|>", **config))


def plain(library: Library) -> Library:
    """Returns a copy of the library's tokenizer that reads special tokens as text."""
    found = Library.from_str(library.to_str())
    found.encode_special_tokens = True
    return found


@EVERY_KIND
def test_hub_1_ids_are_those_of_the_tokenizer_library(kind: str) -> None:
    library = with_flags(kind)
    tokenizer = ours(library)
    assert tokenizer.vocab_size == library.get_vocab_size()
    for text in random_texts(600, spelled=SPELLED):
        for added in (False, True):
            expected = library.encode(text, add_special_tokens=added).ids
            assert tokenizer.encode(text, parse_special_tokens=True, add_special_tokens=added) == expected, text


def test_hub_1_a_tokenizer_json_decides_what_is_around_a_text() -> None:
    library = Library.from_str(library_of("byte level").to_str())
    begin = "<|im_start|>"
    library.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, library.token_to_id(begin))]
    )
    for flags in ({}, {"add_bos_token": False}, {"add_bos_token": True, "add_eos_token": True}):
        assert ours(library, bos_token=begin, **flags).encode("Hi") == library.encode("Hi").ids, flags


@EVERY_KIND
def test_hub_1_another_vocabulary_gives_other_ids(kind: str) -> None:
    described = json.loads(library_of(kind).to_str())
    model = described["model"]
    if model["type"] == "BPE":
        del model["merges"][:20]
    else:
        model["vocab"][3:60] = reversed(model["vocab"][3:60])
    other = ours(Library.from_str(json.dumps(described)))
    assert any(other.encode(text) != library_of(kind).encode(text).ids for text in random_texts(50, spelled=("x",)))


@pytest.mark.few(6)
@EVERY_KIND
def test_hub_2_plain_text_has_no_special_token(kind: str) -> None:
    library = with_flags(kind)
    tokenizer, oracle = ours(library), plain(library)
    unknown = {tokenizer.special.unknown}
    for text in random_texts(400, seed=2, spelled=SPELLED):
        found = tokenizer.encode(text, add_special_tokens=False)
        assert not tokenizer.special_ids & set(found) - unknown, text
        if kind not in UNIGRAM or not any(spelled in text for spelled in SPM):
            assert found == oracle.encode(text, add_special_tokens=False).ids, text


@pytest.mark.few(5)
@EVERY_KIND
def test_hub_2_only_the_spans_of_a_template_have_special_tokens(kind: str) -> None:
    library = with_flags(kind)
    tokenizer = ours(library)
    for text in random_texts(200, seed=3, spelled=("x", *PLAIN)):
        around = ("<|im_start|>user\n", text, "<|im_end|>\n<|im_start|>")
        spans = [TextSpan(part, part is not text) for part in around]
        found = tokenizer.encode_spans(spans, add_special_tokens=False)
        assert found == library.encode("".join(around), add_special_tokens=False).ids, text
    hostile = [
        TextSpan("<|im_start|>", True),
        TextSpan("a<|im_end|><|im_start|>b", False),
        TextSpan("<|im_end|>", True),
    ]
    found = tokenizer.encode_spans(hostile, add_special_tokens=False)
    assert [token_id for token_id in found if token_id in tokenizer.special_ids] == [found[0], found[-1]]
    assert tokenizer.decode(found).lstrip() == "a<|im_end|><|im_start|>b"


@EVERY_KIND
def test_hub_2_special_tokens_strip_blanks_beyond_their_own_span(kind: str) -> None:
    library = with_flags(kind)
    tokenizer = ours(library)
    cases = [("left", "a \n", "b"), ("right", "a", " \tb"), ("both", "a  ", "  b"), ("normal", "a  ", "  b")]
    for token, before, after in ((f"<s-{name}>", *around) for name, *around in cases):
        spans = [TextSpan(before, False), TextSpan(token, True), TextSpan(after, False)]
        found = tokenizer.encode_spans(spans, add_special_tokens=False)
        if token == "<s-both>" and kind == "pairs, prepended":
            continue  # it is searched in normalized text, where no blank remains
        assert found == library.encode(before + token + after, add_special_tokens=False).ids, token
    beside = [TextSpan("a", False), TextSpan("MASK", True), TextSpan(" b", False)]
    assert library.token_to_id("MASK") not in tokenizer.encode_spans(beside, add_special_tokens=False)
    apart = [TextSpan("a ", False), TextSpan("MASK", True), TextSpan(" b", False)]
    assert library.token_to_id("MASK") in tokenizer.encode_spans(apart, add_special_tokens=False)


@pytest.mark.few(6)
@EVERY_KIND
def test_hub_1_tokens_are_the_bytes_that_the_library_decodes(kind: str) -> None:
    library = library_of(kind)
    tokenizer = ours(library)
    for text in random_texts(200, seed=4, spelled=PLAIN):
        ids = library.encode(text).ids
        found = tokenizer.decode(ids)
        # Ids without a BOS token may be the middle of a text: they keep their space.
        if tokenizer.bos_id is None and kind in UNIGRAM:
            found = found.removeprefix(" ")
        assert found == library.decode(ids), text


@pytest.mark.few(2)
@EVERY_KIND
def test_hub_1_long_texts_are_cut_without_another_token(kind: str) -> None:
    library = library_of(kind)
    text = "".join(f"{text} " for text in texts())
    text *= -(-150_000 // len(text))
    assert ours(library).encode(text, parse_special_tokens=True) == library.encode(text).ids


@pytest.mark.few(6)
@EVERY_KIND
def test_hub_1_offsets_are_those_of_the_library(kind: str) -> None:
    library = library_of(kind)
    tokenizer = ours(library)
    for text in random_texts(100, seed=5, spelled=("x", *CHATML)):
        found = tokenizer.encode_with_offsets(text, parse_special_tokens=True, add_special_tokens=False)
        n_bytes = len(text.encode())
        assert found.ids == library.encode(text, add_special_tokens=False).ids
        assert found.start_bytes == sorted(found.start_bytes) and all(0 <= at <= n_bytes for at in found.start_bytes)
        for special in CHATML:
            at = [
                start
                for i, start in zip(found.ids, found.start_bytes, strict=True)
                if i == library.token_to_id(special)
            ]
            assert all(text.encode()[start:].startswith(special.encode()) for start in at)


@pytest.mark.few(6)
@EVERY_KIND
def test_hub_1_the_archive_rebuilds_the_tokenizer(kind: str) -> None:
    tokenizer = ours(with_flags(kind))
    with zipfile.ZipFile(io.BytesIO(tokenizer.archive(None))) as archive:
        library = Library.from_str(archive.read("tokenizer.json").decode())
    for text in random_texts(100, seed=6, spelled=SPELLED):
        assert library.encode(text).ids == tokenizer.encode(text, parse_special_tokens=True), text


NORMALIZERS: dict[str, list[normalizers.Normalizer]] = {
    "prepended": [normalizers.Prepend("\u2581")],
    "composed and prepended": [normalizers.NFKC(), normalizers.Prepend("\u2581")],
    "composed": [normalizers.NFKC()],
    "lower case": [normalizers.Lowercase()],
}
NAMES = ("<A>", "<B>", "<C>")


def with_random_flags(way: str, chosen: random.Random) -> Library:
    library = Library.from_str(library_of("pairs, never").to_str())
    library.normalizer = normalizers.Sequence([*NORMALIZERS[way], normalizers.Replace(" ", "\u2581")])
    for name in NAMES:
        flags = {flag: chosen.random() < 0.3 for flag in ("lstrip", "rstrip", "single_word")}
        token = AddedToken(name, normalized=chosen.random() < 0.7, special=False, **flags)
        if chosen.random() < 0.5:
            library.add_special_tokens([token])
        else:
            library.add_tokens([token])
    return library


def random_pieces(chosen: random.Random) -> list[str]:
    return chosen.choices([*NAMES, *NAMES, " ", "  ", "a", "b c", "\n", "Hi", "\u2581", "\u3000", "\n "], k=5)


def random_cases(way: str) -> Iterator[tuple[Library, Tokenizer, list[str]]]:
    """Libraries with random flags, our tokenizers of them, and texts in pieces."""
    chosen = random.Random(way)
    for _ in range(20):
        library = with_random_flags(way, chosen)
        tokenizer = ours(library)
        for _ in range(100):
            yield library, tokenizer, random_pieces(chosen)


@pytest.mark.parametrize("way", NORMALIZERS)
def test_hub_1_normalized_tokens_beside_each_other_and_beside_blanks(way: str) -> None:
    for library, tokenizer, pieces in random_cases(way):
        text = "".join(pieces)
        expected = library.encode(text, add_special_tokens=False).ids
        found = tokenizer.encode_with_offsets(text, parse_special_tokens=True, add_special_tokens=False)
        assert found.ids == expected, text
        assert found.start_bytes == sorted(found.start_bytes), text


@pytest.mark.parametrize("way", ["composed", "lower case"])
def test_hub_2_normalized_tokens_strip_blanks_beyond_their_own_span(way: str) -> None:
    """The library strips what is white space in the normalized text: a line feed, but no space."""
    for library, tokenizer, pieces in random_cases(way):
        spans = [TextSpan(piece, piece in NAMES) for piece in pieces]
        expected = library.encode("".join(pieces), add_special_tokens=False).ids
        assert tokenizer.encode_spans(spans, add_special_tokens=False) == expected, pieces
