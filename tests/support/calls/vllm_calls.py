"""Calls VllmEngine and collects its answers. The counterpart in imp.v1 is support.calls.generations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from smg_grpc_proto.generated import vllm_engine_pb2 as vllm
from smg_grpc_proto.generated import vllm_engine_pb2_grpc

from support.calls.generations import Output, Result
from support.servers.served import Served

COMPAT = 'listen.compat=["vllm"]'
SERVICE = "vllm.grpc.engine.VllmEngine"
ENGINE = vllm.DESCRIPTOR.services_by_name["VllmEngine"]


def stub(served: Served) -> vllm_engine_pb2_grpc.VllmEngineStub:
    """Returns a stub on a new channel."""
    return vllm_engine_pb2_grpc.VllmEngineStub(served.channel())


def asking(prompt: str | Sequence[int], *, stream: bool = False, request_id: str = "", **params: Any) -> Any:
    """Returns a request; greedy unless `params`, the fields of SamplingParams, change that."""
    request = vllm.GenerateRequest(stream=stream, request_id=request_id)
    request.sampling_params.MergeFrom(
        vllm.SamplingParams(**{"temperature": 0.0, "skip_special_tokens": True, **params})
    )
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.tokenized.input_ids.extend(prompt)
    return request


def answered(messages: Sequence[Any], n: int = 1) -> list[Output]:
    """Returns the sequences of an answer, from its chunks or its ends, in the form of imp.v1."""
    outputs = [Output() for _ in range(n)]
    for message in messages:
        kind = message.WhichOneof("response")
        part = getattr(message, kind)
        output = outputs[part.index]
        output.ids += part.token_ids if kind == "chunk" else part.output_ids
        scores = part.output_logprobs
        output.logprobs += scores.token_logprobs
        output.candidates += [list(zip(top.token_ids, top.values, strict=True)) for top in scores.top_logprobs]
        if kind == "complete":
            assert part.completion_tokens == len(output.ids)
            output.reason = part.finish_reason
            output.match = stop_of(part)
    return outputs


def stop_of(end: Any) -> tuple[str, Any] | None:
    """Returns what ended a sequence: the kind of the stop and its value."""
    kind = end.WhichOneof("matched_stop")
    return None if kind is None else (kind, getattr(end, kind))


def comparable(result: Result) -> list[tuple[object, ...]]:
    """Returns what each sequence of an imp.v1 answer shares with VllmEngine's answer."""
    return [scored(output) for output in result.outputs]


def scored(output: Output) -> tuple[object, ...]:
    """Returns the tokens and scores of a sequence."""
    return (output.ids, output.logprobs, output.candidates)


def prompt_scores(scores: Any) -> tuple[list[int], list[float], list[list[tuple[int, float]]]]:
    """Returns InputLogProbs in the form of imp.v1's TokenScores; a missing score becomes NaN."""
    values = [each.value if each.HasField("value") else math.nan for each in scores.token_logprobs]
    tops = [list(zip(top.token_ids, top.values, strict=True)) for top in scores.top_logprobs]
    return list(scores.token_ids), values, tops
