"""What an engine process reports to its front of callers over imp.v1: complete answers, and what callers have got."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.telemetry.progress import ANSWERS_EVERY, ProgressReports
from support.calls.cut_streams import resuming
from support.calls.failed_calls import failed
from support.calls.session_calls import WARM, SessionCalls, calls_at_rest, prefill
from support.servers.served import Served, ask, serve

PROMPT = "Once upon a time"
ANSWERED = {"answered": True}


class Reported:
    """A server, and what it has reported. Its time stands still unless a test moves it."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.now = 0.0
        self._sent: list[Mapping[str, object]] = []
        served.state.telemetry.progress = ProgressReports(lambda: self.now)
        served.state.telemetry.progress.send_by(self._sent.append)

    def take(self) -> list[Mapping[str, object]]:
        """The reports since the last call of this function, once no call runs."""
        self.served.wait_for_calls()
        self.served.call(lambda: None)  # the step of the loop in which the last call ended is over
        found, self._sent[:] = [*self._sent], []
        return found


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve() as running:
        yield running


@pytest.fixture
def calls(served: Served) -> Iterator[SessionCalls]:
    yield from calls_at_rest(served)


def test_iso_7_tokens_are_no_progress_until_their_caller_sends_them_back(served: Served) -> None:
    request = ask(PROMPT, 12)
    request.output.max_chunk_tokens = 1
    reported = Reported(served)
    messages = list(served.inference.Generate(request))
    assert reported.take() == [ANSWERED]
    going_on = resuming(request, messages[:6])
    going_on.request_id = messages[0].started.request_id
    list(served.inference.Generate(going_on))
    assert reported.take() == [{"stream": going_on.request_id, "told": 5}, ANSWERED]


def test_iso_7_complete_answers_are_progress_and_are_reported_once_a_second(served: Served) -> None:
    reported = Reported(served)
    for _ in range(3):
        list(served.inference.Generate(ask(PROMPT, 2)))
    assert reported.take() == [ANSWERED]
    reported.now += ANSWERS_EVERY
    served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=ask(PROMPT, 2)))
    assert reported.take() == [ANSWERED]


def test_iso_7_an_answer_is_reported_at_once_where_a_stream_went_on_before_it(served: Served) -> None:
    request = ask(PROMPT, 12)
    request.output.max_chunk_tokens = 1
    messages = list(served.inference.Generate(request))
    reported = Reported(served)
    list(served.inference.Generate(ask(PROMPT, 2)))
    list(served.inference.Generate(resuming(request, messages[:3])))
    assert [*map(list, reported.take())] == [["answered"], ["stream", "told"], ["answered"]]


def test_iso_7_refused_and_resumed_calls_with_other_outputs_are_no_progress(served: Served) -> None:
    request = ask(PROMPT, 12)
    messages = list(served.inference.Generate(request))
    reported = Reported(served)
    failed(lambda: list(served.inference.Generate(pb.GenerateRequest())))
    going_on = resuming(request, messages[:3])
    going_on.resume.sequences[0].token_ids[-1] ^= 1
    assert failed(lambda: list(served.inference.Generate(going_on))).reason == "RESUME_MISMATCH"
    assert reported.take() == []


def test_iso_7_a_session_is_progress_when_it_goes_on_with_what_it_held(calls: SessionCalls) -> None:
    reported = Reported(calls.served)
    reply = calls.prefill(PROMPT, sampling=WARM, resumable=True)
    tokens = [reply.output.token_id, *(calls.step(reply.session_id).token_id for _ in range(3))]
    assert reported.take() == []
    held = [*reply.prompt_token_ids, *tokens[:-1]]
    request = prefill(held, position=0, session_id="again", sampling=WARM, base=reply.base)
    request.resume.origin.CopyFrom(reply.origin)
    request.resume.token_id = tokens[-1]
    calls.stub.Prefill(request)
    assert reported.take() == [{"stream": reply.origin.request, "told": len(held)}]
