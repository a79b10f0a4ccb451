"""Rules of whole messages: which fields must be set, exclude each other, or must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from imp_service.api.errors import Violation
from imp_service.api.options import PROMPT_SCORES, SparsePrefillOptions
from imp_service.pb import admin_pb2, inference_pb2, tokenizer_pb2, types_pb2
from imp_service.rpc.imp_v1.requests.read_options import read_options
from imp_service.serving.refusal import Refusal
from imp_service.serving.rules.check import Finding
from imp_service.serving.rules.generation_rules import DETOKENIZED, ServedRule
from imp_service.serving.served_model import ServedModel

MessageRule = Callable[[Any, str, ServedModel], Iterator[Finding]]


def under(path: str, field: str) -> str:
    """A field's path in its message."""
    return f"{path}.{field}" if path else field


def exactly_one(oneof: str) -> MessageRule:
    """A member of the oneof must be set."""

    def check(message: Any, path: str, served: ServedModel) -> Iterator[Finding]:
        if message.WhichOneof(oneof) is None:
            members = [field.name for field in message.DESCRIPTOR.oneofs_by_name[oneof].fields]
            yield Violation(_oneof_path(message, path, oneof), f"not set, expected one of {', '.join(members)}")

    return check


def _oneof_path(message: Any, path: str, oneof: str) -> str:
    """The path of a oneof; for Constraint.kind that of the constraint, since callers do not see the name `kind`."""
    return path if isinstance(message, types_pb2.Constraint) else under(path, oneof)


def required(field: str) -> MessageRule:
    """A string or message field that must be set."""

    def check(message: Any, path: str, served: ServedModel) -> Iterator[Finding]:
        value = getattr(message, field)
        if not (value if isinstance(value, str) else message.HasField(field)):
            yield Violation(under(path, field), "not set")

    return check


def not_resumed(message: inference_pb2.GenerateUnaryRequest, path: str, served: ServedModel) -> Iterator[Violation]:
    """Nothing came of a call without a stream."""
    if message.request.HasField("resume"):
        yield Violation(under(path, "request.resume"), "set, expected none in GenerateUnary: use Generate")


def always(field: str, rule: ServedRule) -> MessageRule:
    """Checks a field without presence even if it has its default, zero or empty."""

    def check(message: Any, path: str, served: ServedModel) -> Iterator[Finding]:
        yield from rule.check(getattr(message, field), under(path, field), served)

    return check


def fits_its_session(request: inference_pb2.GenerateRequest, path: str, served: ServedModel) -> Iterator[Finding]:
    """A generation on a session has one sequence and no prompt, and the session has its own cache options."""
    if request.WhichOneof("prompt") != "session_id":
        return
    if not request.session_id:
        yield Violation(under(path, "session_id"), "empty")
    if request.HasField("num_sequences") and request.num_sequences > 1:
        yield Violation(under(path, "num_sequences"), f"{request.num_sequences}, expected 1 with session_id")
    if request.HasField("resume"):
        yield Violation(under(path, "resume"), "set, expected none with session_id")
    if request.HasField("cache"):
        yield Violation(under(path, "cache"), "set, expected none with session_id")
    if read_options(SparsePrefillOptions, request.sparse_prefill).is_wanted:
        yield Violation(under(path, "sparse_prefill"), "set, expected none with session_id: it keeps every token")
    for name in ("prompt_logprobs", "prompt_token_ids"):
        if getattr(request.output, name):
            yield Violation(under(path, f"output.{name}"), "set, expected none with session_id")


def prompt_scores_allowed(request: inference_pb2.PrefillRequest, path: str, served: ServedModel) -> Iterator[Finding]:
    """A prefill's scores need the same feature as prompt_logprobs."""
    yield from PROMPT_SCORES.check(request.step.scores, under(path, "step.scores"), served)


def steps_apart(request: inference_pb2.DecodeStepRequest, path: str, served: ServedModel) -> Iterator[Finding]:
    """Each step is of another session."""
    seen: set[str] = set()
    for i, step in enumerate(request.steps[: served.settings.scheduler.max_running]):
        if step.session_id and step.session_id in seen:
            yield Violation(under(path, f"steps[{i}].session_id"), "named twice")
        seen.add(step.session_id)


def whitespace_of_json(constraint: types_pb2.Constraint, path: str, served: ServedModel) -> Iterator[Finding]:
    """unbounded_whitespace is only for JSON constraints."""
    if constraint.unbounded_whitespace and constraint.WhichOneof("kind") not in ("json_schema", "json_object"):
        yield Violation(
            under(path, "unbounded_whitespace"), "set, expected only with constraint.json_schema or json_object"
        )


def generates(message: Any, path: str, served: ServedModel) -> Iterator[Finding]:
    """Only a model that generates text has sessions."""
    if served.embedder is not None and (missing := served.embedder.facts.no_text):
        yield Refusal("NOT_SUPPORTED_BY_MODEL", missing, {"feature": "generation"})


def one_kind_of_input(request: inference_pb2.EmbedRequest, path: str, served: ServedModel) -> Iterator[Finding]:
    """Either texts or tokens."""
    if bool(request.texts) == bool(request.token_ids):
        yield Violation(under(path, "texts"), "expected exactly one of texts and token_ids")


def one_way_to_abort(request: admin_pb2.AbortRequest, path: str, served: ServedModel) -> Iterator[Finding]:
    """Either some requests by their ids, or all."""
    if bool(request.request_ids) == request.all:
        yield Violation(under(path, "request_ids"), "expected exactly one of request_ids and all")


def offsets_of_ids(request: tokenizer_pb2.TokenizeRequest, path: str, served: ServedModel) -> Iterator[Finding]:
    """Offsets cannot be combined with count_only."""
    if request.count_only and request.offsets:
        yield Violation(under(path, "offsets"), "set, expected none where count_only is set")


def detokenized_ids(request: tokenizer_pb2.DetokenizeRequest, path: str, served: ServedModel) -> Iterator[Finding]:
    """A bound on the ids of all lists together."""
    n_ids = sum(len(item.ids) for item in request.token_ids)
    yield from DETOKENIZED.check(range(n_ids), under(path, "token_ids"), served)
