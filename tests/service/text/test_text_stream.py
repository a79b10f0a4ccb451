"""Streaming text: each part is valid, the parts join to the whole, and no part contains a stop string."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imp_service.text import StopRules, StopStrings, TextStream, Tokenizer
from support.text.tiny_vocabularies import byte_level, sentencepiece

CHATML = Tokenizer.from_metadata(byte_level(user_defined=["END", "EN", "ND", "aa", "aba"]))
SPM = Tokenizer.from_metadata(sentencepiece([("▁", -1.0), ("a", -2.0), ("▁a", -3.0)]))
IM_END = CHATML.vocab_size - 1
TOKEN = {CHATML.token_bytes(i): i for i in range(CHATML.vocab_size)}


def _rules(*strings: str, min_tokens: int = 0, include_match: bool = False) -> StopRules:
    return StopRules(StopStrings(strings), min_tokens=min_tokens, include_match=include_match)


def _stream(ids: list[int], rules: StopRules, *, special_tokens: bool = False) -> tuple[list[str], str | None, int]:
    """Returns the deltas with the last one, the match, and the number of tokens taken."""
    stream = TextStream(CHATML.table, rules, special_tokens=special_tokens)
    deltas: list[str] = []
    for n, token in enumerate(ids, start=1):
        delta = stream.feed(token)
        deltas.append(delta.text)
        if delta.match is not None:
            assert stream.finish() == ""
            return deltas, delta.match, n
    return [*deltas, stream.finish()], None, len(ids)


def _naive_match(data: bytes, strings: tuple[str, ...]) -> tuple[int, int] | None:
    """Returns (start, end) of the match that ends first, and of those the longest. Tries every end and every string."""
    for end in range(1, len(data) + 1):
        starts = [end - len(s.encode()) for s in strings if data[:end].endswith(s.encode())]
        if starts:
            return min(starts), end
    return None


def _ids(*pieces: str) -> list[int]:
    return [TOKEN[piece.encode()] for piece in pieces]


@pytest.mark.parametrize("pieces", [("END",), ("EN", "D"), ("E", "ND"), ("E", "N", "D")])
def test_txt_4_txt_7_no_part_of_a_match_is_delivered(pieces: tuple[str, ...]) -> None:
    ids = _ids("a", *pieces, "b")
    deltas, match, n = _stream(ids, _rules("END"))
    assert match == "END" and n == 1 + len(pieces)
    assert "".join(deltas) == "a"
    text = CHATML.decode(ids[:n])
    assert text[: text.index("END")] == "".join(deltas)


def test_txt_4_near_misses_for_ten_thousand_tokens() -> None:
    deltas, match, n = _stream(_ids(*["EN"] * 10_000, "END"), _rules("END"))
    assert match == "END" and n == 10_001
    assert deltas[0] == "" and deltas[1] == "EN"
    assert "".join(deltas) == "EN" * 10_000


def test_txt_3_include_match_keeps_the_string_and_nothing_after_it() -> None:
    deltas, match, _ = _stream(_ids("aa", "END", "b"), _rules("aEN", include_match=True))
    assert match == "aEN" and "".join(deltas) == "aaEN"
    assert "".join(_stream(_ids("aa", "END", "b"), _rules("aEN"))[0]) == "a"


def test_txt_5_held_text_is_delivered_once_it_cannot_match() -> None:
    assert _stream(_ids("EN", "X"), _rules("END")) == (["", "ENX", ""], None, 2)
    assert _stream(_ids("EN"), _rules("END")) == (["", "EN"], None, 1)
    # "E" can still begin the string, but "EN" no longer can.
    assert _stream(_ids("EN", "E", "x"), _rules("END"))[0] == ["", "EN", "Ex", ""]


@pytest.mark.parametrize(
    ("strings", "text", "kept"),
    [
        (("ab", "b"), "xab", "x"),
        (("abc", "bc"), "xabc", "x"),
        (("abcd", "bc"), "xabcd", "xa"),
        (("aa", "aab"), "aab", ""),
    ],
)
def test_txt_6_first_to_end_wins_then_the_longest(strings: tuple[str, ...], text: str, kept: str) -> None:
    assert "".join(_stream(_ids(*text), _rules(*strings))[0]) == kept


@pytest.mark.long
@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "aa", "aba", "c"]), max_size=14),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=5),
    st.booleans(),
)
def test_txt_4_txt_6_txt_12_against_the_naive_search(pieces: list[str], strings: list[str], include: bool) -> None:
    ids = _ids(*pieces)
    data = "".join(pieces).encode()
    deltas, match, n = _stream(ids, _rules(*strings, include_match=include))
    expected = _naive_match(data, tuple(strings))
    if expected is None:
        assert match is None and "".join(deltas) == data.decode()
        return
    start, end = expected
    assert match == data[start:end].decode()
    assert "".join(deltas) == data[: end if include else start].decode()
    assert len("".join(pieces[: n - 1])) < end <= len("".join(pieces[:n]))
    for k in range(len(deltas)):
        sent = "".join(deltas[: k + 1])
        assert include or len(sent) <= start


def test_txt_9_strings_completed_before_min_tokens_are_passed_over() -> None:
    ids = _ids("a", "END", "END")
    assert _stream(ids[:2], _rules("END", min_tokens=3))[1] is None
    deltas, match, n = _stream(ids, _rules("END", min_tokens=3))
    assert (match, n) == ("END", 3) and deltas == ["a", "END", ""]  # emitted at once: no longer match can begin in it
    # Of a string that is passed over, only a possible start of another waits.
    assert _stream(_ids("END", "b"), _rules("END", "Dx", min_tokens=3))[0] == ["EN", "Db", ""]
    # A match may begin inside a string that was passed over.
    deltas, match, _ = _stream(_ids("a", "a", "a"), _rules("aa", min_tokens=3))
    assert match == "aa" and "".join(deltas) == "a"


EMOJI = "a😶\u200d🌫️é日e\u0301z"


def test_txt_11_characters_split_at_every_border() -> None:
    data = EMOJI.encode()
    deltas, _, _ = _stream(list(data), _rules())
    assert "".join(deltas) == EMOJI and "\ufffd" not in "".join(deltas)
    for cut in range(len(data) + 1):
        deltas, _, _ = _stream(list(data[:cut]), _rules())
        assert "".join(deltas) == data[:cut].decode("utf-8", "replace")
        assert "\ufffd" not in "".join(deltas[:-1])


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=12), st.sampled_from([(), ("END",), ("\u00e9",), ("b",)]))
def test_txt_11_txt_12_any_bytes_join_to_detokenize(data: bytes, strings: tuple[str, ...]) -> None:
    ids = list(data)
    for n in range(len(ids) + 1):
        deltas, match, taken = _stream(ids[:n], _rules(*strings))
        joined = "".join(deltas)
        for delta in deltas:
            delta.encode()
        if match is None:
            assert joined == CHATML.decode(ids[:n])
        else:
            whole = CHATML.decode_bytes(ids[:taken])
            found = _naive_match(whole, strings)
            assert found is not None and joined == whole[: found[0]].decode("utf-8", "replace")


def test_txt_12_sentencepiece_continues_with_its_space() -> None:
    for ids in ([261, 261], [1, 261, 261], [1, 1, 261], [260, 261, 1, 261]):
        stream = TextStream(SPM.table)
        assert "".join(stream.feed(t).text for t in ids) + stream.finish() == SPM.decode(ids)


def test_txt_13_text_is_raw() -> None:
    text = "  <think>\n x </think>  \n"
    assert "".join(_stream(list(text.encode()), _rules())[0]) == text


def test_txt_15_special_tokens_only_where_asked_for() -> None:
    ids = [ord("a"), IM_END, ord("b")]
    assert "".join(_stream(ids, _rules())[0]) == "ab"
    assert "".join(_stream(ids, _rules(), special_tokens=True)[0]) == "a<|im_end|>b"
    assert _stream(ids, _rules("|im"), special_tokens=True)[0] == ["a", "<"]


def test_ses_30_replacement_forgets_what_was_held() -> None:
    head, tail = "😶".encode(), "🙂".encode()
    stream = TextStream(CHATML.table, _rules("END"))
    assert stream.feed(head[0]).text == ""
    mark = stream.mark()
    stream.feed(ord("E"))
    stream.rewind(mark)
    assert "".join(stream.feed(b).text for b in tail[1:]) == "🙂"
    mark = stream.mark()
    stream.feed(TOKEN[b"EN"])
    stream.rewind(mark)
    assert stream.feed(ord("D")).text == "D"
    assert stream.n_outputs == 5


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, IM_END), max_size=12), st.data())
def test_ses_30_rewinding_anywhere_equals_never_having_gone_on(ids: list[int], data: st.DataObject) -> None:
    stream = TextStream(CHATML.table, _rules("aab", "b\ufffd"))
    marks = [stream.mark()]
    texts = [""]
    for token in ids:
        delta = stream.feed(token)
        texts.append(texts[-1] + delta.text)
        if delta.match is not None:
            break
        marks.append(stream.mark())
    back = data.draw(st.integers(0, len(marks) - 1))
    stream.rewind(marks[back])
    fresh = TextStream(CHATML.table, _rules("aab", "b\ufffd"))
    for token in ids[:back]:
        fresh.feed(token)
    assert stream.mark() == fresh.mark()
    assert stream.finish() == fresh.finish()


def test_a_stream_that_ended_takes_no_more() -> None:
    stream = TextStream(CHATML.table, _rules("a"))
    assert stream.feed(ord("a")).match == "a"
    with pytest.raises(RuntimeError, match="ended"):
        stream.feed(ord("b"))


class _CountedList(list[int]):
    """Counts its reads."""

    n_reads = 0

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        type(self).n_reads += 1
        return super().__getitem__(index)


def test_txt_25_t52_near_misses_fall_back_once_a_byte_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    strings = ["".join(rng.choices("ab", k=60)) + "!" for _ in range(16)] + ["a" * 200 + "!"]
    stops = StopStrings(strings)
    monkeypatch.setattr(stops, "_fallback", _CountedList(stops._fallback))
    _CountedList.n_reads = 0
    stream = TextStream(CHATML.table, StopRules(stops))
    text = "".join(rng.choice(strings)[:-1] for _ in range(400)) + "a" * 20_000
    for byte in text.encode():
        assert stream.feed(byte).match is None
    assert len(text) // 4 < _CountedList.n_reads <= len(text)


def test_txt_25_no_recursion_by_the_length_of_a_stop_string() -> None:
    limit = sys.getrecursionlimit()
    text = "ab" * limit
    assert _stream(list(text.encode()), _rules(text + "c"))[0][-1] == text
