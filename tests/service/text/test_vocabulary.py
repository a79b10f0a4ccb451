"""An unusable tokenizer is refused with the name of the wrong key, and a draft model whose vocabulary does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import pytest

from imp_service.config import read_settings
from imp_service.core import open_file
from imp_service.text import Tokenizer, TokenizerInvalid, UnknownPreTokenizer
from imp_service.text.tokens import merges
from imp_service.text.tokens.merges import merge_pairs, require_tokens
from imp_service.text.tokens.piece_types import TokenType
from imp_service.text.tokens.pre_tokenizers import PRE_TOKENIZERS
from imp_service.text.vocabulary_match import ids_not_shared
from support.text.tiny_vocabularies import byte_alphabet, byte_level, sentencepiece

P = "tokenizer.ggml."
N = 259


def _refused(metadata: dict[str, object], key: str) -> TokenizerInvalid:
    with pytest.raises(TokenizerInvalid) as caught:
        Tokenizer.from_metadata(metadata)
    assert caught.value.reason == "TOKENIZER_INVALID"
    assert caught.value.path == P + key
    return caught.value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("token_type", [1] * (N - 1)),
        ("scores", [0.0] * (N - 1)),
        ("token_type", [1] * (N - 1) + [99]),
        ("token_type", [0] + [1] * (N - 1)),
        ("token_type", ["1"] * N),
        ("scores", [float("nan")] * N),
        ("scores", 7),
        ("tokens", []),
        ("tokens", "abc"),
        ("tokens", [1, 2]),
        ("model", "rwkv"),
        ("model", 3),
        ("add_bos_token", "yes"),
    ],
)
def test_t01_arrays_that_do_not_fit(key: str, value: object) -> None:
    _refused(byte_level() | {P + key: value}, key)


def test_t02_token_texts_too_long_and_empty() -> None:
    metadata = byte_level(control=["x" * 5000, "</s>"])
    _refused(metadata, "tokens")
    tokenizer = Tokenizer.from_metadata(byte_level(user_defined=[""], control=["</s>"]))
    assert tokenizer.token_bytes(256) == b""
    assert tokenizer.encode("abc") == [97, 98, 99]


def test_t03_nul_and_bad_utf_8_in_token_texts() -> None:
    pieces: list[object] = [*byte_alphabet(), "a\0b", b"\xff\xfe", "\udc80"]
    metadata = byte_level(control=["x", "y", "z"]) | {P + "tokens": pieces, P + "token_type": [1] * N}
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.decode_bytes([256, 257, 258]) == b"a\0b\xff\xfe\x80"
    assert tokenizer.decode([257, 65]) == "\ufffd\ufffdA"


@pytest.mark.parametrize("name", ["bos", "eos", "eot", "padding", "unknown", "mask"])
@pytest.mark.parametrize("token", [-1, N, 2**32 - 1])
def test_t04_special_ids_outside_the_vocabulary(name: str, token: int) -> None:
    error = _refused(byte_level() | {f"{P}{name}_token_id": token}, f"{name}_token_id")
    assert str(token) in error.message


@pytest.mark.parametrize("merge", ["ab", "a zz", "zz a", "a b", " a", "a ", "", "t h e", "t\nt h", "\nt h"])
def test_t05_invalid_merges_are_refused(merge: str) -> None:
    _refused(byte_level(merges=[("t", "h")]) | {P + "merges": ["t h", merge]}, "merges")


def test_t05_merges_with_line_breaks_keep_their_rank() -> None:
    """Gemma 4's files have a few of these among half a million merges."""
    lines = [b"a b", b"\n \n", b"ab c", b"c\nd e", b"\n\n \n", b"e f"]
    pieces = [part.encode() for left, right in merge_pairs_of(lines) for part in (left, right, left + right)]
    expected = [("a", "b"), ("\n", "\n"), ("ab", "c"), ("c\nd", "e"), ("\n\n", "\n"), ("e", "f")]
    assert merge_pairs(lines, pieces) == merge_pairs_of(lines) == expected
    with pytest.raises(TokenizerInvalid, match="merge 3: 'c\\\\nd' is not a token"):
        merge_pairs(lines, [piece for piece in pieces if piece != b"c\nd"])


def merge_pairs_of(lines: list[bytes]) -> list[tuple[str, str]]:
    """Returns the parts of each line."""
    parted = [line.decode().split(" ") for line in lines]
    return [(left, right) for left, right in parted]


