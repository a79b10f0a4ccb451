"""One stream over all its calls: after which failures it goes on, when, with which request, and when it gives up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from imp_service.client.failure import CallFailure
from imp_service.client.joined_stream import JoinedStream
from imp_service.client.patience import MOST_FRUITLESS, PATIENCE_SECONDS, Patience
from imp_service.client.stream_order import StreamBroken, StreamOrder
from imp_service.client.target import Target
from imp_service.pb.inference_pb2 import GenerateRequest, GenerateResponse, Origin
from imp_service.serving.errors.error_table import ERRORS
from support.servers.scripted_server import RESUMABLE, resumable_story

REQUEST = GenerateRequest(text="hello", num_sequences=2, stop={"max_tokens": 9, "include_match": True})
CUT = CallFailure("UNAVAILABLE", "UNAVAILABLE", "Socket closed", was_taken=True)
# By a proxy that has no server, or before a server said that it has the call.
PROXIED = CallFailure("UNAVAILABLE", "UNAVAILABLE", "no healthy upstream")
AWAY = CallFailure("UNAVAILABLE", "UNAVAILABLE", "failed to connect to all addresses", is_unreachable=True)
DRAINING = CallFailure("UNAVAILABLE", "DRAINING", "stopping", retry_after=0.0)


def failure(reason: str, retry_after: float | None = None) -> CallFailure:
    row = ERRORS[reason]
    told = row.retry_after if retry_after is None and row.details else retry_after
    return CallFailure(row.code, reason, "no", retry_after=told, was_taken=True)


class Joined:
    """A stream on a clock that stands still, which has taken some messages."""

    def __init__(
        self,
        *messages: GenerateResponse,
        request: GenerateRequest = REQUEST,
        until: float = 1e9,
        is_known: bool = False,
        **options: Any,
    ) -> None:
        self.now = 0.0
        target = Target(**{"resumes": True, **options})
        patience = Patience(target.attempts, until, lambda: self.now)
        self.stream = JoinedStream(request, target, patience, is_known=is_known)
        for message in messages:
            self.stream.take(message)

    def waits(self, *failures: CallFailure) -> list[float | None]:
        """Fails and waits, again and again; returns the waits."""
        found = []
        for each in failures:
            wait = self.stream.failed(each)
            found.append(wait)
            self.now += wait or 0.0
        return found

    def ends_with(self, last: CallFailure) -> CallFailure:
        """Returns the error that the stream ends with after a failure."""
        with pytest.raises(CallFailure) as caught:
            self.stream.failed(last)
        return caught.value


def begun(n: int = 3, **options: Any) -> Joined:
    """Returns a stream that has the first messages of a story."""
    return Joined(*resumable_story(n_sequences=2)[:n], **options)


# What the design lists; every other reason of the error table ends a stream.
GOES_ON = {"DRAINING", "DEVICE_FAULT", "LOADING", "QUEUE_FULL", "STALLED"}
# Another server, or this one later, has room: it told when.
HAS_ROOM_LATER = {"KV_FULL", "NO_MEMORY", "SESSIONS_FULL", "TENANT_LIMIT"}


@pytest.mark.parametrize("reason", sorted(ERRORS))
def test_rsm_4_a_stream_goes_on_after_the_failures_of_its_server_and_no_others(reason: str) -> None:
    it, ended = begun(), failure(reason)
    if reason in GOES_ON | HAS_ROOM_LATER:
        assert it.stream.failed(ended) == (ended.retry_after or 0.0)
    else:
        assert it.ends_with(ended) is ended


def test_rsm_4_the_next_call_asks_for_what_is_missing() -> None:
    messages = resumable_story(n_sequences=2)
    for n in range(1, len(messages)):
        it = Joined(*messages[:n])
        it.stream.failed(CUT)
        asked = it.stream.request
        told = [[t for m in messages[:n] if m.chunk.index == i for t in m.chunk.token_ids] for i in (0, 1)]
        ended = [any(m.HasField("finished") and m.finished.index == i for m in messages[:n]) for i in (0, 1)]
        assert [(list(each.token_ids), each.finished) for each in asked.resume.sequences] == list(
            zip(told, ended, strict=True)
        )
        assert asked.resume.origin == RESUMABLE
        assert (REQUEST.request_id, asked.request_id) == ("", messages[0].started.request_id)
        asked.ClearField("resume")
        asked.ClearField("request_id")
        assert asked == REQUEST


def test_rsm_4_a_stream_that_lost_only_its_status_is_whole() -> None:
    it = Joined(*resumable_story(n_sequences=2))
    assert it.stream.failed(CUT) is None
    it.stream.end()


def test_rsm_4_a_request_that_broke_before_it_started_is_made_anew() -> None:
    it = Joined()
    assert it.waits(CUT, failure("DEVICE_FAULT")) == [0.0, 0.1]
    assert it.stream.request == REQUEST
    # The server has not noticed that the first call is gone.
    assert it.waits(failure("REQUEST_ID_IN_USE")) == [0.2]
    assert Joined().ends_with(failure("REQUEST_ID_IN_USE")).reason == "REQUEST_ID_IN_USE"


def test_rsm_4_a_stream_without_an_origin_ends_with_its_error() -> None:
    started = GenerateResponse()
    started.started.seed = 7
    for ended in (CUT, AWAY, DRAINING, failure("DEVICE_FAULT")):
        assert Joined(started).ends_with(ended) is ended


def test_rsm_4_a_session_is_not_run_again() -> None:
    of_session = GenerateRequest(session_id="s")
    assert Joined(request=of_session).ends_with(CUT) is CUT
    assert Joined(resumable_story()[0], request=of_session).ends_with(CUT) is CUT
    # A refusal leaves it as it was.
    assert Joined(request=of_session).waits(failure("QUEUE_FULL")) == [1.0]


def test_rsm_4_resume_false_leaves_every_error_as_it_is() -> None:
    for ended in (CUT, AWAY, DRAINING, failure("QUEUE_FULL")):
        assert begun(resumes=False).ends_with(ended) is ended
        assert Joined(resumes=False).ends_with(ended) is ended


def test_k02_a_stream_breaks_three_times_without_a_token_and_ends_with_its_first_error() -> None:
    it = begun()
    it.waits(failure("DEVICE_FAULT"), *[CUT] * (MOST_FRUITLESS - 1))
    assert it.ends_with(CUT).reason == "DEVICE_FAULT"
    fresh = Joined()
    fresh.waits(*[CUT] * (MOST_FRUITLESS - 1))
    assert fresh.ends_with(failure("DEVICE_FAULT")) is CUT


def test_k02_calls_that_no_server_had_do_not_count() -> None:
    for it in (begun(), Joined()):
        assert it.waits(PROXIED, *[PROXIED] * 6) == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0]
        # The first call did not ask for a sign.
        n_counted = it.stream._patience._n_fruitless
        it.waits(*[CUT] * (MOST_FRUITLESS - 1 - n_counted), PROXIED)
        assert it.ends_with(CUT) is PROXIED
    for it in (begun(), Joined()):
        while it.now + 3.0 <= PATIENCE_SECONDS:
            it.waits(PROXIED)
        assert it.ends_with(PROXIED) is PROXIED


def test_rsm_4_the_calls_behind_a_failure_ask_for_a_sign() -> None:
    it = begun(address="dns:///several:1")
    assert it.stream.metadata == (("imp-resumes", "1"),)
    it.waits(CUT)
    assert it.stream.metadata == (("imp-resumes", "1"), ("imp-acknowledge", "1"))
    assert begun().stream.metadata == ()


def test_k02_a_new_token_makes_earlier_failures_good() -> None:
    messages = resumable_story("a", "b", "c", "d", n_sequences=1)
    it = Joined(*messages[:2], request=GenerateRequest(text="hello"))
    for i, message in enumerate(messages[2:5]):
        assert it.waits(CUT, CUT, CUT) == [0.0, 0.1, 0.2]
        started = GenerateResponse(started={"origin": RESUMABLE, "resumed_tokens": i + 1})
        assert it.stream.take(started) is None
        assert it.stream.take(message) == message
    assert it.stream.n_resumed == 3


def test_k02_a_server_that_is_away_is_waited_for_and_not_for_ever() -> None:
    it = begun()
    assert it.waits(CUT, *[AWAY] * 8) == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0]
    while it.now + 3.0 <= PATIENCE_SECONDS:
        it.waits(AWAY)
    assert it.ends_with(AWAY) is CUT
    # Its time is over, whatever it waits for: the last call would begin after the deadline.
    late = begun(until=0.65)
    late.waits(CUT, AWAY, AWAY)
    assert late.ends_with(AWAY) is CUT


def test_k02_an_address_at_which_no_server_ever_was_is_refused_as_a_call_is() -> None:
    assert Joined(attempts=3).waits(AWAY, AWAY) == [0.2, 0.4]
    it = Joined(attempts=3)
    it.waits(AWAY, AWAY)
    assert it.ends_with(AWAY) is AWAY
    assert Joined(attempts=1).ends_with(AWAY) is AWAY
    known = Joined(attempts=1, is_known=True)
    assert known.waits(AWAY, AWAY, failure("LOADING")) == [0.0, 0.1, 1.0]
    assert Joined(attempts=1, is_known=True).ends_with(failure("QUEUE_FULL")).reason == "QUEUE_FULL"


@pytest.mark.parametrize("told", [PATIENCE_SECONDS + 1, 1e9])
def test_k01_a_time_that_nobody_waits_is_an_error_at_once(told: float) -> None:
    full = failure("QUEUE_FULL", told)
    assert begun().ends_with(full) is full
    assert Joined().ends_with(full) is full
    assert begun(until=told - 1).ends_with(full) is full


def test_rsm_4_waits_are_those_that_the_server_tells() -> None:
    assert begun().waits(DRAINING, failure("LOADING"), failure("QUEUE_FULL", 2.5), DRAINING) == [0.0, 1.0, 2.5, 0.4]


def test_rsm_4_a_stalled_stream_is_tried_once_more() -> None:
    it = begun()
    assert it.waits(failure("STALLED")) == [0.0]
    again = failure("STALLED")
    assert it.ends_with(again) is again


FORGED: dict[str, tuple[Sequence[GenerateResponse], str]] = {
    "it begins anew": ([GenerateResponse(started={"origin": RESUMABLE})], "began behind 0 tokens, 2 had come"),
    "it lacks a token": (
        [GenerateResponse(started={"origin": RESUMABLE, "resumed_tokens": 1})],
        "began behind 1 tokens, 2 had come",
    ),
    "another stream": (
        [GenerateResponse(started={"origin": Origin(server="b" * 16), "resumed_tokens": 2})],
        "another stream came",
    ),
    "no origin": ([GenerateResponse(started={"resumed_tokens": 2})], "another stream came"),
    "tokens first": ([GenerateResponse(chunk={"first_token": 1, "token_ids": [5]})], "chunk before started"),
    "a gap": (
        [
            GenerateResponse(started={"origin": RESUMABLE, "resumed_tokens": 2}),
            GenerateResponse(chunk={"first_token": 2, "token_ids": [5]}),
        ],
        "token 1 expected next, token 2 came",
    ),
    "a token again": (
        [
            GenerateResponse(started={"origin": RESUMABLE, "resumed_tokens": 2}),
            GenerateResponse(chunk={"first_token": 0, "token_ids": [5]}),
        ],
        "token 1 expected next, token 0 came",
    ),
    "a third sequence": (
        [
            GenerateResponse(started={"origin": RESUMABLE, "resumed_tokens": 2}),
            GenerateResponse(chunk={"index": 2, "token_ids": [5]}),
        ],
        "chunk of sequence 2, which was not asked for",
    ),
    "no end of tokens": (
        [
            GenerateResponse(started={"origin": RESUMABLE, "resumed_tokens": 2}),
            GenerateResponse(chunk={"first_token": 1, "token_ids": [5] * 10}),
        ],
        "11 tokens came, more than asked for",
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_k01_a_stream_that_goes_on_otherwise_is_broken(forged: str) -> None:
    it = begun()
    it.stream.failed(CUT)
    messages, complaint = FORGED[forged]
    with pytest.raises(StreamBroken, match=complaint):
        for message in messages:
            it.stream.take(message)


def test_k01_tokens_after_the_end_of_a_sequence_are_refused_in_a_later_call_too() -> None:
    messages = resumable_story(n_sequences=2)
    ended = next(i for i, each in enumerate(messages) if each.HasField("finished"))
    it = Joined(*messages[: ended + 1])
    it.stream.failed(CUT)
    n_told = sum(len(each.chunk.token_ids) for each in messages[: ended + 1])
    it.stream.take(GenerateResponse(started={"origin": RESUMABLE, "resumed_tokens": n_told}))
    index = messages[ended].finished.index
    for kind in ("chunk", "finished"):
        with pytest.raises(StreamBroken, match=f"{kind} of sequence {index}, which had finished"):
            it.stream.take(GenerateResponse(**{kind: {"index": index}}))


def test_rsm_4_a_caller_can_go_on_with_a_stream_of_its_own() -> None:
    """A request that has told outputs begins behind them, and each that breaks goes on behind all that came."""
    request = GenerateRequest(text="hello", resume={"origin": RESUMABLE, "sequences": [{"token_ids": [100, 101]}]})
    it = Joined(
        GenerateResponse(started={"origin": RESUMABLE, "resumed_tokens": 2}),
        GenerateResponse(chunk={"first_token": 2, "token_ids": [102]}),
        request=request,
    )
    it.stream.failed(CUT)
    assert list(it.stream.request.resume.sequences[0].token_ids) == [100, 101, 102]
    with pytest.raises(StreamBroken, match="began behind 0 tokens, 2 had come"):
        StreamOrder.of(request).check(GenerateResponse(started={}))
