"""Reads streams with marks: what a client gets of them, and what is remembered to go on."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imp_service.front.relay.events import BadEvents, MarkedReader, Told
from imp_service.serving.message_memory import MessageMemory
from support.servers.scripted_engine import HEAD, ORIGIN, ROLE, golden, mark, unit, units

MEMORY = 1024**2
DATA = b'data: {"x":1}\n\n'


def reader_of(told: Told | None = None, memory: MessageMemory | None = None) -> tuple[MarkedReader, Told]:
    memory = memory or MessageMemory("tests", MEMORY)
    told = told or Told(memory)
    return MarkedReader(told, memory), told


def read(*pieces: bytes, told: Told | None = None) -> tuple[bytes, MarkedReader, Told]:
    reader, told = reader_of(told)
    return b"".join(reader.feed(piece) for piece in pieces if piece), reader, told


def test_frt_2_a_stream_is_read_alike_however_it_is_cut() -> None:
    stream = b": waiting\n\n" + b"".join(units(3))
    for cut in range(len(stream) + 1):
        given_on, reader, told = read(stream[:cut], stream[cut:])
        assert given_on == b": waiting\n\n" + golden(3)
        assert reader.is_whole
        assert told.resume() == {**HEAD, "sequences": [{"token_ids": [10, 11, 12], "finished": True}]}


def test_frt_2_marks_are_taken_out_if_a_gateway_has_changed_the_ends_of_lines() -> None:
    stream = (b": waiting\n\n" + b"".join(units(3))).replace(b"\n", b"\r\n")
    for cut in range(len(stream) + 1):
        given_on, reader, told = read(stream[:cut], stream[cut:])
        assert given_on == (b": waiting\n\n" + golden(3)).replace(b"\n", b"\r\n")
        assert reader.is_whole
        assert told.resume() == {**HEAD, "sequences": [{"token_ids": [10, 11, 12], "finished": True}]}


def test_iso_2_the_rest_of_a_stream_may_have_other_ends_of_lines() -> None:
    told = read(b"".join(units(5)[:3]))[2]
    given_on, reader, told = read(b"".join(units(5, told.resume())).replace(b"\n", b"\r\n"), told=told)
    assert given_on.replace(b"\r", b"") == golden(5)[len(golden(2)) - len(b'data: {"end":true}\n\ndata: [DONE]\n\n') :]
    assert b": imp" not in given_on and reader.is_whole


@given(sizes=st.lists(st.integers(1, 40), min_size=1))
@settings(max_examples=50)
def test_frt_2_a_stream_is_read_alike_in_pieces_of_any_size(sizes: list[int]) -> None:
    stream, pieces, begin = b"".join(units(5)), [], 0
    for size in itertools.cycle(sizes):
        pieces.append(stream[begin : begin + size])
        begin += size
        if begin >= len(stream):
            break
    assert read(*pieces)[0] == golden(5)


def test_iso_2_a_unit_counts_only_when_its_last_event_is_there() -> None:
    two = mark(told=[[0, [5, 6]]], events=2) + DATA + DATA
    begun = mark(**HEAD, events=0)
    for cut in range(len(two)):
        given_on, _, told = read(begun + two[:cut])
        assert (given_on, told.n_tokens) == (b"", 0)
    given_on, _, told = read(begun + two)
    assert (given_on, told.n_tokens) == (DATA + DATA, 2)


def test_iso_2_what_is_told_of_several_sequences_is_kept_with_the_sizes_of_its_parts() -> None:
    marks = [
        mark(**HEAD, events=0),
        mark(told=[[1, [7]]], events=0),
        mark(told=[[1, [8, 9]], [3, [1]]], events=0),
        mark(told=[[1, []]], finished=[3], events=0),
    ]
    sequences = [
        {"token_ids": [], "finished": False},
        {"token_ids": [7, 8, 9], "chunks": [1, 2, 0], "finished": False},
        {"token_ids": [], "finished": False},
        {"token_ids": [1], "finished": True},
    ]
    assert read(*marks)[2].resume()["sequences"] == sequences


def test_iso_2_the_rest_of_a_stream_joins_what_came_before() -> None:
    told = read(b"".join(units(5)[:3]))[2]
    given_on, reader, told = read(b"".join(units(5, told.resume())), told=told)
    assert given_on == golden(5)[len(golden(2)) - len(b'data: {"end":true}\n\ndata: [DONE]\n\n') :]
    assert reader.is_whole
    assert told.resume()["sequences"][0]["token_ids"] == [10, 11, 12, 13, 14]


def test_iso_2_the_end_of_an_answer_without_a_rest_is_not_given_again() -> None:
    told = read(b"".join(units(2)))[2]
    given_on, reader, _ = read(*units(2, told.resume()), told=told)
    assert (given_on, reader.is_whole) == (b"", True)


@pytest.mark.parametrize(
    "stream",
    [
        b"data: a\n\ndata: b\n\n",
        b"data: a\r\n\r\ndata: b\r\n\r\n",
        b": ping\r\n\r\ndata: a\r\n\r\n",
        b"event: message_start\ndata: {}\n\n",
        b"not events at all",
    ],
)
def test_frt_2_a_stream_without_marks_passes_as_it_is(stream: bytes) -> None:
    for cut in range(len(stream) + 1):
        given_on, reader, _ = read(stream[:cut], stream[cut:])
        assert given_on == stream
        assert reader.is_whole


FAILED = b'data: {"error":{"message":"m"}}\n\n'


@pytest.mark.parametrize("stream", [b": ping\n\ndata: 1\n\n" + FAILED, b'data: {"error":null,"id":1}\n\n' + FAILED])
def test_frt_2_an_error_in_a_stream_without_marks_passes_as_it_is(stream: bytes) -> None:
    for cut in range(len(stream) + 1):
        given_on, reader, _ = read(stream[:cut], stream[cut:])
        assert (given_on, reader.cut) == (stream, None)


# What SMG writes where its server ends.
OF_A_GATEWAY = b'data: {"error":{"message":"Stream error","type":"stream_error"}}\n\ndata: [DONE]\n\n'


def test_frt_3_what_a_gateway_writes_behind_a_cut_is_not_given_on() -> None:
    stream = b"".join(units(3))
    for cut in range(len(stream)):
        begin, reader, told = read(stream[:cut] + OF_A_GATEWAY)
        assert (str(reader.cut)[:4], reader.is_over) == ("an e", False), stream[:cut]
        rest, reader, _ = read(b"".join(units(3, told.resume())), told=told)
        assert begin + rest == golden(3), stream[:cut]
        assert reader.is_whole


def test_frt_3_what_a_gateway_writes_behind_the_last_event_is_dropped() -> None:
    given_on, reader, _ = read(b"".join(units(3)), OF_A_GATEWAY)
    assert (given_on, reader.cut, reader.is_whole) == (golden(3), None, True)


def test_frt_3_a_sequence_that_ends_before_another_begins_does_not_end_the_stream() -> None:
    _, reader, _ = read(mark(**HEAD, events=0) + mark(finished=[0], events=0) + OF_A_GATEWAY)
    assert (reader.cut, reader.is_whole) == ("an event without a mark", False)


@pytest.mark.parametrize("comment", [b": keep-alive\n\n", b'event: ping\ndata: {"type":"ping"}\n\n'])
def test_frt_3_what_a_gateway_writes_into_an_idle_stream_is_given_on(comment: bytes) -> None:
    first, *others = units(3)
    given_on, reader, _ = read(first, comment, *others)
    assert given_on == golden(3).replace(ROLE, ROLE + comment)
    assert reader.is_whole


def test_frt_3_a_cut_while_the_prompt_is_evaluated_is_seen() -> None:
    given_on, reader, _ = read(mark(waiting=True) + OF_A_GATEWAY)
    assert (given_on, reader.cut) == (b": waiting\n\n", "an event without a mark")


def test_iso_2_the_error_of_a_server_ends_what_can_be_resumed() -> None:
    error = b'data: {"error":{}}\n\n'
    given_on, reader, _ = read(b"".join(units(5)[:2]) + unit(error, failed="INTERNAL") + DATA)
    assert given_on.endswith(error + DATA)
    assert (reader.is_over, reader.is_whole, reader.cut) == (True, True, None)


def test_iso_2_a_stream_that_cannot_be_resumed_passes_as_it_is() -> None:
    given_on, reader, _ = read(mark(waiting=True) + mark(origin=None), DATA + OF_A_GATEWAY)
    assert given_on == b": waiting\n\n" + DATA + OF_A_GATEWAY
    assert (reader.is_over, reader.is_whole, reader.cut) == (True, True, None)


def test_iso_2_a_server_that_leaves_says_why() -> None:
    _, reader, _ = read(b"".join(units(5)[:2]) + mark(end="DRAINING"))
    assert (reader.end, reader.is_whole) == ("DRAINING", False)


BEGUN = mark(**HEAD, events=0)
HOSTILE = {
    "not JSON": b": imp {\n\n",
    "two values": b": imp {} {}\n\n",
    "a list": b": imp []\n\n",
    "deep": b": imp " + b"[" * 100_000 + b"\n\n",
    "no origin": mark(told=[[0, [1]]], events=0),
    "half an origin": mark(origin=ORIGIN, events=0),
    "a large origin": mark(origin={"server": "a" * 5000}, id="x", created=1, events=0),
    "another stream": BEGUN + mark(**{**HEAD, "id": "chatcmpl-2"}, events=0),
    "negative events": mark(**HEAD, events=-1),
    "too many events": mark(**HEAD, events=10**9),
    "events of another type": mark(**HEAD, events="1"),
    "a mark in a unit": BEGUN + mark(told=[[0, [1]]], events=2) + DATA + mark(told=[[0, [1]]], events=1),
    "a sequence below zero": BEGUN + mark(told=[[-1, [1]]], events=0),
    "a sequence far away": BEGUN + mark(told=[[10**9, [1]]], events=0),
    "a sequence of another type": BEGUN + mark(told=[["0", [1]]], events=0),
    "an end far away": BEGUN + mark(finished=[10**9], events=0),
    "an id below zero": BEGUN + mark(told=[[0, [-1]]], events=0),
    "an id of 33 bits": BEGUN + mark(told=[[0, [2**32]]], events=0),
    "an id of another type": BEGUN + mark(told=[[0, ["1"]]], events=0),
    "ids of another type": BEGUN + mark(told=[[0, 1]], events=0),
    "told of another type": BEGUN + mark(told=1, events=0),
    "a mark without end": b": imp " + b"x" * 300_000,
    "an event without end": BEGUN + b"data: " + b"x" * (2 * MEMORY),
    "a unit without end": BEGUN + mark(told=[[0, [1]]], events=60_000) + 59_999 * (b"data: " + b"x" * 40 + b"\n\n"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_frt_2_what_no_server_of_imp_sends_is_refused(name: str) -> None:
    memory = MessageMemory("tests", MEMORY)
    reader, told = reader_of(memory=memory)
    with pytest.raises(BadEvents):
        for begin in range(0, len(HOSTILE[name]), 8192):
            reader.feed(HOSTILE[name][begin : begin + 8192])
    reader.close()
    told.close()
    assert memory.n_bytes == 0


def test_frt_2_marks_without_any_event_end() -> None:
    reader, _ = reader_of(memory=MessageMemory("tests", 64 * 1024**2))
    reader.feed(BEGUN)
    piece = mark(told=[[0, list(range(40_000))]], events=0)
    with pytest.raises(BadEvents, match="without an event"):
        for _ in range(100):
            reader.feed(piece)


def test_frt_2_a_stream_that_begins_anew_is_not_the_rest_of_one() -> None:
    for start in (b"data: a\n\n", b": waiting\n\ndata: a\n\n", b"".join(units(5))):
        told = read(b"".join(units(5)[:3]))[2]
        with pytest.raises(BadEvents):
            read(start, told=told)


def test_w31_without_memory_for_the_ids_marks_still_go_but_nothing_is_kept() -> None:
    memory = MessageMemory("tests", 64 * 1024)
    reader, told = reader_of(memory=memory)
    reader.feed(BEGUN)
    for _ in range(100):
        assert reader.feed(mark(told=[[0, list(range(1000))]], events=1) + DATA) == DATA
    assert (told.is_kept, told.n_tokens, memory.n_bytes) == (False, 100_000, 0)


def test_frt_4_ids_take_four_bytes_each() -> None:
    memory = MessageMemory("tests", MEMORY)
    reader, told = reader_of(memory=memory)
    reader.feed(BEGUN)
    for token in range(10_000):
        reader.feed(mark(told=[[0, [token]]], events=1) + DATA)
    assert 4 * 10_000 <= memory.n_bytes <= 4 * 10_000 + 8192
    assert told.resume()["sequences"][0]["token_ids"] == list(range(10_000))


def test_frt_2_text_that_looks_like_a_mark_passes() -> None:
    text: Any = json.dumps({"content": "\n\n: imp {}\n\n"})
    stream = b"data: " + text.encode() + b"\n\n"
    assert read(BEGUN + mark(told=[[0, [1]]], events=1) + stream)[0] == stream
