"""BERT's WordPiece gives the ids and types of the `tokenizers` library, from each file that may describe it."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Iterator
from functools import cache

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import processors

from imp_service.text import TextSpan, Tokenizer, TokenizerInvalid
from imp_service.text.tokens.pair_form import PairForm
from support.text.hub_tokenizers import (
    BERT,
    CHATML,
    FLAGGED,
    PLAIN,
    WORD_PIECES,
    files_of,
    flagged,
    library_of,
    random_texts,
)
from support.text.own_vocabularies import texts

EVERY_KIND = pytest.mark.parametrize("kind", WORD_PIECES)
# First and last characters of scripts, signs and marks that the normalizer treats in different ways.
SCRIPTS = (
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5FF),
    (0x600, 0x6FF), (0x900, 0x97F), (0xB80, 0xBFF), (0xE00, 0xE7F), (0x10A0, 0x10FF), (0x1100, 0x11FF),
    (0x1200, 0x137F), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20A0, 0x214F), (0x2190, 0x22FF), (0x3000, 0x30FF),
    (0x3400, 0x34FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE00, 0xFEFF), (0xFF00, 0xFFEF),
    (0x1D400, 0x1D7FF), (0x1F300, 0x1F6FF), (0x20000, 0x200FF), (0x0, 0x1F), (0xE000, 0xE00F),
)  # fmt: skip
N_LINES = 10_000


def lines_of_many_scripts() -> Iterator[str]:
    chosen = random.Random(61)
    for _ in range(N_LINES):
        words = []
        for _ in range(chosen.randint(1, 4)):
            first, last = chosen.choice(SCRIPTS)
            words.append("".join(chr(chosen.randint(first, last)) for _ in range(chosen.randint(1, 6))))
        words.append(chosen.choice(texts())[: chosen.randint(0, 20)])
        yield chosen.choice(("", " ", "  ")).join(words)


@cache
def lines() -> list[str]:
    return list(lines_of_many_scripts())


def ours(library: Library, **config: str) -> Tokenizer:
    return Tokenizer.from_directory(files_of(library, **config))


def plain(library: Library) -> Library:
    found = Library.from_str(library.to_str())
    found.encode_special_tokens = True
    return found


@EVERY_KIND
def test_emb_10_ids_are_those_of_the_library_on_lines_of_many_scripts(kind: str) -> None:
    tokenizer, oracle = ours(library_of(kind)), plain(library_of(kind))
    expected = [each.ids for each in oracle.encode_batch(lines())]
    assert [tokenizer.encode(line) for line in lines()] == expected
    other = plain(library_of(next(name for name in WORD_PIECES if name != kind)))
    assert [each.ids for each in other.encode_batch(lines())] != expected


@EVERY_KIND
def test_emb_10_special_tokens_are_parsed_as_the_library_does_and_never_in_text(kind: str) -> None:
    library = flagged(Library.from_str(library_of(kind).to_str()))
    tokenizer, oracle = ours(library), plain(library)
    assert tokenizer.vocab_size == library.get_vocab_size()
    for text in random_texts(600, spelled=(*BERT, *CHATML, *PLAIN, *FLAGGED, "a MASK b", "##ing", "[unused1]")):
        assert tokenizer.encode(text, parse_special_tokens=True) == library.encode(text).ids, text
        found = tokenizer.encode(text, add_special_tokens=False)
        assert found == oracle.encode(text, add_special_tokens=False).ids, text
        assert not tokenizer.special_ids & set(found) - {tokenizer.special.unknown}, text
    spans = [TextSpan("[CLS]", True), TextSpan("[SEP] Hello", False), TextSpan("[SEP]", True)]
    found = tokenizer.encode_spans(spans, add_special_tokens=False)
    assert [each for each in found if each in (2, 3)] == [2, 3]


@EVERY_KIND
def test_emb_10_a_pair_has_the_ids_and_types_of_the_library(kind: str) -> None:
    for post_processor in (None, processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))):
        library = plain(library_of(kind))
        if post_processor is not None:
            library.post_processor = post_processor
        form = ours(library).pair_form
        assert isinstance(form, PairForm)
        tokenizer, chosen = ours(library), random_texts(200, seed=3, spelled=BERT)
        for first, second in zip(chosen[::2], chosen[1::2], strict=True):
            pair = (tokenizer.encode(each, add_special_tokens=False) for each in (first, second))
            ids, types_from = form.joined(*pair)
            expected = library.encode(first, second)
            assert ids == expected.ids
            assert [int(types_from is not None and i >= types_from) for i in range(len(ids))] == expected.type_ids


def test_emb_10_roberta_puts_two_ends_between_a_pair_of_one_type() -> None:
    library = plain(library_of("byte level"))
    begin, end = CHATML
    named = [(token, library.token_to_id(token)) for token in (end, begin)]
    library.post_processor = processors.RobertaProcessing(*named, add_prefix_space=False)
    tokenizer = ours(library)
    form, expected = tokenizer.pair_form, library.encode("one", "two")
    assert isinstance(form, PairForm)
    joined = form.joined(*(tokenizer.encode(text, add_special_tokens=False) for text in ("one", "two")))
    assert joined == (expected.ids, None)
    assert not any(expected.type_ids)


def test_emb_10_a_pair_that_mixes_types_or_swaps_its_texts_has_no_form() -> None:
    for pair in ("[CLS] $B [SEP] $A:1 [SEP]:1", "[CLS] $A:1 [SEP] $B [SEP]", "[CLS] $A [SEP] $B:2", "[CLS] $A [SEP]"):
        library = plain(library_of("word piece"))
        described = json.loads(library.to_str())
        special = [("[CLS]", 2), ("[SEP]", 3)]
        try:
            library.post_processor = processors.TemplateProcessing(single="$A", pair=pair, special_tokens=special)
            described = json.loads(library.to_str())
        except ValueError:  # the library wants both texts; a file need not have them
            del described["post_processor"]["pair"][3:]
        tokenizer = Tokenizer.from_directory({"tokenizer.json": json.dumps(described).encode()})
        assert tokenizer.pair_form is None, pair


def word_list(library: Library) -> bytes:
    ids = library.get_vocab(with_added_tokens=False)
    return "\n".join(sorted(ids, key=ids.__getitem__)).encode() + b"\n"


@EVERY_KIND
def test_emb_10_a_list_of_words_and_a_gguf_file_give_the_same_ids(kind: str) -> None:
    library = library_of(kind)
    described = json.loads(library.to_str())["normalizer"]
    config = {"do_lower_case": described["lowercase"], "strip_accents": described["strip_accents"]}
    listed = Tokenizer.from_directory(
        {"vocab.txt": word_list(library), "tokenizer_config.json": json.dumps(config).encode()}
    )
    in_gguf = Tokenizer.from_metadata(gguf_keys(library))
    oracle = plain(library)
    for text in [*random_texts(300, spelled=("##ing", "[unused1]")), *lines()[:300]]:
        expected = oracle.encode(text)
        assert listed.encode(text) == in_gguf.encode(text) == expected.ids, text
    assert listed.pair_form == in_gguf.pair_form == ours(library).pair_form
    assert listed.table.token_bytes == in_gguf.table.token_bytes
    other = Tokenizer.from_directory({"vocab.txt": word_list(library), "tokenizer_config.json": b'{"cls_token": "a"}'})
    assert other.encode("Hi")[0] == library.token_to_id("a")


def gguf_keys(library: Library) -> dict[str, object]:
    """The metadata that llama.cpp's converter writes."""
    ids = library.get_vocab(with_added_tokens=False)
    names = sorted(ids, key=ids.__getitem__)
    described = json.loads(library.to_str())["normalizer"]
    strips = described["strip_accents"]
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": [
            name if name in BERT else name[2:] if name.startswith("##") else f"\u2581{name}" for name in names
        ],
        "tokenizer.ggml.token_type": [3 if name in BERT else 1 for name in names],
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.normalizer.lowercase": described["lowercase"],
        "tokenizer.ggml.normalizer.strip_accents": described["lowercase"] if strips is None else strips,
    }


