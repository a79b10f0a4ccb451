"""Streams of Generate that broke: what their caller has, the request that goes on, and both parts as one."""

from __future__ import annotations

from collections.abc import Sequence

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.imp_v1.whole_generation import WholeGeneration


def n_sequences(request: pb.GenerateRequest) -> int:
    return request.num_sequences if request.HasField("num_sequences") else 1


def told_of(request: pb.GenerateRequest, messages: Sequence[pb.GenerateResponse]) -> list[pb.ResumedSequence]:
    """What came of each sequence."""
    told = [pb.ResumedSequence() for _ in range(n_sequences(request))]
    for message in messages:
        if message.WhichOneof("event") == "chunk":
            told[message.chunk.index].token_ids.extend(message.chunk.token_ids)
        elif message.WhichOneof("event") == "finished":
            told[message.finished.index].finished = True
    return told


def resuming(request: pb.GenerateRequest, messages: Sequence[pb.GenerateResponse]) -> pb.GenerateRequest:
    """The request that goes on behind these messages, of which the first is `started`."""
    going_on = pb.GenerateRequest()
    going_on.CopyFrom(request)
    going_on.resume.origin.CopyFrom(messages[0].started.origin)
    going_on.resume.sequences.extend(told_of(request, messages))
    return going_on


def whole_of(request: pb.GenerateRequest, messages: Sequence[pb.GenerateResponse]) -> pb.GenerateUnaryResponse:
    """Everything that a caller has at the end, without what depends on load, cache and drafters."""
    whole = WholeGeneration(n_sequences(request))
    for message in messages[1:]:
        whole.add(message)
    response = whole.response()
    response.ClearField("timings")
    response.ClearField("speculation")
    for name in ("cached_prompt_tokens", "draft_tokens", "accepted_draft_tokens"):
        response.usage.ClearField(name)
    return response


def joined(messages: Sequence[pb.GenerateResponse], others: Sequence[pb.GenerateResponse]) -> list[pb.GenerateResponse]:
    """The messages that came, and those of the request that went on."""
    return [*messages, *others[1:]]
