"""Messages of imp.v1 as replies of the Python API."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, cast

from google.protobuf.duration_pb2 import Duration

from ...api.decisions import Decision, LabelProbability
from ...api.float32 import shortest
from ...api.options import DryOptions, SamplingOptions
from ...api.replies import (
    Candidate,
    Chunk,
    DrafterReport,
    Finished,
    FinishReason,
    MediaSpan,
    Reply,
    SparsePrefillReport,
    SpeculationReport,
    Started,
    StepOutput,
    StopMatch,
    Timings,
    TokenScores,
    Usage,
)
from ...api.reports import EmbeddingSupport, LoadReport, ModelInfo
from ...api.resume import Origin
from ...api.tool_calls import ToolCallDelta
from ...api.vectors import Ranking, RankResult, Vectors
from ...pb import inference_pb2, model_pb2, types_pb2

T = TypeVar("T")
NS = 1e-9  # seconds
# The number of tokens in one part of the scores.
PART_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class WireScores:
    """Scores as received; they are parsed when they are used."""

    message: types_pb2.TokenScores

    def __len__(self) -> int:
        return max(len(self.message.token_ids), len(self.message.logprobs))

    def parts(self) -> Iterator[TokenScores]:
        """All of them, in order."""
        for first in range(0, len(self), PART_TOKENS):
            here = slice(first, first + PART_TOKENS)
            candidates = self.message.candidates[here]
            yield TokenScores(
                list(self.message.token_ids[here]), list(self.message.logprobs[here]), read_candidates(candidates)
            )

    def whole(self) -> TokenScores:
        """All of them in one object."""
        message = self.message
        return TokenScores(list(message.token_ids), list(message.logprobs), read_candidates(message.candidates))


def read_reply(message: inference_pb2.GenerateResponse) -> Reply | None:
    """A reply, or None for a kind of a later revision."""
    match message.WhichOneof("event"):
        case "started":
            started = message.started
            return _read(
                Started,
                started,
                sampling=replace(_sampling(started.sampling), seed=started.seed),
                held_scores=WireScores(started.prompt),
                sparse_prefill=_sparse_prefill(started.sparse_prefill) if started.HasField("sparse_prefill") else None,
                media=[_read(MediaSpan, each) for each in started.media],
                origin=_read(Origin, started.origin) if started.HasField("origin") else None,
            )
        case "chunk":
            chunk = message.chunk
            return Chunk(
                chunk.index,
                chunk.first_token,
                list(chunk.token_ids),
                chunk.text,
                list(chunk.logprobs),
                read_candidates(chunk.candidates),
                chunk.reasoning,
                [_tool_call(each) for each in chunk.tool_calls],
            )
        case "finished":
            return _finished(message.finished)
    return None


def read_step(output: inference_pb2.StepOutput, cached_tokens: int, timings: Timings) -> StepOutput:
    """One session's output at one step."""
    return StepOutput(
        position=output.position,
        token_id=output.token_id if output.HasField("token_id") else None,
        logprob=output.logprob if output.HasField("logprob") else None,
        text=output.text,
        eos=output.eos,
        cached_tokens=cached_tokens,
        candidates=_candidates(output.candidates),
        logits=output.logits,
        held_scores=WireScores(output.scores),
        timings=timings,
    )


def read_decision(message: inference_pb2.DecideResponse) -> Decision:
    """A decision."""
    labels = tuple(LabelProbability(each.label, each.probability, tuple(each.token_ids)) for each in message.labels)
    return _read(Decision, message, labels=labels, usage=_read(Usage, message.usage))


def read_timings(timings: types_pb2.Timings) -> Timings:
    """The time that a request spent in each phase."""
    parts = (timings.queue, timings.prefill, timings.decode, timings.blocked, timings.encode)
    return Timings(*(seconds(part) for part in parts))


def read_vectors(reply: inference_pb2.EmbedResponse) -> Vectors:
    """The vectors."""
    values = tuple(array("f", each.values) for each in reply.embeddings)
    return Vectors(values, **_of_call(reply))


def read_ranking(reply: inference_pb2.RerankResponse) -> Ranking:
    """The documents in order."""
    results = tuple(RankResult(each.index, each.score) for each in reply.results)
    return Ranking(results, **_of_call(reply))


def _of_call(reply: inference_pb2.EmbedResponse | inference_pb2.RerankResponse) -> dict[str, Any]:
    return {
        "timings": read_timings(reply.timings),
        "prompt_tokens": reply.usage.prompt_tokens,
        "cached_prompt_tokens": reply.usage.cached_prompt_tokens,
        "truncated": tuple(reply.truncated),
    }


