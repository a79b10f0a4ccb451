"""The field rules of imp.v1 as data: the valid values of each field of each request. Every field must have a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from imp_service.generation.validate import DRAFT_TOKENS, KEEP, Bounds, count_violations
from imp_service.pb import types_pb2
from imp_service.rpc.requests import message_rules as whole
from imp_service.rpc.requests.read_requests import read_chat
from imp_service.rpc.requests.rules import DurationIn, Float, IdsOf, KnownEnum
from imp_service.serving.refusal import Refusal
from imp_service.serving.rules import generation_rules as values
from imp_service.serving.rules.kinds import (
    Anything,
    Both,
    Feature,
    Finding,
    Name,
    Names,
    Number,
    Rule,
    Seconds,
    Texts,
    TokenIds,
)
from imp_service.serving.served_model import ServedModel
from imp_service.tables import DRY_FIELDS, LIMITS, SAMPLER_FIELDS

HOUR = 3600.0
MAX_STEP_TOKENS = 256
MAX_ABORTED = 1024


@dataclass(frozen=True, slots=True)
class MessageRules:
    """The rules of one message: one for each field, and those of the whole message."""

    fields: Mapping[str, Rule]
    whole: tuple[whole.MessageRule, ...] = ()


class Nested(Rule):
    """A message that has its own rules."""

    def check(self, value: Any, path: str, served: ServedModel) -> Iterable[Finding]:
        return findings(value, path, served)


class Steps(Rule):
    """At most as many steps as may run at once. If there are more, none is checked."""

    def check(self, value: Any, path: str, served: ServedModel) -> Iterator[Finding]:
        too_many = list(count_violations(len(value), path, 1, served.settings.scheduler.max_running))
        if too_many:
            yield from too_many
            return
        for i, item in enumerate(value):
            yield from findings(item, f"{path}[{i}]", served)


class Chat(Rule):
    """A conversation."""

    def check(self, value: types_pb2.ChatPrompt, path: str, served: ServedModel) -> Iterator[Finding]:
        too_many = list(values.CHAT_MESSAGES.check(value.messages, f"{path}.messages", served))
        if too_many:
            yield from too_many
            return
        for i, message in enumerate(value.messages):
            yield from whole.null_content_is_empty(message, f"{path}.messages[{i}]", served)
        yield from values.CHAT.check(read_chat(value), path, served)


class Inputs(Rule):
    """At most `most` lists of ids, each a list of known tokens."""

    def __init__(self, most: int | None, each: IdsOf) -> None:
        self._most = most
        self._each = each

    def check(self, value: Any, path: str, served: ServedModel) -> Iterator[Finding]:
        too_many = list(count_violations(len(value), path, 0, self._most))
        if too_many:
            yield from too_many
            return
        for i, item in enumerate(value):
            yield from self._each.check(item, f"{path}[{i}]", served)


class SparsePrefill(Rule):
    """What the server may not offer: refused if the value requests it."""

    def __init__(self, asks: Callable[[Any], bool]) -> None:
        self._asks = asks

    def check(self, value: Any, path: str, served: ServedModel) -> Iterator[Finding]:
        if served.no_sparse_prefill and self._asks(value):
            yield Refusal("FEATURE_DISABLED", f"{path}: {served.no_sparse_prefill}", {"feature": path})


def _known(enum: Any) -> frozenset[int]:
    return frozenset(enum.values())


ANYTHING, NESTED, NAME = Anything(), Nested(), Name()
PROMPT_IDS = IdsOf(values.PROMPT_IDS)
DRAFTS = Feature(lambda served: bool(served.settings.speculation.drafters), bool, "speculation.drafters is empty")
SPARSE_POLICIES = (types_pb2.SPARSE_PREFILL_POLICY_AUTO, types_pb2.SPARSE_PREFILL_POLICY_SPARSE)

RULES: Mapping[str, MessageRules] = {
    # Shared.
    "TokenIds": MessageRules({"ids": ANYTHING}),  # checked with the field that holds them
    "ChatMessage": MessageRules(
        dict.fromkeys(
            (
                *("role", "content", "name", "tool_call_id", "tool_calls_json", "reasoning_content"),
                "null_content",
            ),
            ANYTHING,  # checked with the conversation
        )
    ),
    "ChatPrompt": MessageRules(
        dict.fromkeys(
            (
                *("messages", "tools_json", "add_generation_prompt", "continue_final_message"),
                *("template_kwargs_json", "documents_json"),
            ),
            ANYTHING,  # checked with the conversation
        )
    ),
    "SamplingOptions": MessageRules(
        dict.fromkeys((*SAMPLER_FIELDS, "logit_bias", "seed", "dry"), ANYTHING), (whole.as_the_library_checks,)
    ),
    "DryOptions": MessageRules(dict.fromkeys((*DRY_FIELDS, "breakers"), ANYTHING)),  # checked with the sampler
    "StopOptions": MessageRules(
        {
            "max_tokens": values.MAX_TOKENS,
            "min_tokens": ANYTHING,
            "strings": ANYTHING,
            "token_ids": ANYTHING,
            "ignore_eos": ANYTHING,
            "include_match": ANYTHING,
            "time_limit": DurationIn(values.TIME_LIMIT),
        },
        (whole.as_the_library_checks,),
    ),
    "Constraint": MessageRules(
        {
            "json_schema": values.CONSTRAINT_SOURCE,
            "regex": values.REGEX,
            "gbnf": values.CONSTRAINT_SOURCE,
            "choices": NESTED,
            "json_object": NESTED,
            "unbounded_whitespace": ANYTHING,
        },
        (whole.exactly_one("kind"), whole.constraint_kind_known, whole.whitespace_of_json),
    ),
    "Choices": MessageRules(
        {"values": ANYTHING},
        (whole.always("values", values.CHOICES),),
    ),
    "JsonObject": MessageRules({}),
    "OutputOptions": MessageRules(
        {
            "text": ANYTHING,
            "logprobs": ANYTHING,
            "top_logprobs": values.N_TOP_LOGPROBS,
            "prompt_logprobs": values.PROMPT_LOGPROBS,
            "prompt_token_ids": ANYTHING,
            "max_chunk_tokens": values.CHUNK_TOKENS,
            "max_chunk_delay": DurationIn(values.CHUNK_DELAY),
            "special_tokens": ANYTHING,
            "parse": ANYTHING,
        }
    ),
    "CacheOptions": MessageRules({"bypass_prefix": ANYTHING, "salt": values.SALT}),
    "SparsePrefillOptions": MessageRules(
        {
            "policy": Both(
                KnownEnum(_known(types_pb2.SparsePrefillPolicy)),
                SparsePrefill(lambda policy: policy in SPARSE_POLICIES),
            ),
            "keep": Both(Float(Number(KEEP)), SparsePrefill(lambda _: True)),
        }
    ),
    "SpeculationOptions": MessageRules(
        {
            "enabled": DRAFTS,
            "max_draft_tokens": Both(Number(DRAFT_TOKENS), DRAFTS),
            "drafters": Both(DRAFTS, values.DRAFTERS),
        }
    ),
    # InferenceService.
    "GenerateRequest": MessageRules(
        {
            "request_id": values.REQUEST_ID,
            "model": values.MODEL,
            "text": values.PROMPT_TEXT,
            "token_ids": PROMPT_IDS,
            "chat": Chat(),
            "session_id": NAME,
            "sampling": NESTED,
            "stop": NESTED,
            "constraint": NESTED,
            "output": NESTED,
            "cache": NESTED,
            "num_sequences": values.N_SEQUENCES,
            "sparse_prefill": NESTED,
            "speculation": NESTED,
            "tool_choice": values.TOOL_CHOICE,
            "parallel_tool_calls": ANYTHING,  # checked with the tools
        },
        (whole.exactly_one("prompt"), whole.fits_its_session),
    ),
    "GenerateUnaryRequest": MessageRules({"request": NESTED}, (whole.required("request"),)),
    "StepOptions": MessageRules(
        {
            "sample": ANYTHING,
            "top_logprobs": values.N_TOP_LOGPROBS,
            "logits": Feature(lambda served: served.settings.features.logits, bool, "features.logits is off"),
            "scores": ANYTHING,
            "allowed_token_mask": ANYTHING,
        },
        (whole.mask_fits,),
    ),
    "PrefillRequest": MessageRules(
        {
            "session_id": NAME,
            "model": values.MODEL,
            "token_ids": PROMPT_IDS,
            "text": values.PROMPT_TEXT,
            "chat": Chat(),
            "position": ANYTHING,
            "sampling": NESTED,
            "step": NESTED,
            "ttl": DurationIn(Seconds(0, lambda served: served.settings.sessions.max_ttl.total_seconds(), above=True)),
            "cache": NESTED,
            "base": ANYTHING,  # checked against the session's state
        },
        (whole.exactly_one("input"), whole.prompt_scores_allowed),
    ),
    "DecodeStepRequest": MessageRules({"steps": ANYTHING}, (whole.always("steps", Steps()), whole.steps_apart)),
    "SessionStep": MessageRules(
        {
            "session_id": NAME,
            "token_ids": TokenIds((0, MAX_STEP_TOKENS)),
            "position": ANYTHING,
            "sampling": NESTED,
            "step": NESTED,
        },
        (whole.required("session_id"),),
    ),
    "DecodeStreamRequest": MessageRules(
        {"prefill": NESTED, "step": NESTED, "release": NESTED}, (whole.exactly_one("request"),)
    ),
    "ForkSessionRequest": MessageRules(
        {"session_id": NAME, "position": ANYTHING, "new_session_id": NAME}, (whole.required("session_id"),)
    ),
    "TruncateSessionRequest": MessageRules({"session_id": NAME, "position": ANYTHING}, (whole.required("session_id"),)),
    "ReleaseSessionRequest": MessageRules({"session_id": NAME}, (whole.required("session_id"),)),
    "EmbedRequest": MessageRules(
        {
            "model": values.MODEL,
            "texts": Texts((0, values.MAX_INPUTS), values.PROMPT_TEXT, values.prompt_bytes),
            "token_ids": Inputs(values.MAX_INPUTS, PROMPT_IDS),
            "normalize": ANYTHING,
        },
        (whole.one_kind_of_input,),
    ),
    # TokenizerService.
    "TokenizeRequest": MessageRules(
        {
            "texts": ANYTHING,
            "add_special_tokens": ANYTHING,
            "parse_special_tokens": ANYTHING,
            "count_only": ANYTHING,
            "offsets": ANYTHING,
        },
        (
            whole.always("texts", values.TOKENIZED_TEXTS),
            whole.offsets_of_ids,
        ),
    ),
    "DetokenizeRequest": MessageRules(
        {"token_ids": Inputs(None, IdsOf(TokenIds())), "special_tokens": ANYTHING},
        (whole.detokenized_ids,),
    ),
    "ApplyChatTemplateRequest": MessageRules({"chat": Chat()}, (whole.required("chat"),)),
    "GetTokenizerRequest": MessageRules({}),
    # ModelService.
    "GetModelInfoRequest": MessageRules({"model": values.MODEL}),
    "GetServerInfoRequest": MessageRules({}),
    "GetLoadRequest": MessageRules({}),
    "WatchLoadRequest": MessageRules({"min_interval": DurationIn(Seconds(0.01, lambda served: HOUR))}),
    # AdminService.
    "DrainRequest": MessageRules({"timeout": DurationIn(Seconds(0, lambda served: float("inf")))}),
    "ResumeRequest": MessageRules({}),
    "ReloadRequest": MessageRules({}),
    "AbortRequest": MessageRules({"request_ids": Names(MAX_ABORTED), "all": ANYTHING}, (whole.one_way_to_abort,)),
    "ListRequestsRequest": MessageRules({}),
    "ListSessionsRequest": MessageRules({}),
    "FlushCacheRequest": MessageRules({}),
    "ProfileRequest": MessageRules(
        {"steps": ANYTHING, "time_limit": DurationIn(Seconds(0, lambda served: HOUR, above=True))},
        (whole.always("steps", Number(Bounds(1, LIMITS.profile_steps, whole=True))),),
    ),
}


def findings(message: Any, path: str, served: ServedModel) -> Iterator[Finding]:
    """All violations of a request, or of the part of one at `path`."""
    rules = RULES[message.DESCRIPTOR.name]
    for field, value in message.ListFields():
        yield from rules.fields[field.name].check(value, whole.under(path, field.name), served)
    for check in rules.whole:
        yield from check(message, path, served)
