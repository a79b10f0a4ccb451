"""A session's text equals that of a stream given all tokens again; and what is kept of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from imp_service.generation.session_text import SessionText
from imp_service.text import TextStream, Tokenizer
from imp_service.text.tokens.detokenizer import TokenTable

# Whole characters, and parts of longer ones. The last has no text, and removes the next token's first space.
PIECES = [b"a", b" b", b"\xf0", b"\x9f", b"\x98", b"\x80", b"\xc3", b"\xa9", "é".encode(), b"<s>"]
BOS = len(PIECES) - 1
TABLE = TokenTable(PIECES, frozenset({BOS}), BOS, adds_space_prefix=True)
TOKENIZER = cast(Tokenizer, SimpleNamespace(table=TABLE))

tokens = st.integers(0, len(PIECES) - 1)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("sample"), tokens),
        st.tuples(st.just("replace"), st.lists(tokens, min_size=1, max_size=3), tokens),
        st.tuples(st.just("truncate"), st.integers(0, 30), tokens),
        st.tuples(st.just("fork"), st.integers(0, 30), tokens),
    ),
    max_size=25,
)


def told(ids: list[int]) -> str:
    """Returns the text that the last of these tokens completes."""
    stream = TextStream(TABLE)
    for token in ids[:-1]:
        stream.feed(token)
    return stream.feed(ids[-1]).text


@settings(deadline=None, database=None)
@given(st.integers(1, 5), tokens, OPERATIONS)
def test_ses_30_a_sessions_text_is_that_of_its_tokens_fed_anew(
    prompt: int, first: int, operations: list[tuple[str, ...]]
) -> None:
    """`outputs` are the tokens since the prompt, the last of them pending."""
    text, outputs = SessionText(TOKENIZER), [first]
    assert text.sampled(prompt, first) == told(outputs)
    for name, value, *more in cast(list[tuple[str, int, int]], operations):
        held = prompt + len(outputs) - 1
        if name == "sample":
            outputs.append(value)
            held += 1
        elif name == "replace":
            given_tokens = cast(list[int], value)
            text.replace_pending(held, given_tokens)
            outputs[-1:] = [*given_tokens, more[0]]
            held += len(given_tokens)
        else:
            # To a position among the outputs; the caller gives the next token itself.
            position = prompt + value % len(outputs)
            if name == "fork":
                text = text.copy(position)
            else:
                text.truncate(position)
            given_token = outputs[position - prompt]
            text.replace_pending(position, [given_token])
            outputs[position - prompt :] = [given_token, more[0]]
            held = position + 1
        assert text.sampled(held, outputs[-1]) == told(outputs)


def test_ses_30_a_long_session_keeps_no_more_than_what_waits() -> None:
    text = SessionText(TOKENIZER)
    for held in range(5000):
        text.sampled(held, 0)
    assert text.n_marks == 1
    for i, byte in enumerate(range(2, 5)):
        assert text.sampled(5000 + i, byte) == ""
    assert text.n_marks == 3
    text.truncate(4000)
    assert (text.n_marks, text.sampled(4000, 1)) == (1, " b")
