"""The checkers of Generate streams and of statuses accept what is good, and refuse each way of being broken."""

from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pytest

from imp_service.core import make_error
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from imp_service.rpc.statuses import status_code, trailing_metadata
from imp_service.serving.errors.failures import failure_of
from imp_service.serving.refusal import Refusal
from support.calls.status_checker import SECRET, StatusViolation, check_status
from support.calls.stream_checker import StreamChecker, StreamViolation, check_unary
from support.calls.wire import ask

Messages = list[pb.GenerateResponse]
PROMPT = (5, 6, 7)


def spelled(ids: Sequence[int], special_tokens: bool) -> str:
    return "".join(chr(token) for token in ids)


def request(**fields: Any) -> pb.GenerateRequest:
    output = types_pb2.OutputOptions(logprobs=True, top_logprobs=1, max_chunk_tokens=2)
    return ask(PROMPT, 3, request_id="mine", num_sequences=2, output=output, **fields)


def chunk(index: int, first: int, ids: Sequence[int]) -> pb.GenerateResponse:
    candidates = [types_pb2.Candidates(items=[types_pb2.Candidate(token_id=i, logprob=-0.5)]) for i in ids]
    return pb.GenerateResponse(
        chunk=pb.GenerationChunk(
            index=index,
            first_token=first,
            token_ids=ids,
            text=spelled(ids, False),
            logprobs=[-1.0] * len(ids),
            candidates=candidates,
        )
    )


def finished(index: int, n_output: int | None = None) -> pb.GenerateResponse:
    end = pb.GenerationFinished(index=index, reason="FINISH_REASON_MAX_TOKENS")
    if n_output is not None:
        end.usage.CopyFrom(types_pb2.Usage(prompt_tokens=3, output_tokens=n_output))
        end.timings.queue.nanos = 1
    return pb.GenerateResponse(finished=end)


def stream() -> Messages:
    started = pb.GenerationStarted(request_id="mine", model="demo", seed=1, prompt_tokens=3)
    return [
        pb.GenerateResponse(started=started),
        chunk(1, 0, (70, 71)),
        chunk(0, 0, (72,)),
        chunk(1, 2, (73,)),
        finished(1),
        chunk(0, 1, (74, 75)),
        finished(0, 6),
    ]


def check(messages: Messages) -> None:
    checker = StreamChecker(request(), spelled)
    for message in messages:
        checker.feed(message)
    checker.end_ok()


def dropped(at: int) -> Callable[[Messages], Messages]:
    return lambda messages: messages[:at] + messages[at + 1 :]


def twice(at: int) -> Callable[[Messages], Messages]:
    return lambda messages: messages[: at + 1] + messages[at:]


def changed(at: int, change: Callable[[Any], object]) -> Callable[[Messages], Messages]:
    def apply(messages: Messages) -> Messages:
        ((_, event),) = messages[at].ListFields()
        change(event)
        return messages

    return apply


BROKEN: dict[str, Callable[[Messages], Messages]] = {
    "no started": dropped(0),
    "started twice": twice(0),
    "a chunk lost": dropped(1),
    "a chunk twice": twice(2),
    "the last chunk lost": dropped(5),
    "finished lost": dropped(4),
    "the last finished lost": dropped(6),
    "finished twice": twice(4),
    "a chunk after finished": lambda messages: [*messages[:3], messages[4], messages[3], *messages[5:]],
    "an empty message": lambda messages: [*messages, pb.GenerateResponse()],
    "another request's id": changed(0, lambda started: setattr(started, "request_id", "yours")),
    "a wrong prompt count": changed(0, lambda started: setattr(started, "prompt_tokens", 4)),
    "more cached than there is": changed(0, lambda started: setattr(started, "cached_prompt_tokens", 4)),
    "a prompt not asked for": changed(0, lambda started: started.prompt.token_ids.extend(PROMPT)),
    "a wrong index": changed(1, lambda chunk: setattr(chunk, "index", 2)),
    "an empty chunk": changed(2, lambda chunk: chunk.ClearField("token_ids")),
    "a chunk too long": changed(1, lambda chunk: chunk.token_ids.append(9)),
    "a logprob lost": changed(1, lambda chunk: chunk.logprobs.pop()),
    "a logprob that is none": changed(1, lambda chunk: chunk.logprobs.__setitem__(0, float("nan"))),
    "candidates lost": changed(1, lambda chunk: chunk.candidates.pop()),
    "too many candidates": changed(1, lambda chunk: chunk.candidates[0].items.add(token_id=3, logprob=-9)),
    "other text": changed(3, lambda chunk: setattr(chunk, "text", "?")),
    "no reason": changed(4, lambda end: setattr(end, "reason", 0)),
    "a reason that is not so": changed(4, lambda end: setattr(end.match, "token_id", 3)),
    "usage too early": changed(4, lambda end: setattr(end.usage, "output_tokens", 3)),
    "usage off by one": changed(6, lambda end: setattr(end.usage, "output_tokens", 5)),
    "another prompt count": changed(6, lambda end: setattr(end.usage, "prompt_tokens", 2)),
    "no timings": changed(6, lambda end: end.ClearField("timings")),
}


