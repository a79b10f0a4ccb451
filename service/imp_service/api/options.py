"""The options of a generation: the fields of imp.v1. None is an unset field."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from .chat_prompt import ChatPrompt, InfillPrompt, PromptParts
from .constraint_spec import Constraint
from .errors import Violation
from .facts import option
from .resume import Resume, resume_violations
from .rules import (
    U64,
    Biases,
    Both,
    Bounds,
    Core,
    Feature,
    Features,
    LimitedCount,
    Mask,
    Number,
    OneOf,
    Seconds,
    Text,
    Texts,
    TokenIds,
)

PROMPT_SCORES = Feature("features.prompt_logprobs")
TOP_LOGPROBS = Core("top_logprobs")
_DRAFTS = Feature("speculation")


@dataclass(frozen=True, slots=True)
class DryOptions:
    """Penalizes tokens that would extend a sequence already in the text."""

    multiplier: float | None = option(None, Core("dry.multiplier"), openai="dry_multiplier")
    base: float | None = option(None, Core("dry.base"), openai="dry_base")
    allowed_length: int | None = option(None, Core("dry.allowed_length"), openai="dry_allowed_length")
    window: int | None = option(None, Core("dry.window"), openai="dry_penalty_last_n")
    breakers: Sequence[str] = option(
        (), Texts((0, 16), Text(1, 64)), about="strings that end a repeat", openai="dry_sequence_breakers"
    )


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is chosen. None takes the model's default."""

    temperature: float | None = option(None, Core("temperature"), openai="temperature", vllm="temperature")
    top_k: int | None = option(None, Core("top_k"), openai="top_k", vllm="top_k")
    top_p: float | None = option(None, Core("top_p"), openai="top_p", vllm="top_p")
    min_p: float | None = option(None, Core("min_p"), openai="min_p", vllm="min_p")
    typical_p: float | None = option(None, Core("typical_p"), openai="typical_p")
    repetition_penalty: float | None = option(
        None, Core("repetition_penalty"), openai="repetition_penalty", vllm="repetition_penalty"
    )
    frequency_penalty: float | None = option(
        None, Core("frequency_penalty"), openai="frequency_penalty", vllm="frequency_penalty"
    )
    presence_penalty: float | None = option(
        None, Core("presence_penalty"), openai="presence_penalty", vllm="presence_penalty"
    )
    penalty_window: int | None = option(None, Core("penalty_window"), openai="repeat_last_n")
    logit_bias: Mapping[int, float] = option(
        factory=dict,
        rule=Biases("logit_biases", Core("logit_bias")),
        about="token id -> what is added to its logit",
        openai="logit_bias",
        vllm="logit_bias",
    )
    seed: int | None = option(
        None,
        Number(Bounds(0, U64, whole=True)),
        about="64 bits; the same seed gives the same answer under any load; unset: a new one",
        openai="seed",
        vllm="seed",
    )
    dry: DryOptions | None = None

    @property
    def has_breakers(self) -> bool:
        """Whether it has breakers. To resolve them, imp searches the whole vocabulary for tokens that contain one."""
        return self.dry is not None and bool(self.dry.breakers)


