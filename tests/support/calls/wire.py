"""Builds requests of imp.v1 and reads their replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2


def ask(prompt: str | Sequence[int], max_tokens: int | None = 16, **fields: Any) -> pb.GenerateRequest:
    """Returns a greedy request; `fields` of GenerateRequest are merged into it."""
    request = pb.GenerateRequest(sampling=types_pb2.SamplingOptions(temperature=0.0))
    if max_tokens is not None:
        request.stop.max_tokens = max_tokens
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.ids.extend(prompt)
    request.MergeFrom(pb.GenerateRequest(**fields))
    return request


def tokens_of(messages: Sequence[pb.GenerateResponse], index: int = 0) -> list[int]:
    """Returns the tokens of one sequence of a whole stream."""
    return [
        token
        for message in messages
        if message.WhichOneof("event") == "chunk" and message.chunk.index == index
        for token in message.chunk.token_ids
    ]
