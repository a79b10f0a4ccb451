"""Writes replies of the Python API as messages of imp.v1. Chunks are the hot path: at worst one for each token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from imp_service.api.decisions import Decision
from imp_service.api.options import DryOptions, SamplingOptions
from imp_service.api.replies import (
    Candidate,
    Chunk,
    Finished,
    MediaSpan,
    Reply,
    Scores,
    SparsePrefillReport,
    SpeculationReport,
    Started,
    StepOutput,
    StopMatch,
    Timings,
    Usage,
)
from imp_service.api.tool_calls import ToolCallDelta
from imp_service.pb import inference_pb2, types_pb2
from imp_service.rpc.durations import duration
from imp_service.rpc.encoded import Encoded, Pieces
from imp_service.tables import DRY_FIELDS, SAMPLER_FIELDS

STARTED = inference_pb2.GenerateResponse.DESCRIPTOR.fields_by_name["started"].number
PROMPT = inference_pb2.GenerationStarted.DESCRIPTOR.fields_by_name["prompt"].number

# "cancelled" is missing: such a run has no caller any more.
FINISH_REASONS: Mapping[str, types_pb2.FinishReason] = {
    "stop": types_pb2.FINISH_REASON_STOP,
    "max_tokens": types_pb2.FINISH_REASON_MAX_TOKENS,
    "context_full": types_pb2.FINISH_REASON_CONTEXT_FULL,
    "time_limit": types_pb2.FINISH_REASON_TIME_LIMIT,
    "aborted": types_pb2.FINISH_REASON_ABORTED,
}


def write_reply(reply: Reply, request_id: str, model: str) -> inference_pb2.GenerateResponse:
    """One message of a Generate stream."""
    response = inference_pb2.GenerateResponse()
    if isinstance(reply, Chunk):
        _write_chunk(reply, response.chunk)
    elif isinstance(reply, Finished):
        _write_finished(reply, response.finished)
    else:
        _write_started_without_scores(reply, request_id, model, response.started)
        if reply.held_scores:
            add_scores(response.started.prompt, reply.held_scores)
    return response


def write_decision(decision: Decision, request_id: str, model: str) -> inference_pb2.DecideResponse:
    """The reply to a decision."""
    labels = [inference_pb2.LabelProbability(**asdict(each)) for each in decision.labels]
    return inference_pb2.DecideResponse(
        request_id=request_id,
        model=model,
        label=decision.label,
        labels=labels,
        mass=decision.mass,
        confidence=decision.confidence,
        mean=decision.mean,
        usage=write_usage(decision.usage),
        evaluations=decision.evaluations,
    )


def write_step_output(output: StepOutput) -> inference_pb2.StepOutput:
    """One session's output at one step, without scores."""
    message = inference_pb2.StepOutput(
        position=output.position,
        token_id=output.token_id,
        logprob=output.logprob,
        text=output.text,
        eos=output.eos,
        logits=output.logits,
    )
    if output.candidates:
        message.candidates.CopyFrom(_candidates(output.candidates))
    return message


def add_scores(message: types_pb2.TokenScores, scores: Scores) -> None:
    """Adds scores to a message that has none. Run it on a worker if they are many."""
    for part in write_scores(scores):
        message.MergeFrom(part)


def write_scores(scores: Scores) -> Iterator[types_pb2.TokenScores]:
    """Parallel lists, in parts. A list that was not requested is empty."""
    for part in scores.parts():
        candidates = map(_candidates, part.candidates)
        yield types_pb2.TokenScores(token_ids=part.token_ids, logprobs=part.logprobs, candidates=candidates)


def write_media(spans: Iterable[MediaSpan], first: int = 0) -> list[types_pb2.MediaSpan]:
    """Where the images of a prompt are. It begins at the token `first` of its session."""
    return [types_pb2.MediaSpan(**{**asdict(span), "first_token": first + span.first_token}) for span in spans]


def write_sampling(options: SamplingOptions) -> types_pb2.SamplingOptions:
    """Every field that is set. The model's default sampler has no seed: each request draws its own."""
    dry = options.dry
    return types_pb2.SamplingOptions(
        **{name: getattr(options, name) for name in SAMPLER_FIELDS},
        logit_bias=options.logit_bias,
        seed=options.seed,
        dry=None if dry is None else _dry(dry),
    )


def _dry(options: DryOptions) -> types_pb2.DryOptions:
    return types_pb2.DryOptions(**{name: getattr(options, name) for name in DRY_FIELDS}, breakers=options.breakers)