@dataclass(frozen=True, slots=True)
class StopOptions:
    """When generation ends. The first condition met ends it."""

    max_tokens: int | None = option(
        None, LimitedCount("limits.max_tokens"), about="most tokens of an output", vllm="max_tokens"
    )
    min_tokens: int = option(
        0,
        LimitedCount(),
        about="end tokens and stop strings are ignored before this many tokens",
        openai="min_tokens",
        vllm="min_tokens",
    )
    strings: Sequence[str] = option(
        (),
        Texts((0, 16), Text(1, 256)),
        about="a string or a list of strings that end the output",
        keyword="stop",
        openai="stop",
        vllm="stop",
    )
    token_ids: Sequence[int] = option(
        (),
        TokenIds(most="stop_tokens"),
        about="token ids that end the output",
        keyword="stop_token_ids",
        openai="stop_token_ids",
        vllm="stop_token_ids",
    )
    ignore_eos: bool = option(
        False, about="the end token does not end the output", openai="ignore_eos", vllm="ignore_eos"
    )
    include_match: bool = option(
        False, about="the matched stop string stays in the output", openai="include_stop_str_in_output"
    )
    time_limit: float | None = option(
        None,
        Seconds(0, "limits.request_time", above=True),
        about="seconds; then the output ends with `length`",
        openai="time_limit",
    )

    def contradictions(self, path: str) -> Iterator[Violation]:
        """The output needs room for its least tokens."""
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            yield Violation(f"{path}.min_tokens", f"{self.min_tokens}, expected at most max_tokens = {self.max_tokens}")


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The parts of a reply besides token ids."""

    text: bool = True
    logprobs: bool = False
    top_logprobs: int = option(0, TOP_LOGPROBS)
    prompt_logprobs: bool = option(False, PROMPT_SCORES)
    prompt_token_ids: bool = False
    special_tokens: bool = False
    # With `text`: split it into content, reasoning and tool calls, as the model's dialect writes them.
    parse: bool = False

    @property
    def has_channels(self) -> bool:
        """Whether the output is parsed."""
        return self.parse and self.text


@dataclass(frozen=True, slots=True)
class ChunkOptions:
    """How a stream's output is cut into messages. None takes the server's setting."""

    max_chunk_tokens: int | None = option(
        None,
        Number(Bounds(1, 1024, whole=True)),
        about="most tokens of one event of a stream",
        openai="max_chunk_tokens",
    )
    max_chunk_delay: float | None = option(None, Seconds(0, 10))


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How the prefix cache is used."""

    bypass_prefix: bool = False
    salt: str = option(
        "",
        Text(0, 64),
        about="requests share cached prefixes only if their salts are equal",
        keyword="cache_salt",
        openai="cache_salt",
    )


@dataclass(frozen=True, slots=True)
class SpeculationOptions:
    """Speculative decoding: drafters guess tokens, and the model verifies them. Changes the speed, never the output."""

    # None: as the settings.
    enabled: bool | None = option(
        None,
        _DRAFTS,
        about="false verifies no guesses; output is the same",
        keyword="speculation_enabled",
        openai="speculation",
    )
    max_draft_tokens: int | None = option(
        None,
        Both(Core("max_draft_tokens"), _DRAFTS),
        about="most guesses that a step verifies",
        openai="max_draft_tokens",
    )
    # Those of the server that may guess; empty: all. What a constraint forces is guessed with any of them.
    drafters: Sequence[str] = option((), Both(_DRAFTS, Features("speculation.drafters")))


# Whether only a part of a long prompt is evaluated: never, where it is long and it pays, or whatever its length.
DENSE = "dense"
SPARSE_POLICIES = (DENSE, "auto", "sparse")


def _is_sparse(policy: str) -> bool:
    return policy in SPARSE_POLICIES[1:]


def _is_given(share: float) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class SparsePrefillOptions:
    """Evaluates only the part of a prompt that a draft model finds important. Approximate, and the reply says so."""

    # None: as the settings.
    policy: str | None = option(
        None,
        Both(OneOf(SPARSE_POLICIES), Feature("sparse_prefill", _is_sparse)),
        about="evaluates a part of a long prompt: approximate",
        keyword="sparse_prefill",
        openai="sparse_prefill",
    )
    keep: float | None = option(
        None,
        Both(Number(Bounds(0, 1, above=True)), Feature("sparse_prefill", _is_given)),
        about="the share of the prompt to evaluate",
        keyword="sparse_prefill_keep",
        openai="sparse_prefill_keep",
    )
    backbone: float | None = option(
        None,
        Both(Number(Bounds(0, 1)), Feature("sparse_prefill", _is_given)),
        about="the share of the prompt to evaluate in any case, evenly spread over it",
        keyword="sparse_prefill_backbone",
        openai="sparse_prefill_backbone",
    )

    @property
    def is_wanted(self) -> bool:
        """Whether the request wants what a server may not offer."""
        return self.policy in SPARSE_POLICIES[1:] or self.first_share is not None

    @property
    def first_share(self) -> str | None:
        """The name of the first share that the request states."""
        return next((name for name in ("keep", "backbone") if getattr(self, name) is not None), None)