@EVERY_KIND
def test_emb_10_long_texts_offsets_and_the_archive_are_those_of_the_library(kind: str) -> None:
    library = library_of(kind)
    tokenizer = ours(library)
    text = " ".join(texts())
    text *= -(-60_000 // len(text))
    assert tokenizer.encode(text, parse_special_tokens=True) == library.encode(text).ids
    for short in random_texts(100, seed=5, spelled=("x", *CHATML)):
        found = tokenizer.encode_with_offsets(short, parse_special_tokens=True, add_special_tokens=False)
        assert found.ids == library.encode(short, add_special_tokens=False).ids
        assert found.start_bytes == sorted(found.start_bytes), short
    with zipfile.ZipFile(io.BytesIO(tokenizer.archive(None))) as archive:
        rebuilt = Library.from_str(archive.read("tokenizer.json").decode())
    for short in random_texts(100, seed=6, spelled=BERT):
        assert rebuilt.encode(short).ids == tokenizer.encode(short, parse_special_tokens=True), short


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"vocab.txt": b"a\nb\n"}, "vocab.txt: '[UNK]', the unk_token, is missing"),
        ({"vocab.txt": b"a\na\n"}, "vocab.txt: a token twice"),
        ({"vocab.txt": b"\xff\n"}, "vocab.txt: not UTF-8"),
    ],
)
def test_emb_10_t11_a_list_of_words_that_is_not_clear_is_refused(files: dict[str, bytes], said: str) -> None:
    with pytest.raises(TokenizerInvalid) as info:
        Tokenizer.from_directory(files)
    assert str(info.value).startswith(said)