def encode_started(started: Started, request_id: str, model: str) -> Encoded:
    """The first message of a Generate stream, with the scores of the prompt. Run it on a worker if they are many."""
    bare = inference_pb2.GenerationStarted()
    _write_started_without_scores(started, request_id, model, bare)
    head, whole = Pieces(), Pieces()
    head.add(bare.SerializeToString())
    head.add_field(PROMPT, (part.SerializeToString() for part in write_scores(started.held_scores)))
    whole.add_field(STARTED, [head.joined().content])
    return whole.joined()


def write_usage(usage: Usage) -> types_pb2.Usage:
    """The tokens that a request used."""
    return types_pb2.Usage(**asdict(usage))


def write_speculation(report: SpeculationReport) -> types_pb2.SpeculationReport:
    """How drafting went."""
    return types_pb2.SpeculationReport(
        drafters=[types_pb2.DrafterReport(**asdict(each)) for each in report.drafters],
        rounds=report.rounds,
        off_reason=report.off_reason,
    )


def write_sparse_prefill(report: SparsePrefillReport) -> types_pb2.SparsePrefillReport:
    """What of the prompt was evaluated."""
    sparse, dense = types_pb2.SPARSE_PREFILL_POLICY_SPARSE, types_pb2.SPARSE_PREFILL_POLICY_DENSE
    return types_pb2.SparsePrefillReport(
        effective_policy=sparse if report.is_sparse else dense,
        fallback_reason=report.reason,
        scored_tokens=report.scored_tokens,
        selected_tokens=report.selected_tokens,
        scoring=duration(report.scoring),
    )


def write_timings(timings: Timings) -> types_pb2.Timings:
    """The time that a request spent in each phase."""
    return types_pb2.Timings(
        queue=duration(timings.queue),
        prefill=duration(timings.prefill),
        decode=duration(timings.decode),
        blocked=duration(timings.blocked),
        encode=duration(timings.encode),
    )


def _write_chunk(chunk: Chunk, message: inference_pb2.GenerationChunk) -> None:
    # Assignments take half the time of a constructor with keywords. Zero is the default of an unset field.
    if chunk.index:
        message.index = chunk.index
    if chunk.first_token:
        message.first_token = chunk.first_token
    message.token_ids.extend(chunk.token_ids)
    if chunk.text:
        message.text = chunk.text
    if chunk.logprobs:
        message.logprobs.extend(chunk.logprobs)
    if chunk.candidates:
        message.candidates.extend(map(_candidates, chunk.candidates))
    if chunk.reasoning:
        message.reasoning = chunk.reasoning
    if chunk.tool_calls:
        message.tool_calls.extend(map(_tool_call, chunk.tool_calls))


def _tool_call(call: ToolCallDelta) -> types_pb2.ToolCallDelta:
    return types_pb2.ToolCallDelta(index=call.index, id=call.id, name=call.name, arguments_json=call.arguments)


def _write_started_without_scores(
    started: Started, request_id: str, model: str, message: inference_pb2.GenerationStarted
) -> None:
    _write_values(started, message)
    message.request_id = request_id
    message.model = model
    message.sampling.CopyFrom(write_sampling(started.sampling))
    message.media.extend(write_media(started.media))
    if started.origin is not None:
        message.origin.CopyFrom(inference_pb2.Origin(**asdict(started.origin)))
    if started.sparse_prefill is not None:
        message.sparse_prefill.CopyFrom(write_sparse_prefill(started.sparse_prefill))


def _write_values(reply: Started | Finished, message: Any) -> None:
    """The numbers, texts and flags that the reply has by the names of the message's fields."""
    for field in message.DESCRIPTOR.fields:
        is_value = not (field.is_repeated or field.message_type or field.enum_type)
        if is_value and hasattr(reply, field.name):
            setattr(message, field.name, getattr(reply, field.name))


def _write_finished(finished: Finished, message: inference_pb2.GenerationFinished) -> None:
    _write_values(finished, message)
    message.reason = FINISH_REASONS[finished.reason]
    message.tool_calls.extend(map(_tool_call, finished.tool_calls))
    if finished.match is not None:
        message.match.CopyFrom(_match(finished.match))
    if finished.usage is not None:
        message.usage.CopyFrom(write_usage(finished.usage))
    if finished.timings is not None:
        message.timings.CopyFrom(write_timings(finished.timings))
    if finished.speculation is not None:
        message.speculation.CopyFrom(write_speculation(finished.speculation))


def _match(match: StopMatch) -> types_pb2.StopMatch:
    return types_pb2.StopMatch(text=match.text, token_id=match.token_id, eos_token_id=match.eos_token_id)


def _candidates(items: Iterable[Candidate]) -> types_pb2.Candidates:
    return types_pb2.Candidates(
        items=[types_pb2.Candidate(token_id=item.token_id, logprob=item.logprob) for item in items]
    )
