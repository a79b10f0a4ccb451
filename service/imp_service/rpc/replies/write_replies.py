"""Replies of the generation room as messages of imp.v1. Chunks are the hot path: a message for each token at worst."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from imp_service.generation import Candidate, Chunk, Finished, Started, StepOutput, StopMatch, Timings, TokenScores
from imp_service.generation.replies import Reply, Usage
from imp_service.pb import inference_pb2, types_pb2
from imp_service.rpc.durations import duration

# A run that was cancelled has nobody to tell a reason to.
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
        _write_started(reply, request_id, model, response.started)
    return response


def write_step_output(output: StepOutput) -> inference_pb2.StepOutput:
    """One session's output at one step."""
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
    if output.scores.token_ids:
        message.scores.CopyFrom(write_scores(output.scores))
    return message


def write_scores(scores: TokenScores) -> types_pb2.TokenScores:
    """Parallel lists; one that was not asked for is empty."""
    candidates = [_candidates(items) for items in scores.candidates] if any(scores.candidates) else []
    return types_pb2.TokenScores(token_ids=scores.token_ids, logprobs=scores.logprobs, candidates=candidates)


def write_usage(usage: Usage) -> types_pb2.Usage:
    """Tokens a request used."""
    return types_pb2.Usage(
        prompt_tokens=usage.prompt_tokens,
        cached_prompt_tokens=usage.cached_prompt_tokens,
        output_tokens=usage.output_tokens,
    )


def write_timings(timings: Timings) -> types_pb2.Timings:
    """Where a request's time went."""
    return types_pb2.Timings(
        queue=duration(timings.queue),
        prefill=duration(timings.prefill),
        decode=duration(timings.decode),
        blocked=duration(timings.blocked),
    )


def _write_chunk(chunk: Chunk, message: inference_pb2.GenerationChunk) -> None:
    # Assigned one by one: half the cost of a constructor with keywords. Zero is what an unset field reads as.
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


def _write_started(started: Started, request_id: str, model: str, message: inference_pb2.GenerationStarted) -> None:
    message.request_id = request_id
    message.model = model
    message.seed = started.seed
    message.prompt_tokens = started.prompt_tokens
    message.cached_prompt_tokens = started.cached_prompt_tokens
    if started.prompt.token_ids or started.prompt.logprobs:
        message.prompt.CopyFrom(write_scores(started.prompt))


def _write_finished(finished: Finished, message: inference_pb2.GenerationFinished) -> None:
    message.index = finished.index
    message.reason = FINISH_REASONS[finished.reason]
    message.text = finished.text
    if finished.match is not None:
        message.match.CopyFrom(_match(finished.match))
    if finished.usage is not None:
        message.usage.CopyFrom(write_usage(finished.usage))
    if finished.timings is not None:
        message.timings.CopyFrom(write_timings(finished.timings))


def _match(match: StopMatch) -> types_pb2.StopMatch:
    return types_pb2.StopMatch(text=match.text, token_id=match.token_id, eos_token_id=match.eos_token_id)


def _candidates(items: Iterable[Candidate]) -> types_pb2.Candidates:
    return types_pb2.Candidates(
        items=[types_pb2.Candidate(token_id=item.token_id, logprob=item.logprob) for item in items]
    )
