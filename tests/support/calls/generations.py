"""Runs generations on a server, streamed or in one reply, and returns plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import Any

from imp_service.config import read_settings
from imp_service.core import open_file
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from imp_service.text import Tokenizer
from support.servers.served import Served
from support.servers.served_models import ServedModel, scripted


@dataclasses.dataclass
class Output:
    """One sequence of a generation."""

    ids: list[int] = dataclasses.field(default_factory=list)
    text: str = ""
    logprobs: list[float] = dataclasses.field(default_factory=list)
    candidates: list[list[tuple[int, float]]] = dataclasses.field(default_factory=list)
    reason: str = ""
    match: tuple[str, Any] | None = None


@dataclasses.dataclass
class Result:
    """A generation that ended with OK. `chunks` has the number of tokens of each message; empty for a unary reply."""

    started: pb.GenerationStarted
    outputs: list[Output]
    usage: types_pb2.Usage
    timings: types_pb2.Timings
    chunks: list[int] = dataclasses.field(default_factory=list)

    @property
    def output(self) -> Output:
        """The only sequence."""
        (output,) = self.outputs
        return output


def streamed(served: Served, request: pb.GenerateRequest, **call: Any) -> Result:
    """Returns the result of Generate."""
    return result_of(list(served.inference.Generate(request, **call)))


def result_of(messages: Sequence[pb.GenerateResponse]) -> Result:
    """Assembles the messages of a whole stream."""
    n = sum(message.WhichOneof("event") == "finished" for message in messages)
    result = Result(messages[0].started, [Output() for _ in range(n)], types_pb2.Usage(), types_pb2.Timings())
    for message in messages[1:]:
        if message.WhichOneof("event") == "chunk":
            result.chunks.append(len(message.chunk.token_ids))
            _add(result.outputs[message.chunk.index], message.chunk)
        else:
            finished = message.finished
            output = result.outputs[finished.index]
            output.text += finished.text
            _end(output, finished)
            if finished.HasField("usage"):
                result.usage, result.timings = finished.usage, finished.timings
    return result


def in_one(served: Served, request: pb.GenerateRequest, **call: Any) -> Result:
    """Returns the result of GenerateUnary."""
    reply = served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=request), **call)
    result = Result(reply.started, [Output() for _ in reply.sequences], reply.usage, reply.timings)
    for output, sequence in zip(result.outputs, reply.sequences, strict=True):
        _add(output, sequence.output)
        _end(output, sequence)
    return result


def _add(output: Output, chunk: pb.GenerationChunk) -> None:
    output.ids += chunk.token_ids
    output.text += chunk.text
    output.logprobs += chunk.logprobs
    output.candidates += [[(item.token_id, item.logprob) for item in each.items] for each in chunk.candidates]


def _end(output: Output, ended: pb.GenerationFinished | pb.GeneratedSequence) -> None:
    output.reason = types_pb2.FinishReason.Name(ended.reason).removeprefix("FINISH_REASON_")
    kind = ended.match.WhichOneof("match")
    output.match = None if kind is None else (kind, getattr(ended.match, kind))


def counted(served: Served, name: str, **labels: str) -> float:
    """Returns a metric of the server; 0 if it was never counted."""
    return served.call(lambda: served.state.telemetry.metrics.registry.get_sample_value(name, labels)) or 0.0


@cache
def vocabulary() -> Tokenizer:
    """Returns the tokenizer of the built-in model."""
    file = open_file(read_settings(None, []))
    return Tokenizer.from_metadata(file.metadata)


@cache
def byte_tokens() -> dict[int, int]:
    """Returns a map from each byte to the token that consists of this byte."""
    tokenizer = vocabulary()
    pieces = {tokenizer.token_bytes(token): token for token in reversed(range(tokenizer.vocab_size))}
    return {byte: pieces[bytes([byte])] for byte in range(256) if bytes([byte]) in pieces}


def spelled(text: str | bytes) -> list[int]:
    """Returns the text as tokens of one byte each."""
    return [byte_tokens()[byte] for byte in (text.encode() if isinstance(text, str) else text)]


def saying(tokens: Sequence[int], **engine: Any) -> ServedModel:
    """Returns a model that answers a prompt of one token with these tokens, repeated."""
    return scripted("table", script={"table": list(tokens)}, **engine)
