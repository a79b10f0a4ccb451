"""The tokenizer's rules on vocabularies small enough to check by hand."""

from __future__ import annotations

import io
import random
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imp_service.text import FieldInvalid, TextSpan, Tokenizer
from imp_service.text.errors import NativePanic, native_boundary
from support.oracles import tolerances
from support.text.tiny_vocabularies import CONTROL, NORMAL, UNUSED, byte_level, sentencepiece, spell

CHATML = Tokenizer.from_metadata(byte_level(merges=[("t", "h"), ("th", "e")], user_defined=["<think>"]))
IM_END = CHATML.vocab_size - 1
IM_START = IM_END - 1
SPM = Tokenizer.from_metadata(
    sentencepiece([("▁", -5.0), ("a", -6.0), ("b", -7.0), ("▁a", -1.0), ("ab", -2.0), ("▁ab", -3.0)])
)


def test_txt_17_t15_special_tokens_in_text_are_text() -> None:
    for spelling in ("<|im_end|>", "<|im_start|>system", "<|endoftext|>", "x<|im_end|><|im_end|>y"):
        ids = CHATML.encode(spelling)
        assert not set(ids) & CHATML.special_ids
        assert CHATML.decode(ids) == spelling


def test_rpc_34_txt_17_t15_placeholders_of_images_are_text() -> None:
    placeholders = ["<|image_pad|>", "<image_soft_token>", "[IMG]", "<|vision_start|>"]
    tokenizer = Tokenizer.from_metadata(byte_level(control=placeholders))
    for spelling in placeholders:
        ids = tokenizer.encode(f"a{spelling}b")
        assert not set(ids) & tokenizer.special_ids
        assert tokenizer.decode(ids) == f"a{spelling}b"
        assert set(tokenizer.encode(spelling, parse_special_tokens=True)) & tokenizer.special_ids


def test_txt_17_special_tokens_are_read_where_asked_for() -> None:
    ids = CHATML.encode("the<|im_end|>\n<|im_start|>", parse_special_tokens=True)
    assert ids == [257, IM_END, 10, IM_START]


def test_txt_17_no_text_reaches_a_control_token_that_merges_would_make() -> None:
    metadata = byte_level(merges=[("s", "x"), ("sx", "y")], control=["</s>"])
    types = metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    types[257] = CONTROL
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.encode("sxy") == [256, ord("y")]
    assert tokenizer.encode("sxy", parse_special_tokens=True) == [257]


def test_txt_17_spans_join_as_text_and_only_trusted_ones_hold_special_tokens() -> None:
    spans = [TextSpan("<|im_start|>t", True), TextSpan("he<|im_end|>", False), TextSpan("<|im_end|>", True)]
    ids = CHATML.encode_spans(spans, add_special_tokens=False)
    assert ids[0] == IM_START and ids[-1] == IM_END
    assert ids[1] == 257, "a token may lie across the border of two spans"
    assert CHATML.decode(ids[1:-1]) == "the<|im_end|>"
    assert not set(ids[1:-1]) & CHATML.special_ids


def test_txt_17_a_special_token_may_not_be_completed_by_user_text() -> None:
    spans = [TextSpan("<|im_", True), TextSpan("end|>", False), TextSpan("<|im_end", True), TextSpan("|>", False)]
    assert not set(CHATML.encode_spans(spans, add_special_tokens=False)) & CHATML.special_ids


def test_user_defined_tokens_are_found_in_any_text() -> None:
    think = 258
    assert CHATML.encode("the<think>the") == [257, think, 257]
    assert CHATML.decode([think]) == "<think>"


def test_txt_15_special_tokens_are_rendered_only_where_asked_for() -> None:
    ids = [257, IM_END, 257]
    assert CHATML.decode(ids) == "thethe"
    assert CHATML.decode(ids, special_tokens=True) == "the<|im_end|>the"


@pytest.mark.long
def test_txt_26_t17_all_single_bytes_and_all_pairs() -> None:
    for first in range(256):
        assert CHATML.decode_bytes([first]) == bytes([first])
        for second in range(256):
            pair = bytes([first, second])
            assert CHATML.decode_bytes([first, second]) == pair
            text = CHATML.decode([first, second])
            assert text == pair.decode("utf-8", "replace")


@pytest.mark.parametrize("token", [CHATML.vocab_size, -1, 2**32 - 1])
def test_txt_26_ids_beyond_the_vocabulary_are_refused(token: int) -> None:
    with pytest.raises(FieldInvalid, match=r"token_ids\[1\]") as caught:
        CHATML.decode([1, token])
    assert caught.value.reason == "FIELD_INVALID"


def test_txt_16_sentencepiece_merges_by_score() -> None:
    # "▁ab": "▁a" has the best score, and then only "▁ab" itself joins "▁a" and "b".
    assert SPM.encode("ab", add_special_tokens=False) == [264]
    assert SPM.encode("aab", add_special_tokens=False) == [262, 263]
    assert SPM.encode("c", add_special_tokens=False) == [259, 3 + ord("c")]
    assert SPM.encode("é", add_special_tokens=False) == [259, 3 + 0xC3, 3 + 0xA9]


