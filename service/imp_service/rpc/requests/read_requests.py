"""Requests of imp.v1 as options of the Python API. For messages that check_request() has accepted."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from google.protobuf.message import Message

from imp_service.api.float32 import shortest
from imp_service.api.options import (
    CacheOptions,
    DryOptions,
    GenerationRequest,
    OutputOptions,
    Prompt,
    SamplingOptions,
    SparsePrefillOptions,
    SpeculationOptions,
    StepOptions,
    StopOptions,
)
from imp_service.config.settings import Settings
from imp_service.pb import inference_pb2, types_pb2
from imp_service.rpc.durations import seconds_of
from imp_service.tables import LIMITS
from imp_service.text import ChatMessage, ChatPrompt, ConstraintKind, ConstraintSpec


def read_generation(
    request: inference_pb2.GenerateRequest, settings: Settings, *, priority: int, tenant: str
) -> GenerationRequest:
    """A generation. The prompt is empty if it continues a session."""
    return GenerationRequest(
        prompt=read_prompt(request, "prompt"),
        sampling=read_sampling(request.sampling),
        stop=read_stop(request.stop, settings),
        constraint=read_constraint(request.constraint) if request.HasField("constraint") else None,
        output=read_output(request.output),
        cache=read_cache(request.cache),
        speculation=read_speculation(request.speculation),
        sparse_prefill=read_sparse_prefill(request.sparse_prefill),
        num_sequences=request.num_sequences if request.HasField("num_sequences") else 1,
        priority=priority,
        tenant=tenant,
        tool_choice=request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls if request.HasField("parallel_tool_calls") else True,
    )


def read_prompt(request: Any, oneof: str) -> Prompt:
    """The prompt of a GenerateRequest or a PrefillRequest. Token ids are not copied, since there may be many."""
    match request.WhichOneof(oneof):
        case "token_ids":
            ids: Sequence[int] = request.token_ids.ids
            return ids
        case "chat":
            return read_chat(request.chat)
        case "text":
            return str(request.text)
    return ""


def read_sampling(options: types_pb2.SamplingOptions) -> SamplingOptions:
    """The fields that are set. An absent field stays absent, since zero is a value."""
    values = {field.name: value for field, value in options.ListFields()}
    if not values:
        return SamplingOptions()
    biases = options.logit_bias
    is_read = len(biases) <= LIMITS.logit_biases  # more are refused without a check of each
    values["logit_bias"] = {token: shortest(bias) for token, bias in biases.items()} if is_read else biases
    if "dry" in values:
        values["dry"] = read_dry(options.dry)
    return SamplingOptions(**_shortened(values))


def read_dry(options: types_pb2.DryOptions) -> DryOptions:
    """The fields that are set."""
    values = {field.name: value for field, value in options.ListFields()}
    values["breakers"] = tuple(options.breakers)
    return DryOptions(**_shortened(values))


def read_stop(options: types_pb2.StopOptions, settings: Settings) -> StopOptions:
    """The stop options. The default time limit is the server's."""
    asked = options.HasField("time_limit")
    return StopOptions(
        max_tokens=options.max_tokens if options.HasField("max_tokens") else None,
        min_tokens=options.min_tokens,
        strings=tuple(options.strings),
        token_ids=tuple(options.token_ids),
        ignore_eos=options.ignore_eos,
        include_match=options.include_match,
        time_limit=seconds_of(options.time_limit) if asked else settings.limits.request_time.total_seconds(),
    )


def read_constraint(constraint: types_pb2.Constraint) -> ConstraintSpec:
    """The constraint on the output."""
    name = constraint.WhichOneof("kind")
    assert name is not None  # narrows
    kind = ConstraintKind(name)
    any_spaces = constraint.unbounded_whitespace
    match kind:
        case ConstraintKind.CHOICES:
            return ConstraintSpec(kind, choices=tuple(constraint.choices.values))
        case ConstraintKind.JSON_OBJECT:
            return ConstraintSpec(kind, unbounded_whitespace=any_spaces)
    return ConstraintSpec(kind, source=getattr(constraint, name), unbounded_whitespace=any_spaces)