@pytest.mark.parametrize(
    ("place", "name", "value", "said"),
    [
        ("model", "continuing_subword_prefix", "@@", "model.continuing_subword_prefix: '@@', expected ##"),
        ("model", "max_input_chars_per_word", 10**9, "model.max_input_chars_per_word: 1000000000, expected 1 to 1000"),
        ("model", "unk_token", "no such", "model.unk_token: 'no such': not in the vocabulary"),
        ("pre_tokenizer", "type", "Whitespace", "pre_tokenizer: Whitespace, expected with WordPiece: BertPreTokenizer"),
    ],
)
def test_emb_10_t11_a_word_piece_of_another_form_is_refused(place: str, name: str, value: object, said: str) -> None:
    document = json.loads(library_of("word piece").to_str())
    document[place][name] = value
    with pytest.raises(TokenizerInvalid) as info:
        Tokenizer.from_directory({"tokenizer.json": json.dumps(document).encode()})
    assert str(info.value) == f"tokenizer.json: {said}"


def test_emb_10_t11_a_normalized_token_that_strips_spaces_is_refused() -> None:
    document = json.loads(library_of("word piece").to_str())
    document["added_tokens"][-1] |= {"normalized": True, "lstrip": True}
    with pytest.raises(TokenizerInvalid, match="normalized and strips spaces, expected one of them"):
        Tokenizer.from_directory({"tokenizer.json": json.dumps(document).encode()})


@pytest.mark.parametrize("kind", ["word piece", "byte level", "pairs, prepended", "unigram, first"])
def test_emb_10_many_texts_have_the_ids_that_each_has_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = ours(library_of(kind))
    found = [*random_texts(300, seed=7, spelled=CHATML), "", " ".join(texts()) * 3]
    inputs = [[TextSpan("<|im_start|>query: ", True), TextSpan(text, False)] for text in found]
    expected = [tokenizer.encode_spans(spans, add_special_tokens=False) for spans in inputs]
    for most in (1, 100, 100_000):
        monkeypatch.setattr("imp_service.text.tokens.tokenizer.MANY_CHARS", most)
        assert tokenizer.encode_many(inputs) == expected
    assert tokenizer.encode_many([]) == []
