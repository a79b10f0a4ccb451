"""A fault in the server after a step ran affects only its session: the others of its batch get their replies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import imp_service
from imp_service.api.options import SamplingOptions, SessionStep
from imp_service.core import Error
from imp_service.generation import EngineSession
from imp_service.generation.session_text import SessionText
from imp_service.pb import inference_pb2 as pb
from support.calls.session_calls import SessionCalls, reason
from support.run.patience import HANGS_AFTER
from support.servers.served import Served, serve

PROMPT = [300, 301, 302]
MARK = 666  # the token whose text cannot be decoded


@pytest.fixture
def served() -> Iterator[Served]:
    with serve() as server:
        yield server


@pytest.fixture
def text_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = SessionText._feed

    def failing(self: SessionText, held: int, token: int) -> str:
        if token == MARK:
            raise IndexError("no such text")
        return feed(self, held, token)

    monkeypatch.setattr(SessionText, "_feed", failing)


def _steps(*names: str) -> list[pb.SessionStep]:
    tokens = [310, MARK, 311]
    return [pb.SessionStep(session_id=name, token_ids=[token]) for name, token in zip(names, tokens, strict=True)]


@pytest.mark.usefixtures("text_fails")
def test_ses_31_a_fault_of_one_session_ends_its_reply_alone(served: Served) -> None:
    calls = SessionCalls(served)
    names = [calls.prefill(PROMPT).session_id for _ in range(3)]
    alone = [calls.step(calls.prefill(PROMPT).session_id, [token]).token_id for token in (310, 311)]
    first, ill, last = calls.steps(*_steps(*names)).results
    assert [first.output.token_id, last.output.token_id] == alone
    assert (ill.error.reason, ill.HasField("output")) == ("BUG", False)
    # The session keeps the engine's state: it holds the token, and goes on.
    assert reason(lambda: calls.step(names[1], [310], position=3)) == "POSITION_MISMATCH"
    assert calls.step(names[1], [310], position=4).position == 5


@pytest.mark.usefixtures("text_fails")
def test_ses_31_a_stream_outlives_the_fault_of_one_of_its_requests(served: Served) -> None:
    calls = SessionCalls(served)
    names = [calls.prefill(PROMPT).session_id for _ in range(2)]
    requests = [
        pb.DecodeStreamRequest(step={"steps": [{"session_id": name, "token_ids": [token]}]})
        for name, token in ((names[0], MARK), (names[1], 310))
    ]
    ill, well = served.inference.DecodeStream(iter(requests), timeout=HANGS_AFTER)
    assert ill.error.reason == "BUG"
    assert well.step.results[0].output.position == 4


def test_ses_31_a_fault_before_one_step_leaves_the_steps_beside_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = SessionCalls(served)
    names = [calls.prefill(PROMPT).session_id for _ in range(3)]
    submit = EngineSession.submit_step

    def failing(self: EngineSession, tokens: list[int], *args: object, **options: object) -> object:
        if MARK in tokens:
            raise KeyError("broken")
        return submit(self, tokens, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(EngineSession, "submit_step", failing)
    first, ill, last = calls.steps(*_steps(*names)).results
    assert (first.output.position, last.output.position, ill.error.reason) == (4, 4, "BUG")
    assert calls.step(names[1], [310], position=3).position == 4


@pytest.mark.long
@pytest.mark.usefixtures("text_fails")
def test_ses_31_the_library_tells_it_of_one_session_too() -> None:
    with imp_service.load(None, "device.threads=1") as model:
        sessions = [model.open(SamplingOptions(temperature=0.0)) for _ in range(3)]
        for session in sessions:
            session.prefill(PROMPT)
        tokens = [310, MARK, 311]
        steps = [SessionStep(session, [token]) for session, token in zip(sessions, tokens, strict=True)]
        first, ill, last = model.decode_step(steps)
        assert isinstance(ill, Error) and ill.reason == "BUG"
        assert not isinstance(first, Error) and not isinstance(last, Error)
        assert [session.position for session in sessions] == [4, 4, 4]
        assert sessions[1].decode_step([310]).position == 5