def read_output(options: types_pb2.OutputOptions) -> OutputOptions:
    """The options of the output. read_chunking() reads how output is cut into messages."""
    return OutputOptions(
        text=options.text if options.HasField("text") else True,
        logprobs=options.logprobs,
        top_logprobs=options.top_logprobs,
        prompt_logprobs=options.prompt_logprobs,
        prompt_token_ids=options.prompt_token_ids,
        special_tokens=options.special_tokens,
        parse=options.parse,
    )


def read_chunking(options: types_pb2.OutputOptions, settings: Settings) -> tuple[int, float]:
    """The most tokens of a message, and the longest time in seconds that a token waits for others."""
    chunk, delay = settings.chunk, settings.chunk.max_delay.total_seconds()
    return (
        options.max_chunk_tokens if options.HasField("max_chunk_tokens") else chunk.max_tokens,
        seconds_of(options.max_chunk_delay) if options.HasField("max_chunk_delay") else delay,
    )


def read_cache(options: types_pb2.CacheOptions) -> CacheOptions:
    """The use of the prefix cache."""
    return CacheOptions(bypass_prefix=options.bypass_prefix, salt=options.salt)


def read_speculation(options: types_pb2.SpeculationOptions) -> SpeculationOptions:
    """The fields that are set."""
    given = {field.name: value for field, value in options.ListFields() if not field.is_repeated}
    return SpeculationOptions(**given, drafters=tuple(options.drafters))


_POLICIES = {
    types_pb2.SPARSE_PREFILL_POLICY_DENSE: "dense",
    types_pb2.SPARSE_PREFILL_POLICY_AUTO: "auto",
    types_pb2.SPARSE_PREFILL_POLICY_SPARSE: "sparse",
}


def read_sparse_prefill(options: types_pb2.SparsePrefillOptions) -> SparsePrefillOptions:
    """The fields that are set."""
    keep = shortest(options.keep) if options.HasField("keep") else None
    return SparsePrefillOptions(_POLICIES.get(options.policy), keep)


def read_step(options: inference_pb2.StepOptions) -> StepOptions:
    """The outputs of a step. It samples by default."""
    return StepOptions(
        sample=options.sample if options.HasField("sample") else True,
        top_logprobs=options.top_logprobs,
        logits=options.logits,
        scores=options.scores,
        allowed_token_mask=options.allowed_token_mask,
    )


def _shortened(values: dict[str, Any]) -> dict[str, Any]:
    """Rounds 32-bit floats to what callers wrote, so that limits are the same in every front end."""
    return {name: shortest(value) if isinstance(value, float) else value for name, value in values.items()}


def _message(message: types_pb2.ChatMessage) -> ChatMessage:
    return ChatMessage(
        message.role,
        None if message.null_content else message.content,
        message.name,
        message.tool_call_id,
        message.tool_calls_json,
        message.reasoning_content,
    )


def read_chat(chat: types_pb2.ChatPrompt) -> ChatPrompt:
    """A conversation."""
    return ChatPrompt(
        messages=tuple(map(_message, chat.messages)),
        tools_json=chat.tools_json,
        add_generation_prompt=chat.add_generation_prompt if chat.HasField("add_generation_prompt") else None,
        continue_final_message=chat.continue_final_message if chat.HasField("continue_final_message") else None,
        template_kwargs_json=chat.template_kwargs_json,
        documents_json=chat.documents_json,
    )


DIGEST_BYTES = 16


def request_digest(request: Message) -> bytes:
    """A digest that two messages share only if they are equal and of one type."""
    content = request.SerializeToString(deterministic=True)
    return blake2b(content, digest_size=DIGEST_BYTES, person=request.DESCRIPTOR.name.encode()[:16]).digest()