def test_t05_only_merges_that_are_not_two_plain_words_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files have half a million merges. Looking up the parts of all takes longer than reading the rest of the file."""
    n_cut, looked_up = 0, set[int]()

    def cut(rank: int, line: bytes) -> tuple[str, str]:
        nonlocal n_cut
        n_cut += 1
        return pair(rank, line)

    def look_up(pairs: Mapping[int, tuple[str, str]], pieces: Sequence[bytes]) -> None:
        looked_up.update(pairs)
        require_tokens(pairs, pieces)

    pair = merges._pair
    monkeypatch.setattr(merges, "_pair", cut)
    monkeypatch.setattr(merges, "require_tokens", look_up)
    lines = [b"%x %x" % (n, n + 1) for n in range(1000)]
    assert len(merge_pairs(lines, [])) == 1000
    assert (n_cut, looked_up) == (0, set())
    lines[7::100] = [b"\n \n"] * 10
    assert len(merge_pairs(lines, [b"\n", b"\n\n"])) == 1000
    assert (n_cut, looked_up) == (10, set(range(7, 1000, 100)))


def test_t05_too_many_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imp_service.text.tokens.vocabulary.MAX_MERGES", 1)
    _refused(byte_level(merges=[("t", "h"), ("th", "e")]), "merges")
    metadata = byte_level()
    del metadata[P + "merges"]
    _refused(metadata, "merges")


@pytest.mark.parametrize("byte", [0x0A, 0x20, 0x41, 0x80, 0xC3, 0xE4])
def test_t06_a_byte_that_text_needs_is_missing(byte: int) -> None:
    metadata = byte_level()
    tokens = metadata[P + "tokens"]
    assert isinstance(tokens, list)
    tokens[byte] = f"other{byte}"
    error = _refused(metadata, "tokens")
    assert f"0x{byte:02X}" in error.message


def test_t10_more_ids_than_embedding_rows() -> None:
    tokenizer = Tokenizer.from_metadata(byte_level())
    for rows in (N, N + 61):
        tokenizer.require_rows(rows)
    with pytest.raises(TokenizerInvalid) as caught:
        tokenizer.require_rows(N - 1)
    assert (caught.value.reason, caught.value.path) == ("TOKENIZER_INVALID", f"{P}tokens")
    assert caught.value.message.endswith(f"{N} tokens, the model has {N - 1} embedding rows")


@pytest.mark.parametrize("pre", ["no-such-rule", None])
def test_an_unknown_pre_tokenizer_is_named_with_the_known_ones(pre: str | None) -> None:
    metadata = byte_level() | {P + "pre": pre}
    with pytest.raises(UnknownPreTokenizer) as caught:
        Tokenizer.from_metadata(metadata)
    assert caught.value.reason == "TOKENIZER_INVALID"
    for known in ("llama-bpe", "qwen2", "falcon", "set model.overrides.pre_tokenizer to "):
        assert known in caught.value.message
    assert caught.value.path == f"{P}pre"
    assert Tokenizer.from_metadata(metadata, pre="qwen2").pre == "qwen2"
    with pytest.raises(UnknownPreTokenizer) as caught:
        Tokenizer.from_metadata(metadata, pre="nope")
    assert caught.value.path == "model.overrides.pre_tokenizer"


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_every_rule_compiles_and_cuts_without_loss(name: str) -> None:
    rule = PRE_TOKENIZERS[name].build()
    text = "It's 12345 Über-CASE camelCase\n\n  x(‘天’)\t\r\n कि ١٢٣ <>~`  "
    if rule is not None:
        pieces = rule.pre_tokenize_str(text)
        alphabet = {char: byte for byte, char in enumerate(byte_alphabet())}
        assert bytes(alphabet[char] for piece, _ in pieces for char in piece).decode() == text
        assert len(pieces) > 10


@pytest.mark.parametrize(
    ("names", "text", "pieces"),
    [
        (("llama-bpe", "smaug-bpe", "glm5"), "We'LL 12345 a.\n\n b", "We|'LL| |123|45| a|.\n\n| b"),
        (("qwen2", "stablelm2"), "We'LL 123 a.\n\n b", "We|'LL| |1|2|3| a|.\n\n| b"),
        (("gpt-2", "phi-2"), "We'll 'RE 123  b", "We|'ll| '|RE| 123| | b"),
        (("starcoder", "command-r"), "x 12 y", "x| |1|2| y"),
        (("tekken",), "camelCaseABCdef 12/", "camel|Case|ABCdef| |1|2|/"),
        (("gpt-4o", "talkie"), "camelCase's 1234/\n", "camel|Case's| |123|4|/\n"),
        (("deepseek-v3", "hy_v4"), "a_bc 1234 日本ab!!\n", "a|_bc| |123|4| |日本|ab|!!\n"),
        (("deepseek-coder",), "ab 12\n", "ab| |1|2|\n"),
        (("bloom",), "a, b (c", "a|,| b| (|c"),
        (("kimi-k2",), "日本x's 1234", "日本|x's| |123|4"),
        (("qwen35",), "कि x", "कि| x"),
        # Only llama.cpp defines it: falcon's rule, except for the backtick.
        (("default",), "a `+`b 12345.x", "a| `|+|`|b| |123|45|.|x"),
        (("falcon",), "a `+`b 12345.x", "a| |`+`|b| |123|45|.|x"),
    ],
)
def test_txt_16_words_are_cut_as_published(names: tuple[str, ...], text: str, pieces: str) -> None:
    alphabet = {char: byte for byte, char in enumerate(byte_alphabet())}
    for name in names:
        rule = PRE_TOKENIZERS[name].build()
        assert rule is not None  # narrows the type
        found = [bytes(alphabet[char] for char in piece).decode() for piece, _ in rule.pre_tokenize_str(text)]
        assert found == pieces.split("|"), name


def test_sentencepiece_needs_scores_and_a_way_to_spell_everything() -> None:
    metadata = sentencepiece([("a", -1.0)])
    del metadata[P + "scores"]
    _refused(metadata, "scores")
    metadata = sentencepiece([("a", -1.0)])
    metadata[P + "tokens"] = [t if t != "<0x0A>" else "<0xZZ>" for t in metadata[P + "tokens"]]  # type: ignore[attr-defined]
    _refused(metadata, "tokens")
    metadata = sentencepiece([("a", -1.0)])
    del metadata[P + "unknown_token_id"]
    metadata[P + "token_type"] = [1] * 260
    _refused(metadata, "unknown_token_id")


TOKENS, TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    return dict(open_file(read_settings(None, [])).metadata)


def changed(metadata: dict[str, Any], tokens: dict[int, bytes], types: dict[int, int] | None = None) -> dict[str, Any]:
    """Returns the metadata with other tokens and types at these ids."""
    pieces, kinds = list(metadata[TOKENS]), list(metadata[TYPES])
    for token_id, piece in tokens.items():
        pieces[token_id] = piece
    for token_id, kind in (types or {}).items():
        kinds[token_id] = kind
    return {**metadata, TOKENS: pieces, TYPES: kinds}


def control_id(metadata: dict[str, Any]) -> int:
    return next(i for i, kind in enumerate(metadata[TYPES]) if kind == TokenType.CONTROL)


def test_spc_16_equal_vocabularies_share_every_id(model: dict[str, Any]) -> None:
    assert ids_not_shared(model, dict(model)) == ()
    assert ids_not_shared(model, changed(model, {})) == ()
    # The comparison token by token finds the same.
    with mock.patch("imp_service.text.vocabulary_match._have_equal_tables", return_value=False):
        assert ids_not_shared(model, dict(model)) == ()


def test_spc_16_another_token_is_refused_by_its_id(model: dict[str, Any]) -> None:
    first, second = model[TOKENS].index(b"!"), model[TOKENS].index(b",")
    swapped = changed(model, {first: b",", second: b"!"})
    lower = min(first, second)
    with pytest.raises(TokenizerInvalid) as refused:
        ids_not_shared(model, swapped)
    pieces = ('"!"', '","') if lower == second else ('","', '"!"')
    assert str(refused.value) == f"token {lower}: is {pieces[0]}, the model's is {pieces[1]}"


def test_spc_16_control_and_added_tokens_may_differ(model: dict[str, Any]) -> None:
    control = control_id(model)
    assert ids_not_shared(model, changed(model, {control: b"<|other|>"})) == (control,)
    ordinary = len(model[TOKENS]) - 10
    added = changed(model, {ordinary: b"<tool>"}, {ordinary: int(TokenType.USER_DEFINED)})
    assert ids_not_shared(model, added) == (ordinary,)


def test_spc_16_either_vocabulary_may_be_longer(model: dict[str, Any]) -> None:
    longer = {
        **model,
        TOKENS: [*model[TOKENS], b"<|more|>", b"<|again|>"],
        TYPES: [*model[TYPES], int(TokenType.CONTROL), int(TokenType.CONTROL)],
    }
    n = len(model[TOKENS])
    assert ids_not_shared(model, longer) == (n, n + 1)
    assert ids_not_shared(longer, model) == ()
