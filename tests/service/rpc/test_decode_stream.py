"""DecodeStream: order, errors within the stream, the bound on work in flight, and what is left after its end."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.imp_v1.decode_stream import MAX_UNANSWERED, DecodeStream
from support.calls.deadlines import deadline_beyond
from support.calls.session_calls import Sent, SessionCalls, prefill
from support.run.patience import HANGS_AFTER
from support.run.release_run import repetitions
from support.servers.served import Served, serve
from support.servers.served_models import scripted

PROMPT = [300 + 11 * i % 90 for i in range(10)]
# In each of three ways: 10,000 in the release run.
N_ENDS = repetitions(3_334, 8)
Request = pb.DecodeStreamRequest


@pytest.fixture
def calls(served: Served) -> Iterator[SessionCalls]:
    yield SessionCalls(served)
    served.wait_for_rest()


def opening(name: str = "", prompt: list[int] = PROMPT) -> Request:
    return Request(prefill=prefill(prompt, name, **({"position": 0} if name else {})))


def stepping(*names: str, **fields: Any) -> Request:
    return Request(step=pb.DecodeStepRequest(steps=[pb.SessionStep(session_id=name, **fields) for name in names]))


def test_ses_27_answers_are_in_request_order_and_those_of_one_session_follow_each_other(calls: SessionCalls) -> None:
    long = [300 + i % 70 for i in range(400)]
    requests = [opening("a", long), opening("b"), *(stepping("b") for _ in range(5)), stepping("a", "b"), stepping("a")]
    answers = list(calls.stub.DecodeStream(iter(requests), timeout=HANGS_AFTER))
    kinds = [answer.WhichOneof("response") for answer in answers]
    assert kinds == ["prefill", "prefill", *["step"] * 7]
    assert [answer.prefill.session_id for answer in answers[:2]] == ["a", "b"]
    positions = [[result.output.position for result in answer.step.results] for answer in answers[2:]]
    assert positions == [[11], [12], [13], [14], [15], [401, 16], [402]]
    # The same loop as single calls.
    alone = [calls.prefill(PROMPT, "alone", position=0).output.token_id]
    alone += [calls.step("alone").token_id for _ in range(5)]
    calls.release("alone")
    streamed = [answers[1].prefill.output.token_id, *(each.step.results[0].output.token_id for each in answers[2:7])]
    assert streamed == alone


def test_rpc_14_ses_27_a_bug_in_a_stream_is_reported_in_band_and_logged_under_the_request_id() -> None:
    with serve(model=scripted(script={"failing_token": 700})) as served:
        began = served.log_bytes
        answers = list(served.inference.DecodeStream(iter([opening("a", [700]), opening("b")]), timeout=HANGS_AFTER))
        assert [answer.WhichOneof("response") for answer in answers] == ["error", "prefill"]
        assert answers[0].error.reason == "BUG"
        request_id = answers[0].error.message.rpartition(" ")[2]
        served.wait_until(
            lambda: any('"event": "bug"' in line and request_id in line for line in served.log_lines(began)),
            "the log has it",
        )


def test_s26_ses_27_a_bad_request_is_answered_in_order_and_the_stream_goes_on(calls: SessionCalls) -> None:
    requests = [
        opening("a"),
        Request(),
        stepping("nobody"),
        Request(prefill=pb.PrefillRequest(text="a", sampling={"temperature": 101})),
        stepping("a", position=3),
        stepping("a", "nobody"),
        Request(release=pb.ReleaseSessionRequest(session_id="a")),
        Request(release=pb.ReleaseSessionRequest(session_id="a")),
        stepping("a"),
    ]
    answers = list(calls.stub.DecodeStream(iter(requests), timeout=HANGS_AFTER))
    told = [
        (answer.error.reason or answer.WhichOneof("response"), grpc.StatusCode.OK.value[0] + answer.error.code)
        for answer in answers
    ]
    assert told == [
        ("prefill", 0),
        ("FIELD_INVALID", 3),
        ("SESSION_NOT_FOUND", 5),
        ("FIELD_INVALID", 3),
        ("POSITION_MISMATCH", 10),
        ("step", 0),
        ("release", 0),
        ("release", 0),
        ("SESSION_NOT_FOUND", 5),
    ]
    assert "prefill.sampling.temperature" in answers[3].error.message
    assert [result.WhichOneof("result") for result in answers[5].step.results] == ["output", "error"]
    assert [answers[6].release.released, answers[7].release.released] == [True, False]


def begin(calls: SessionCalls, n: int, **options: Any) -> tuple[Any, Sent]:
    """Opens a stream with `n` idle sessions. Returns it and the queue of its requests."""
    sent = Sent()
    stream = calls.stub.DecodeStream(iter(sent), **options)
    for i in range(n):
        sent.send(opening("" if i % 2 else f"named {i}"[-6:].replace(" ", "-")))
        assert next(stream).prefill.output.position == len(PROMPT)
    return stream, sent


def open_and_close(calls: SessionCalls) -> None:
    """Opens a stream with three sessions, and ends it from the client."""
    stream, sent = begin(calls, 3)
    sent.end()
    assert list(stream) == []


@pytest.mark.parametrize("way", ["close", "cancel", "kill", "deadline"])
def test_ses_27_s25_what_was_opened_on_a_stream_ends_with_it(calls: SessionCalls, way: str) -> None:
    calls.prefill(PROMPT, "outside", position=0)
    seconds = deadline_beyond(lambda: open_and_close(calls)) if way == "deadline" else HANGS_AFTER
    for _ in range(2 if way == "deadline" else N_ENDS):
        if way == "kill":
            with calls.served.connection() as channel:
                other = SessionCalls(calls.served)
                other.stub = inference_pb2_grpc.InferenceServiceStub(channel)
                stream, sent = begin(other, 3)
        else:
            stream, sent = begin(calls, 3, timeout=seconds)
        assert calls.served.stats().sessions == 4 or way in ("kill", "deadline")
        if way == "close":
            sent.end()
            assert list(stream) == []
            # Freed before the status is sent.
            assert calls.served.stats().sessions == 1
        elif way == "cancel":
            sent.send(stepping("named-0", token_ids=[301] * 200))
            stream.cancel()
        elif way == "deadline":
            with pytest.raises(grpc.RpcError) as late:
                next(stream)
            assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]
        sent.end()
        calls.served.wait_for_rest(sessions=1, live_blocks=1)
    assert calls.step("outside").position == len(PROMPT) + 1
    calls.release("outside")


def test_ses_27_a_session_opened_elsewhere_outlives_the_stream(calls: SessionCalls) -> None:
    calls.prefill(PROMPT, "elsewhere", position=0)
    answers = list(
        calls.stub.DecodeStream(
            iter([opening("elsewhere"), stepping("elsewhere"), opening("mine")]), timeout=HANGS_AFTER
        )
    )
    assert [answer.WhichOneof("response") for answer in answers] == ["prefill", "step", "prefill"]
    assert calls.served.stats().sessions == 1
    assert calls.step("elsewhere").position == len(PROMPT) + 2
    calls.release("elsewhere")


class UnreadCall:
    """A call whose client reads only when the test lets it."""

    def __init__(self, served: Served) -> None:
        self._made = served.thread.loop.create_future
        # All the attributes that a stream uses when no step can run.
        self.request_id, self.tenant, self.priority, self.n_request_bytes = "unread", "", 0, 100
        self.n_sent_tokens = 0
        self.unread: list[asyncio.Future[None]] = []
        self.written: list[pb.DecodeStreamResponse] = []

    async def write(self, message: pb.DecodeStreamResponse) -> None:
        self.written.append(message)
        self.unread.append(self._made())
        await self.unread[-1]

    def read(self) -> None:
        self.unread[-1].set_result(None)


def test_s27_a_stream_has_a_bounded_number_of_requests_in_work(served: Served) -> None:
    call = UnreadCall(served)
    n_taken = 0

    async def requests() -> AsyncIterator[Request]:
        nonlocal n_taken
        while True:
            n_taken += 1
            yield stepping("nobody")

    async def settle() -> None:
        for _ in range(4 * MAX_UNANSWERED):
            await asyncio.sleep(0)

    async def drive() -> list[int]:
        taken = []
        stream = asyncio.ensure_future(DecodeStream(served.state, cast(GrpcCall, call)).answer(requests()))
        for _ in range(3):
            await settle()
            taken.append(n_taken)
            call.read()
        stream.cancel()
        await asyncio.wait([stream])
        assert stream.cancelled()
        return taken

    assert served.run(drive()) == [64, 65, 66]
    assert [answer.error.reason for answer in call.written] == ["SESSION_NOT_FOUND"] * 3


@pytest.mark.long
def test_s27_a_client_that_sends_and_does_not_read_is_held_back(calls: SessionCalls) -> None:
    """Large replies soon fill the transport's windows."""
    n_taken, n_all = 0, 100_000
    step = stepping("a", token_ids=[301], position=len(PROMPT), step=pb.StepOptions(logits=True))

    def requests() -> Iterator[Request]:
        nonlocal n_taken
        yield opening("a")
        for _ in range(n_all):
            n_taken += 1
            yield step

    stream = calls.stub.DecodeStream(requests(), timeout=HANGS_AFTER)
    assert next(stream).prefill.output.position == len(PROMPT)
    first = next(stream)
    assert len(first.step.results[0].output.logits) == 4 * calls.served.state.model.vocab_size
    # Each of the steps sent ahead repeats the first exactly.
    assert [next(stream).SerializeToString() for _ in range(20)] == [first.SerializeToString()] * 20
    stream.cancel()
    assert n_taken < n_all
