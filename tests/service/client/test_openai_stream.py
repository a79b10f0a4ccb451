"""Server-sent events, however they are divided; the tokens in them; and prompts of a given number of tokens."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imp_service.client.bench.measure import RequestResult
from imp_service.client.bench.openai_api import base_of
from imp_service.client.bench.openai_stream import StreamedTokens, StreamFailure
from imp_service.client.bench.plan import PlanRefused
from imp_service.client.bench.prompt_words import words, words_for
from imp_service.client.bench.server_sent_events import EventReader

BODY = (
    b': waiting\n\ndata: {"a":1}\n\ndata:{"b":2}\r\n\r\nevent: x\nid: 7\ndata: one\ndata: two\n\n\n\ndata: [DONE]\n\n'
)
EVENTS = [b'{"a":1}', b'{"b":2}', b"one\ntwo", b"[DONE]"]


@given(st.lists(st.integers(0, len(BODY)), max_size=12))
def test_events_are_the_same_however_the_body_is_cut(cuts):
    reader = EventReader()
    edges = [0, *sorted(cuts), len(BODY)]
    parts = [BODY[begin:end] for begin, end in pairwise(edges)]
    assert [event for part in parts for event in reader.read(part)] == EVENTS


def stream(*events: object, ending: bytes = b"[DONE]") -> RequestResult:
    """Returns the counts of events that come one second apart."""
    result = RequestResult(0.0)
    tokens = StreamedTokens(result)
    for number, event in enumerate(events):
        tokens.take(float(number + 1), json.dumps(event).encode())
    if ending:
        tokens.take(99.0, ending)
    tokens.end()
    return result


def text(value: str, n_tokens: int | None = None) -> dict[str, object]:
    usage = {} if n_tokens is None else {"usage": {"prompt_tokens": 3, "completion_tokens": n_tokens}}
    return {"choices": [{"text": value}], **usage}


LAST = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}}


def test_a_usage_in_each_event_counts_them():
    """A token that is half a character has a usage and no text. vLLM's nulls are no usage."""
    result = stream(text("a", 1), text("", 2), text("bc", 5), LAST)
    assert (result.arrivals, result.prompt_tokens) == ([(1.0, 1), (2.0, 1), (3.0, 3)], 3)
    assert stream(text("", 1), text("é", 2), LAST).arrivals == [(2.0, 2), (3.0, 3)]
    nulls = [{**text(c), "usage": None, "error": None} for c in "ab"]
    assert stream(*nulls, LAST).arrivals == [(1.0, 2), (2.0, 3)]
    assert stream({**text("a"), "usage": "none"}, LAST).arrivals == [(1.0, 5)]


def test_a_usage_at_the_end_is_spread_over_the_texts():
    result = stream(text("a"), text(""), text("b"), LAST)
    assert (result.arrivals, result.n_tokens) == ([(1.0, 2), (3.0, 3)], 5)
    # llama-server puts the usage of the last event next to a choice without text.
    beside = stream(text("a"), text("b"), text("", 5))
    assert beside.arrivals == [(1.0, 2), (2.0, 3)]
    assert stream(text("a"), text("b")).arrivals == [(1.0, 1), (2.0, 1)]


def test_tokens_without_text_come_with_the_usage():
    """A model can answer with control tokens alone. The server counts them and sends no text."""
    answered = stream(text(""), LAST)
    assert (answered.arrivals, answered.failure) == ([(2.0, 5)], "")
    assert stream(text("")).arrivals == []


@pytest.mark.parametrize("channel", ["content", "reasoning_content", "tool_calls"])
def test_a_token_of_any_channel_counts(channel):
    events = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}, {"choices": [{"delta": {channel: "x"}}]}]
    assert stream(*events).arrivals == [(2.0, 1)]


@pytest.mark.parametrize(
    ("events", "ending", "reason"),
    [
        ([text("a")], b"", "STREAM_BROKEN"),
        ([text("a")], b"no JSON", "STREAM_BROKEN"),
        ([[1]], b"[DONE]", "STREAM_BROKEN"),
        ([{"error": {"code": "slow_client"}}], b"[DONE]", "SLOW_CLIENT"),
        ([{"error": {"code": 500, "message": "x"}}], b"[DONE]", "STREAM_FAILED"),
        ([{"error": {"code": 503, "type": "unavailable_error"}}], b"[DONE]", "UNAVAILABLE_ERROR"),
    ],
)
def test_a_broken_stream_says_so(events, ending, reason):
    with pytest.raises(StreamFailure) as caught:
        stream(*events, ending=ending)
    assert caught.value.reason == reason


@pytest.mark.parametrize("added", [0, 7, 30])
@pytest.mark.parametrize("per_word", [1, 2, 3])
@pytest.mark.parametrize("n_tokens", [48, 128, 1000])
def test_prompts_have_about_so_many_tokens(added, per_word, n_tokens):
    async def count(prompt: str) -> int:
        return added + per_word * len(prompt.split())

    n_words = asyncio.run(words_for(n_tokens, count))
    assert abs(added + per_word * n_words - n_tokens) <= per_word


def test_too_short_a_prompt_is_refused():
    async def count(prompt: str) -> int:
        return 40 + len(prompt.split())

    with pytest.raises(PlanRefused, match="prompts of 20 tokens, expected more: one word makes 41 tokens there"):
        asyncio.run(words_for(20, count))


def test_prompts_are_the_same_for_the_same_request_alone():
    assert words(50, 1, 2, 3) == words(50, 1, 2, 3) != words(50, 1, 2, 4)
    assert len(words(50, 1).split()) == 50


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://a:1", "http://a:1/v1"),
        ("http://a:1/", "http://a:1/v1"),
        ("http://a:1/v1/", "http://a:1/v1"),
        ("https://a/openai/v1", "https://a/openai/v1"),
    ],
)
def test_the_api_is_below_v1_unless_the_url_has_a_path(url, base):
    assert base_of(url) == base