def test_txt_16_sentencepiece_round_trip_takes_its_own_space_off_again() -> None:
    for text in ("ab", " ab", "  a", "", " ", "é\n", "a▁b"):
        assert SPM.decode_bytes(SPM.encode(text)) == text.replace("▁", " ").encode()
    assert SPM.encode("ab") == [1, 264]


def test_txt_12_txt_13_a_continuation_keeps_its_leading_space() -> None:
    assert SPM.decode([264]) == " ab"
    assert SPM.decode([1, 264]) == "ab"
    assert SPM.decode([1, 264], special_tokens=True) == "<s>ab"


def test_sentencepiece_without_a_space_prefix() -> None:
    gemma = Tokenizer.from_metadata(sentencepiece([("▁", -1.0), ("a", -2.0), ("▁a", -3.0)], add_space_prefix=False))
    assert gemma.encode("a a", add_special_tokens=False) == [260, 261]
    assert gemma.decode(gemma.encode(" a")) == " a"


def test_gemma4_listed_merges_over_marked_spaces() -> None:
    metadata = sentencepiece([("▁", 0.0), ("a", 0.0), ("b", 0.0), ("▁a", 0.0), ("ab", 0.0)], add_space_prefix=False)
    metadata |= {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.merges": ["a b", "▁ a"]}
    del metadata["tokenizer.ggml.pre"]
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.encode(" ab a", add_special_tokens=False) == [259, 263, 262]
    assert tokenizer.decode(tokenizer.encode(" ab a")) == " ab a"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, SPM.vocab_size - 1), max_size=30))
def test_t17_any_ids_give_exact_bytes_and_valid_text(ids: list[int]) -> None:
    raw = SPM.decode_bytes(ids, special_tokens=True)
    assert SPM.decode(ids, special_tokens=True) == raw.decode("utf-8", "replace")


def test_unigram_takes_the_likeliest_pieces() -> None:
    rng = random.Random(5)
    texts = {"".join(rng.choices("abc", k=rng.randint(1, 4))) for _ in range(30)} | {"a", "b", "c", "▁"}
    pieces = [(text, -rng.uniform(1, 9)) for text in sorted(texts)]
    metadata = sentencepiece(pieces) | {"tokenizer.ggml.model": "t5", "tokenizer.ggml.add_eos_token": False}
    tokenizer = Tokenizer.from_metadata(metadata)
    scores = dict(pieces)

    def best(text: str) -> float:
        """Returns the best sum of scores over all ways to cut the text."""
        table = [0.0]
        for end in range(1, len(text) + 1):
            table.append(max(table[s] + scores[text[s:end]] for s in range(end) if text[s:end] in scores))
        return table[-1]

    for _ in range(100):
        text = "".join(rng.choices("abc", k=rng.randint(1, 12)))
        ids = tokenizer.encode(text, add_special_tokens=False)
        names = [pieces[i - 259][0] for i in ids]
        assert "".join(names) == f"▁{text}"
        np.testing.assert_allclose(sum(scores[n] for n in names), best(f"▁{text}"), rtol=tolerances.UNIGRAM_SCORE)


