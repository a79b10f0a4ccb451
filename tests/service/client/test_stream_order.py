"""The order of a Generate stream: the client notices a lost, repeated or misplaced message."""

from __future__ import annotations

import pytest

from imp_service.client.stream_order import StreamBroken, StreamOrder
from imp_service.pb.inference_pb2 import GenerateResponse, GenerationChunk, GenerationFinished, GenerationStarted
from support.scripted_server import story

STARTED = GenerateResponse(started=GenerationStarted(request_id="r"))


def chunk(first_token: int, n_tokens: int = 1, index: int = 0) -> GenerateResponse:
    return GenerateResponse(chunk=GenerationChunk(index=index, first_token=first_token, token_ids=[1] * n_tokens))


def finished(index: int = 0) -> GenerateResponse:
    return GenerateResponse(finished=GenerationFinished(index=index))


def check(*messages: GenerateResponse, n_sequences: int = 1) -> None:
    order = StreamOrder(n_sequences)
    for message in messages:
        order.check(message)
    order.end()


def test_rpc_1_rpc_2_whole_streams_are_in_order():
    check(*story("a", "b"))
    check(STARTED, finished())
    check(STARTED, chunk(0, 3, index=1), chunk(0), chunk(3, index=1), finished(1), chunk(1), finished(), n_sequences=2)
    check(GenerateResponse(), STARTED, GenerateResponse(), finished())  # a kind that this client does not know


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([chunk(0)], "chunk before started"),
        ([STARTED, STARTED], "started again"),
        ([STARTED, chunk(0, 2), chunk(3)], "token 2 expected next, token 3 came"),
        ([STARTED, chunk(0, 2), chunk(0, 2)], "token 2 expected next, token 0 came"),
        ([STARTED, finished(), chunk(0)], "chunk of sequence 0, which had finished"),
        ([STARTED, finished(), finished()], "finished of sequence 0, which had finished"),
        ([STARTED, chunk(0, index=1)], "chunk of sequence 1, which was not asked for"),
        ([STARTED, chunk(0)], "the stream ended before sequence 0 did"),
        ([], "the stream ended before sequence 0 did"),
    ],
)
def test_rpc_1_rpc_2_a_broken_stream_is_noticed(messages: list[GenerateResponse], complaint: str):
    with pytest.raises(StreamBroken, match=complaint):
        check(*messages)


def test_rpc_2_each_message_lost_is_noticed():
    whole = story("a", "b", "c")
    for lost in range(len(whole)):
        with pytest.raises(StreamBroken):
            check(*whole[:lost], *whole[lost + 1 :])


def test_rpc_2_tokens_lost_before_the_end_are_counted_by_the_usage():
    def ended(n_output: int) -> GenerateResponse:
        return GenerateResponse(finished=GenerationFinished(usage={"output_tokens": n_output}))

    check(STARTED, chunk(0, 2), ended(2))
    for n_output in (1, 3):
        with pytest.raises(StreamBroken, match=f"{n_output} tokens were sent, 2 came"):
            check(STARTED, chunk(0, 2), ended(n_output))


@pytest.mark.parametrize("match", [{"token_id": 7}, {"eos_token_id": 2}, {"text": "x"}])
def test_rpc_2_a_stop_token_that_is_kept_comes_and_is_not_in_the_usage(match: dict[str, object]):
    end = GenerateResponse(finished=GenerationFinished(usage={"output_tokens": 2}, match=match))
    kept, plain = StreamOrder(keeps_match=True), StreamOrder()
    for message in (STARTED, chunk(0, 2 if "text" in match else 3), end):
        kept.check(message)
    kept.end()
    for message in (STARTED, chunk(0, 2), end):
        plain.check(message)
    plain.end()
