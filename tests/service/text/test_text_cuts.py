"""Long texts are encoded in parts: the tokens equal those of the whole, and no more is encoded than needed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from unittest.mock import patch

import pytest

from imp_service.text import NativePanic, TextSpan, Tokenizer, TooManyTokens
from imp_service.text.tokens.piece_types import VocabularyKind
from imp_service.text.tokens.text_cuts import TextCuts
from imp_service.text.tokens.vocabulary import read_vocabulary
from support.files.gguf_key_values import read_key_values
from support.text.tiny_vocabularies import byte_level, sentencepiece

WORDS = (
    *("a", "b", " ", "  ", "\n", "\n\n", "é", "字", "漢字", "。", "1", "22", "'s", "!?", "<|im_end|>", "</s>", "word"),
    *("Once upon", "\t", "\r\n", "가", "A", "Bc", " \n", " the", " and then", ".\n", "слово", " слово", "    "),
)
NAMES = ("bert-bge", "deepseek-coder", "falcon", "gpt-2", "llama-spm", "mpt", "starcoder")
PATH = Path(str(files("imp_service.models"))) / "demo.gguf"
PIECES = [("<unk>", 0.0), *((chr(c), -float(c)) for c in range(33, 127)), ("▁", -1.0), ("▁the", -2.0), ("he", -3.0)]


@pytest.fixture(scope="module")
def demo_tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(read_key_values(PATH))


def test_t12_a_panic_where_a_long_text_is_cut_is_an_error_of_that_call() -> None:
    class Panicking:
        def pre_tokenize_str(self, _text: str) -> object:
            raise type("PanicException", (BaseException,), {})("forced")

    cuts = TextCuts(read_vocabulary(byte_level(merges=[(" ", "a")])), Panicking())  # type: ignore[arg-type]
    with pytest.raises(NativePanic):
        list(cuts.parts("字" * 100, 10))


def texts(n: int, seed: int) -> Iterator[str]:
    draw = random.Random(seed)
    for _ in range(n):
        yield "".join(draw.choices(WORDS, k=draw.randrange(20, 200)))


def in_parts_of(n_chars: int) -> object:
    whole = TextCuts.parts
    return patch.object(TextCuts, "parts", lambda self, text: whole(self, text, n_chars))


def differing(tokenizer: Tokenizer, n_texts: int) -> int:
    """Counts texts whose ids or offsets depend on the cuts. Fails if too few texts are cut."""
    n_wrong = n_cut = 0
    for i, text in enumerate(texts(n_texts, seed=5)):
        spans = [TextSpan(text, i % 2 == 0)]
        try:
            expected = tokenizer.encode_spans(spans, add_special_tokens=True)
        except Exception:
            continue  # the vocabulary cannot spell this text
        offsets = tokenizer.encode_with_offsets(text, parse_special_tokens=i % 2 == 0)
        for n_chars in (8, 40):
            n_cut += len(list(tokenizer._segmenter.cuts.parts(text, n_chars))) > 1
            with in_parts_of(n_chars):
                found = tokenizer.encode_spans(spans, add_special_tokens=True)
                with_offsets = tokenizer.encode_with_offsets(text, parse_special_tokens=i % 2 == 0)
                # If the text is rewritten, offsets count characters, and in parts only those of the part.
            is_rewritten = tokenizer.kind is VocabularyKind.WORD_PIECE
            n_wrong += found != expected or with_offsets.ids != expected
            n_wrong += with_offsets != offsets and not is_rewritten
    assert n_cut > n_texts // 4
    return n_wrong


@pytest.mark.parametrize("name", NAMES)
def test_o20_tokens_do_not_depend_on_where_a_text_is_cut(name: str, published: Callable[[str], Tokenizer]) -> None:
    assert differing(published(name), 120) == 0


@pytest.mark.long
def test_o20_cuts_change_no_token_of_the_built_in_vocabulary(demo_tokenizer: Tokenizer) -> None:
    assert differing(demo_tokenizer, 120) == 0


def test_o20_control_a_cut_anywhere_changes_tokens(demo_tokenizer: Tokenizer) -> None:
    def anywhere(self: TextCuts, text: str) -> Iterator[str]:
        yield from (text[i : i + 8] for i in range(0, len(text), 8))

    with patch.object(TextCuts, "parts", anywhere):
        cut = [demo_tokenizer.encode(text) for text in texts(50, seed=5)]
    assert cut != [demo_tokenizer.encode(text) for text in texts(50, seed=5)]


def test_o20_a_vocabulary_with_tokens_across_words_is_not_cut_between_them() -> None:
    tokenizer = Tokenizer.from_metadata(sentencepiece([*PIECES, ("e▁t", -1.0)]))
    assert list(tokenizer._segmenter.cuts.parts("the the " * 100, 8)) == ["the the " * 100]
    assert len(list(Tokenizer.from_metadata(sentencepiece(PIECES))._segmenter.cuts.parts("the the " * 100, 8))) > 50


def test_o20_encoding_stops_where_the_limit_is_passed(demo_tokenizer: Tokenizer) -> None:
    spans = [TextSpan("Once upon a time. " * 50_000, False)]
    with patch.object(Tokenizer, "_encode_batch", side_effect=demo_tokenizer._encode_batch) as encoded:
        with patch.object(Tokenizer, "least_tokens", return_value=0), pytest.raises(TooManyTokens) as raised:
            demo_tokenizer.encode_spans(spans, add_special_tokens=True, most=512)
        assert encoded.call_count == 1
        assert raised.value.n_tokens > 512
        with pytest.raises(TooManyTokens):
            demo_tokenizer.encode_spans(spans, add_special_tokens=True, most=512)
        assert encoded.call_count == 1  # its size alone shows that it cannot fit


@pytest.mark.parametrize("name", NAMES)
def test_o20_the_least_number_of_tokens_is_never_more_than_the_true_one(
    name: str, published: Callable[[str], Tokenizer]
) -> None:
    tokenizer = published(name)
    hangul = "\u1112\u1161\u11ab" * 50  # composition makes one character of these three
    for text in (*texts(100, seed=6), " " * 500, hangul, "\t" * 300, "=" * 600):
        try:
            n_tokens = len(tokenizer.encode(text, add_special_tokens=False))
        except Exception:
            continue
        assert tokenizer.least_tokens(len(text.encode())) <= n_tokens


def test_o20_a_bound_is_known_where_every_byte_is_a_token_s() -> None:
    longest = len("<|endoftext|>")
    assert Tokenizer.from_metadata(byte_level()).least_tokens(10 * longest) == 10
    assert Tokenizer.from_metadata(sentencepiece(PIECES)).least_tokens(50) == 10  # <unk>