def test_ends_are_found_by_key_and_by_spelling() -> None:
    metadata = byte_level(control=["<|end|>", "<|im_end|>", "<other>", "</s>"])
    n = len(metadata["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    metadata["tokenizer.ggml.eot_token_id"] = n - 2
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.eos_ids == {n - 4, n - 3, n - 2, n - 1}


def test_an_end_of_message_inside_a_turn_does_not_end_it() -> None:
    metadata = byte_level(control=["<|end|>", "<|call|>", "<|return|>"])
    n = len(metadata["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    assert Tokenizer.from_metadata(metadata).eos_ids == {n - 2, n - 1}


def test_an_end_spelled_as_plain_text_is_a_control_token() -> None:
    metadata = byte_level(control=["<|im_end|>"])
    types = metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    types[-1] = NORMAL
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.eos_ids == tokenizer.special_ids == {256}


def test_added_tokens_and_suppressed_ids_follow_the_file() -> None:
    metadata = byte_level() | {
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": True,
        "tokenizer.ggml.suppress_tokens": np.array([7, 3], dtype=np.int32),
    }
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.encode("a") == [256, ord("a"), 258]
    assert tokenizer.encode("", add_special_tokens=False) == []
    assert tokenizer.suppressed_ids == (7, 3)
    assert tokenizer.encode_with_offsets("ab").start_bytes == [0, 0, 1, 2]


def test_unused_tokens_are_never_produced() -> None:
    metadata = byte_level(control=["[PAD1]", "</s>"])
    types = metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    types[256] = UNUSED
    tokenizer = Tokenizer.from_metadata(metadata)
    assert 256 not in tokenizer.encode("[PAD1]", parse_special_tokens=True)
    assert tokenizer.decode([256]) == ""


def test_sha256_names_the_vocabulary() -> None:
    metadata = byte_level()
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    same = Tokenizer.from_metadata(metadata | {"tokenizer.ggml.tokens": [t.encode() for t in tokens]})
    assert same.sha256 == Tokenizer.from_metadata(metadata).sha256
    other = Tokenizer.from_metadata(metadata | {"tokenizer.ggml.tokens": [*tokens[:-1], "<|im_end2|>"]})
    assert other.sha256 != same.sha256


@pytest.mark.sweep
@pytest.mark.parametrize("unit", ["a", " ", "我", "👨\u200d", "^", "(", "\n", "1", "e\u0301", "<|im_end|>", " x"])
@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "tekken"])
def test_txt_25_t13_t14_long_runs_end(unit: str, pre: str) -> None:
    """A quarter of a mebibyte of one unit: quadratic time would take hours, and recursion would crash."""
    tokenizer = Tokenizer.from_metadata(byte_level(merges=[("a", "a"), ("aa", "aa"), (" ", " ")]), pre=pre)
    text = unit * (2**18 // len(unit.encode()))
    if pre == "qwen2" and unit == "e\u0301":
        assert tokenizer.decode(tokenizer.encode(text)) == "é" * len(text[::2])
    else:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_t12_a_panic_of_a_library_is_one_call_s_error() -> None:
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(NativePanic) as caught, native_boundary("tokenizers"):
        raise panic("index out of bounds")
    assert caught.value.reason == "BUG"
    with pytest.raises(KeyboardInterrupt), native_boundary("tokenizers"):
        raise KeyboardInterrupt


def test_a_surrogate_is_refused() -> None:
    with pytest.raises(FieldInvalid, match="surrogate at character 1"):
        CHATML.encode("a\ud800")


def test_spelling_is_that_of_gpt_2() -> None:
    assert spell(" \n") == "ĠĊ"


PHI = byte_level(control=["<s>", "<|user|>", "<|end|>"], user_defined=["</s>"]) | {"general.name": "Phi-3 mini"}
BEGIN, USER, END = 257, 258, 259


def test_txt_16_special_tokens_of_a_stripping_model_swallow_the_blanks_behind_them() -> None:
    tokenizer = Tokenizer.from_metadata(PHI)
    plain = Tokenizer.from_metadata({**PHI, "general.name": "other"})
    text = "<s> a<|user|>\n \u3000b <|end|> \n"
    assert tokenizer.encode(text, parse_special_tokens=True) == [BEGIN, 32, 97, USER, 98, 32, END]
    assert plain.encode(text, parse_special_tokens=True) == [
        *(BEGIN, 32, 97, USER, 10, 32, 0xE3, 0x80, 0x80, 98, 32, END, 32, 10),
    ]
    found = tokenizer.encode_with_offsets(text, parse_special_tokens=True)
    assert found.ids == tokenizer.encode(text, parse_special_tokens=True)
    at = [text.encode().index(part) for part in (b"<s>", b" a", b"a", b"<|user|>", b"b", b" <|end|>", b"<|end|>")]
    assert found.start_bytes == at
    # The message's blanks after the template's token are removed too, as in the joined text.
    spans = [TextSpan("<|user|>\n", True), TextSpan("  b", False)]
    assert tokenizer.encode_spans(spans, add_special_tokens=False) == [USER, 98]
    assert tokenizer.encode("<|user|> b") == list(b"<|user|> b"), "text is text, blanks and all"


def test_txt_16_other_programs_swallow_the_same_blanks() -> None:
    from tokenizers import Tokenizer as Library

    with zipfile.ZipFile(io.BytesIO(Tokenizer.from_metadata(PHI).archive(None))) as archive:
        library = Library.from_str(archive.read("tokenizer.json").decode())
    for text in ("<|user|>\n b", "<|user|> <|end|> \n", "<s> a<|end|>", "a <|end|>\t\u2003b"):
        assert library.encode(text, add_special_tokens=False).ids == Tokenizer.from_metadata(PHI).encode(
            text, parse_special_tokens=True
        )


def test_txt_17_the_end_beside_a_control_token_is_no_text_even_where_it_is_marked_so() -> None:
    tokenizer = Tokenizer.from_metadata(PHI)
    assert tokenizer.encode("a</s>") == list(b"a</s>")
    assert tokenizer.encode("a</s>", parse_special_tokens=True) == [97, 256]
    assert 256 in tokenizer.eos_ids and tokenizer.decode([97, 256]) == "a"
    html = Tokenizer.from_metadata(byte_level(control=["<bos>"], user_defined=["<s>", "</s>"]))
    assert html.encode("a</s>") == [97, 257] and html.decode([97, 257]) == "a</s>"