@dataclass(frozen=True, slots=True)
class StepOptions:
    """The outputs of a step of a session at its last position."""

    sample: bool = True
    top_logprobs: int = option(0, TOP_LOGPROBS)
    logits: bool = option(False, Feature("features.logits"))
    scores: bool = False
    allowed_token_mask: bytes = option(b"", Mask())

    def contradictions(self, path: str) -> Iterator[Violation]:
        """Only a step that samples has a use for a mask."""
        if self.allowed_token_mask and not self.sample:
            yield Violation(f"{path}.allowed_token_mask", "set, expected none where sample is false")


# Choices of tools: at least one call, or one of the function whose name follows.
FORCED = "required"
BY_NAME = "function:"
TOOL_CHOICES = ("", "none", "auto", FORCED)

Prompt = str | Sequence[int] | ChatPrompt | PromptParts | InfillPrompt


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A generation to run."""

    prompt: Prompt
    sampling: SamplingOptions = SamplingOptions()
    stop: StopOptions = StopOptions()
    constraint: Constraint | None = None
    output: OutputOptions = OutputOptions()
    cache: CacheOptions = CacheOptions()
    num_sequences: int = option(1, Core("num_sequences"), about="choices of each prompt", openai="n", vllm="n")
    priority: int = option(0, Core("priority"), about="as the metadata key `imp-priority`", openai="priority")
    tenant: str = option("", Text(0, "tenant_bytes"))
    # None: any number.
    max_reasoning_tokens: int | None = option(
        None,
        LimitedCount(),
        about="most tokens of reasoning; the next ones close it. 0: none",
        openai="thinking_token_budget",
    )
    # "none", "auto", "required" or "function:NAME"; empty: the template gets the tools, and the model decides.
    tool_choice: str = option("", OneOf(TOOL_CHOICES, BY_NAME))
    # False: the output ends after its first call. Needs `output.parse` if the choice does not require a call.
    parallel_tool_calls: bool = True
    speculation: SpeculationOptions = SpeculationOptions()
    sparse_prefill: SparsePrefillOptions = SparsePrefillOptions()
    # What the caller has of a stream that broke. The replies begin behind it.
    resume: Resume | None = None

    def contradictions(self, path: str) -> Iterator[Violation]:
        """What came of a stream is of this request."""
        if self.resume is not None:
            yield from resume_violations(
                self.resume,
                path,
                num_sequences=self.num_sequences,
                max_tokens=self.stop.max_tokens,
                seed=self.sampling.seed,
            )


class AnySession(Protocol):
    """A session, here or on a server."""

    @property
    def position(self) -> int:
        """How many tokens it holds."""


DEFAULT_CACHE = CacheOptions()
DEFAULT_STEP = StepOptions()


@dataclass(frozen=True, slots=True)
class SessionStep:
    """A session's part of a step of several sessions."""

    session: AnySession
    tokens: Sequence[int] = ()
    step: StepOptions = DEFAULT_STEP


def with_seed(asked: SamplingOptions) -> SamplingOptions:
    """The options with a seed, which is drawn if they have none."""
    return asked if asked.seed is not None else replace(asked, seed=secrets.randbits(64))


def seed_of(sampling: SamplingOptions) -> int:
    """The seed of a sampler in force. A request with this seed repeats the output."""
    assert sampling.seed is not None  # narrows
    return sampling.seed
