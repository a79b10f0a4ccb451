"""The field rules of imp.v1 as data: the valid values of each field of each request. Every field must have a rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from imp_service.api.chat_prompt import InfillFile, InfillPrompt
from imp_service.api.decisions import IntegerRange
from imp_service.api.options import (
    CacheOptions,
    ChunkOptions,
    DryOptions,
    GenerationRequest,
    OutputOptions,
    SamplingOptions,
    SparsePrefillOptions,
    SpeculationOptions,
    StepOptions,
    StopOptions,
)
from imp_service.api.resume import Origin, Resume, SessionResume
from imp_service.api.rules import ANYTHING, Bounds, Name, Names, Number, Seconds, TokenIds, count_violations
from imp_service.api.vectors import EmbedOptions, RerankOptions
from imp_service.rpc.imp_v1.requests import message_rules
from imp_service.rpc.imp_v1.requests.rules import (
    ChatPromptRule,
    DurationIn,
    IdsOf,
    InfillRule,
    Inputs,
    OneContent,
    Options,
    PartsRule,
    names_of,
)
from imp_service.serving.rules import generation_rules
from imp_service.serving.rules.check import Finding
from imp_service.serving.rules.generation_rules import ServedRule
from imp_service.serving.served_model import ALL_CONSTRAINTS, ServedModel
from imp_service.tables import LIMITS
from imp_service.text import ChatMessage, ChatPrompt

HOUR = 3600.0
MAX_STEP_TOKENS = 256
MAX_ABORTED = 1024


@dataclass(frozen=True, slots=True)
class MessageRules:
    """The rules of one message: one for each field, and those of the whole message."""

    fields: Mapping[str, ServedRule]
    whole: tuple[message_rules.MessageRule, ...] = ()


class Nested:
    """A message that has its own rules."""

    def check(self, value: Any, path: str, served: ServedModel) -> Iterable[Finding]:
        return findings(value, path, served)


class Steps:
    """At most as many steps as may run at once. If there are more, none is checked."""

    def check(self, value: Any, path: str, served: ServedModel) -> Iterator[Finding]:
        too_many = list(count_violations(len(value), path, 1, served.settings.scheduler.max_running))
        if too_many:
            yield from too_many
            return
        for i, item in enumerate(value):
            yield from findings(item, f"{path}[{i}]", served)


NESTED, NAME = Nested(), Name()
PROMPT_IDS = IdsOf(generation_rules.PROMPT_IDS)
# The messages whose fields are those of option classes.
OPTIONS = {
    "SamplingOptions": Options(SamplingOptions),
    "DryOptions": Options(DryOptions),
    "StopOptions": Options(StopOptions),
    "OutputOptions": Options(OutputOptions, ChunkOptions),
    "CacheOptions": Options(CacheOptions),
    "SparsePrefillOptions": Options(SparsePrefillOptions),
    "SpeculationOptions": Options(SpeculationOptions),
    "StepOptions": Options(StepOptions),
}
# The fields of GenerateRequest that GenerationRequest has too. They are checked when it is read.
GENERATION = set(names_of(GenerationRequest)) - {"prompt", "priority", "tenant"}
# The fields of a step of a session. They are checked when the step is read.
STEP = {"sampling": ANYTHING, "step": ANYTHING}
# What of a call with inputs is checked when it is read.
EMBED = ("texts", "token_ids", *names_of(EmbedOptions))
RERANK = ("query", "documents", *names_of(RerankOptions))

RULES: Mapping[str, MessageRules] = {
    # Shared. These are checked with the field that holds them.
    "TokenIds": MessageRules({"ids": ANYTHING}),
    "ChatMessage": MessageRules(dict.fromkeys((*names_of(ChatMessage), "null_content", "parts"), ANYTHING)),
    "ContentPart": MessageRules(dict.fromkeys(("text", "image"), ANYTHING)),
    "Image": MessageRules(dict.fromkeys(("encoded", "raw", "max_tokens"), ANYTHING)),
    "RawImage": MessageRules(dict.fromkeys(("width", "height", "rgb"), ANYTHING)),
    "PromptParts": MessageRules({"parts": ANYTHING}),
    "PromptPart": MessageRules(dict.fromkeys(("text", "token_ids", "image"), ANYTHING)),
    "InfillPrompt": MessageRules(dict.fromkeys(names_of(InfillPrompt), ANYTHING)),
    "InfillFile": MessageRules(dict.fromkeys(names_of(InfillFile), ANYTHING)),
    "ChatPrompt": MessageRules(dict.fromkeys(names_of(ChatPrompt), ANYTHING)),
    **{name: MessageRules(dict.fromkeys(options.names, ANYTHING)) for name, options in OPTIONS.items()},
    "Constraint": MessageRules(
        dict.fromkeys((*ALL_CONSTRAINTS, "unbounded_whitespace"), ANYTHING),
        (message_rules.exactly_one("kind"), message_rules.whitespace_of_json),
    ),
    "Choices": MessageRules({"values": ANYTHING}),
    "JsonObject": MessageRules({}),
    # InferenceService.
    "GenerateRequest": MessageRules(
        {
            **dict.fromkeys(GENERATION, ANYTHING),
            "constraint": NESTED,
            "output": Options(ChunkOptions),
            "request_id": generation_rules.REQUEST_ID,
            "model": generation_rules.MODEL,
            "text": generation_rules.PROMPT_TEXT,
            "token_ids": PROMPT_IDS,
            "chat": OneContent(),
            "parts": PartsRule(),
            "infill": InfillRule(),
            "session_id": NAME,
        },
        (message_rules.exactly_one("prompt"), message_rules.fits_its_session),
    ),
    "GenerateUnaryRequest": MessageRules(
        {"request": NESTED}, (message_rules.required("request"), message_rules.not_resumed)
    ),
    "Resume": MessageRules(dict.fromkeys(names_of(Resume), ANYTHING)),
    "ResumedSequence": MessageRules(dict.fromkeys(("token_ids", "finished"), ANYTHING)),
    "Origin": MessageRules(dict.fromkeys(names_of(Origin), ANYTHING)),
    "PrefillRequest": MessageRules(
        {
            "session_id": NAME,
            "model": generation_rules.MODEL,
            "token_ids": PROMPT_IDS,
            "text": generation_rules.PROMPT_TEXT,
            "chat": ChatPromptRule(),
            "parts": PartsRule(),
            "infill": InfillRule(),
            "position": ANYTHING,
            **STEP,
            "ttl": DurationIn(Seconds(0, "sessions.max_ttl", above=True)),
            "cache": OPTIONS["CacheOptions"],
            "base": ANYTHING,  # checked against the session's state
            "resume": ANYTHING,  # checked when the step is read
            "resumable": ANYTHING,
        },
        (message_rules.exactly_one("input"), message_rules.prompt_scores_allowed, message_rules.generates),
    ),
    "SessionResume": MessageRules(dict.fromkeys(names_of(SessionResume), ANYTHING)),
    "DecodeStepRequest": MessageRules(
        {"steps": ANYTHING},
        (message_rules.always("steps", Steps()), message_rules.steps_apart, message_rules.generates),
    ),
    "SessionStep": MessageRules(
        {
            "session_id": NAME,
            "token_ids": TokenIds(0, MAX_STEP_TOKENS),
            "position": ANYTHING,
            **STEP,
        },
        (message_rules.required("session_id"),),
    ),
    "DecodeStreamRequest": MessageRules(
        {"prefill": NESTED, "step": NESTED, "release": NESTED}, (message_rules.exactly_one("request"),)
    ),
    "ForkSessionRequest": MessageRules(
        {"session_id": NAME, "position": ANYTHING, "new_session_id": NAME},
        (message_rules.required("session_id"), message_rules.generates),
    ),
    "TruncateSessionRequest": MessageRules(
        {"session_id": NAME, "position": ANYTHING}, (message_rules.required("session_id"), message_rules.generates)
    ),
    "ReleaseSessionRequest": MessageRules({"session_id": NAME}, (message_rules.required("session_id"),)),
    "EmbedRequest": MessageRules(
        {"model": generation_rules.MODEL, **dict.fromkeys(EMBED, ANYTHING)}, (message_rules.one_kind_of_input,)
    ),
    "DecideRequest": MessageRules(
        {
            "request_id": generation_rules.REQUEST_ID,
            "model": generation_rules.MODEL,
            "text": generation_rules.PROMPT_TEXT,
            "token_ids": PROMPT_IDS,
            "chat": ChatPromptRule(),
            "parts": PartsRule(),
            **dict.fromkeys(("labels", "range", "cache"), ANYTHING),  # checked when it is read
        },
        (message_rules.exactly_one("prompt"),),
    ),
    "IntegerRange": MessageRules(dict.fromkeys(names_of(IntegerRange), ANYTHING)),
    "RerankRequest": MessageRules({"model": generation_rules.MODEL, **dict.fromkeys(RERANK, ANYTHING)}),
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
            message_rules.always("texts", generation_rules.TOKENIZED_TEXTS),
            message_rules.offsets_of_ids,
        ),
    ),
    "DetokenizeRequest": MessageRules(
        {"token_ids": Inputs(None, IdsOf(TokenIds())), "special_tokens": ANYTHING},
        (message_rules.detokenized_ids,),
    ),
    "ApplyChatTemplateRequest": MessageRules({"chat": ChatPromptRule()}, (message_rules.required("chat"),)),
    "GetTokenizerRequest": MessageRules({}),
    # ModelService.
    "GetModelInfoRequest": MessageRules({"model": generation_rules.MODEL}),
    "GetServerInfoRequest": MessageRules({}),
    "GetLoadRequest": MessageRules({}),
    "WatchLoadRequest": MessageRules({"min_interval": DurationIn(Seconds(0.01, HOUR))}),
    # AdminService.
    "DrainRequest": MessageRules({"timeout": DurationIn(Seconds(0, float("inf")))}),
    "ResumeRequest": MessageRules({}),
    "ReloadRequest": MessageRules({}),
    "AbortRequest": MessageRules(
        {"request_ids": Names(MAX_ABORTED), "all": ANYTHING}, (message_rules.one_way_to_abort,)
    ),
    "ListRequestsRequest": MessageRules({}),
    "ListSessionsRequest": MessageRules({}),
    "FlushCacheRequest": MessageRules({}),
    "ProfileRequest": MessageRules(
        {"steps": ANYTHING, "time_limit": DurationIn(Seconds(0, HOUR, above=True))},
        (message_rules.always("steps", Number(Bounds(1, LIMITS.profile_steps, whole=True))),),
    ),
}


def findings(message: Any, path: str, served: ServedModel) -> Iterator[Finding]:
    """All violations of a request, or of the part of one at `path`."""
    rules = RULES[message.DESCRIPTOR.name]
    for field, value in message.ListFields():
        yield from rules.fields[field.name].check(value, message_rules.under(path, field.name), served)
    for check in rules.whole:
        yield from check(message, path, served)