def test_rpc_1_rpc_2_rpc_3_a_good_stream_passes() -> None:
    check(stream())


@pytest.mark.parametrize("way", BROKEN)
def test_rpc_1_rpc_2_rpc_3_a_broken_stream_is_noticed(way: str) -> None:
    with pytest.raises(StreamViolation):
        check(BROKEN[way](stream()))


def test_rpc_1_nothing_follows_an_end() -> None:
    checker = StreamChecker(request(), spelled)
    checker.feed(stream()[0])
    checker.end_failed()
    with pytest.raises(StreamViolation):
        checker.feed(stream()[1])


def test_rpc_1_a_stop_string_must_not_be_sent() -> None:
    wanted = request(stop=types_pb2.StopOptions(strings=["HG"]))
    checker = StreamChecker(wanted, spelled)
    checker.feed(stream()[0])
    with pytest.raises(StreamViolation, match="stop string"):
        checker.feed(chunk(0, 0, (72, 71)))


def unary() -> pb.GenerateUnaryResponse:
    reply = pb.GenerateUnaryResponse(started=stream()[0].started)
    for index, ids in enumerate(((72, 74, 75), (70, 71, 73))):
        reply.sequences.add(output=chunk(index, 0, ids).chunk, reason="FINISH_REASON_MAX_TOKENS")
    reply.usage.CopyFrom(stream()[-1].finished.usage)
    reply.timings.CopyFrom(stream()[-1].finished.timings)
    return reply


@pytest.mark.long
def test_rpc_3_a_whole_reply_is_read_as_the_stream_it_folds() -> None:
    check_unary(request(), unary(), spelled)
    for change in (
        lambda reply: reply.sequences.pop(),
        lambda reply: reply.sequences.reverse(),
        lambda reply: reply.ClearField("usage"),
        lambda reply: setattr(reply.usage, "output_tokens", 7),
        lambda reply: reply.sequences[0].output.token_ids.pop(),
    ):
        broken = unary()
        change(broken)
        with pytest.raises(StreamViolation):
            check_unary(request(), broken, spelled)


Pairs = tuple[tuple[str, str | bytes], ...]


def trailing(error: Exception) -> tuple[grpc.StatusCode, str, Pairs]:
    failure = failure_of(error, request_id="7")
    return status_code(failure), failure.message, trailing_metadata(failure)


@pytest.mark.parametrize(
    "error",
    [
        Refusal("LOADING", "the model is being loaded"),
        make_error("KV_FULL", "no block", {"needed": "3", "available": "2"}),
        make_error("NON_FINITE", "NaN", {"position": "3"}),
        ValueError("whatever it was"),
    ],
)
def test_rpc_41_a_row_of_the_table_passes(error: Exception) -> None:
    check_status(*trailing(error))


def test_rpc_41_what_grpc_says_itself_passes() -> None:
    check_status(grpc.StatusCode.OK, "", ())
    check_status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!", ())
    crossed = trailing(Refusal("DRAINING", "bye"))[2]
    check_status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!", crossed)
    check_status(grpc.StatusCode.DEADLINE_EXCEEDED, "Stream removed (Deadline Exceeded)", crossed)
    check_status(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses", ())


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("code", "words", "pairs"),
    [
        (None, None, ()),
        (grpc.StatusCode.UNKNOWN, "Unexpected <class 'KeyError'>", ()),
        (grpc.StatusCode.INTERNAL, "something went wrong", ()),
        (grpc.StatusCode.INVALID_ARGUMENT, "no details", ()),
        (grpc.StatusCode.UNAVAILABLE, "the model is being loaded", ()),
        (grpc.StatusCode.ABORTED, *trailing(Refusal("LOADING", "not so"))[1:]),
        (grpc.StatusCode.DEADLINE_EXCEEDED, *trailing(Refusal("DRAINING", "bye"))[1:]),
        (grpc.StatusCode.UNAVAILABLE, "other words", trailing(Refusal("LOADING", "these words"))[2]),
        trailing(make_error("FIELD_INVALID", f"text: {SECRET} is too long")),
        trailing(make_error("FIELD_INVALID", "file: /var/models/a.gguf is not there")),
        trailing(make_error("FIELD_INVALID", "at 0x7f3a00c0ffee")),
    ],
)
def test_rpc_41_rpc_14_anything_else_is_noticed(code: grpc.StatusCode | None, words: str | None, pairs: Pairs) -> None:
    with pytest.raises(StatusViolation):
        check_status(code, words, pairs)