def seconds(duration: Duration) -> float:
    """A duration in seconds."""
    return duration.seconds + duration.nanos * NS


def read_candidates(positions: Iterable[types_pb2.Candidates]) -> list[list[Candidate]]:
    """The candidates of each position."""
    return [_candidates(each) for each in positions]


def read_model_info(info: model_pb2.GetModelInfoResponse) -> ModelInfo:
    """The model."""
    return _read(
        ModelInfo,
        info,
        name=info.model,
        max_context=info.max_context_tokens,
        default_sampling=_sampling(info.default_sampling),
        embeddings=_read(EmbeddingSupport, info.embeddings) if info.HasField("embeddings") else None,
    )


def read_load(load: model_pb2.Load) -> LoadReport:
    """The load."""
    from datetime import UTC

    return _read(LoadReport, load, time=load.time.ToDatetime(UTC))


def _read(kind: type[T], message: Any, **others: Any) -> T:
    """An object of a class: the message's fields of the same names, and `others`."""
    own: Any = kind
    known = message.DESCRIPTOR.fields_by_name
    names = [each.name for each in fields(own) if each.name not in others]
    return kind(**{name: _value(message, known[name]) for name in names}, **others)


def _value(message: Any, field: Any) -> Any:
    """The value of a field; None for one that is not set and has no default."""
    value = getattr(message, field.name)
    if field.is_repeated:
        return dict(value) if isinstance(value, Mapping) else list(value)
    if field.message_type is Duration.DESCRIPTOR:
        return seconds(value)
    return value if not field.has_presence or message.HasField(field.name) else None


def _finished(message: inference_pb2.GenerationFinished) -> Finished:
    is_last = message.HasField("usage")
    return _read(
        Finished,
        message,
        reason=_finish_reason(message.reason),
        match=_match(message.match) if message.HasField("match") else None,
        usage=_read(Usage, message.usage) if is_last else None,
        timings=read_timings(message.timings) if is_last else None,
        tool_calls=[_tool_call(each) for each in message.tool_calls],
        speculation=_speculation(message.speculation) if is_last else None,
    )


def _sparse_prefill(report: types_pb2.SparsePrefillReport) -> SparsePrefillReport:
    return SparsePrefillReport(
        report.effective_policy == types_pb2.SPARSE_PREFILL_POLICY_SPARSE,
        report.fallback_reason,
        report.scored_tokens,
        report.selected_tokens,
        seconds(report.scoring),
    )


def _speculation(report: types_pb2.SpeculationReport) -> SpeculationReport:
    return _read(SpeculationReport, report, drafters=[_read(DrafterReport, each) for each in report.drafters])


def _finish_reason(reason: types_pb2.FinishReason) -> FinishReason:
    """Its name; the number of one that a later revision has."""
    known = types_pb2.FinishReason.DESCRIPTOR.values_by_number.get(reason)
    name = str(reason) if known is None else known.name.removeprefix("FINISH_REASON_").lower()
    return cast(FinishReason, name)


def _match(match: types_pb2.StopMatch) -> StopMatch:
    kind = match.WhichOneof("match")
    return StopMatch(**({} if kind is None else {kind: getattr(match, kind)}))


def _tool_call(call: types_pb2.ToolCallDelta) -> ToolCallDelta:
    return ToolCallDelta(call.index, call.id, call.name, call.arguments_json)


def _candidates(candidates: types_pb2.Candidates) -> list[Candidate]:
    return [Candidate(item.token_id, item.logprob) for item in candidates.items]


def _sampling(message: types_pb2.SamplingOptions) -> SamplingOptions:
    values = _decimals(message)
    values["logit_bias"] = dict(message.logit_bias)
    if "dry" in values:
        dry = _decimals(message.dry)
        values["dry"] = DryOptions(**{**dry, "breakers": tuple(message.dry.breakers)})
    known = {field.name for field in fields(SamplingOptions)}
    return SamplingOptions(**{name: value for name, value in values.items() if name in known})


def _decimals(message: Any) -> dict[str, Any]:
    """The fields that are set. Floats are the decimals that were set, as on the side that set them."""
    fields_set: Iterable[tuple[Any, Any]] = message.ListFields()
    return {field.name: shortest(value) if isinstance(value, float) else value for field, value in fields_set}
