"""The options of a generation: the fields of imp.v1. None is an unset field."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from .chat_prompt import ChatPrompt
from .constraint_spec import Constraint


@dataclass(frozen=True, slots=True)
class DryOptions:
    """Penalizes tokens that would extend a sequence already in the text."""

    multiplier: float | None = None
    base: float | None = None
    allowed_length: int | None = None
    window: int | None = None
    breakers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is chosen. None takes the model's default."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    penalty_window: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    dry: DryOptions | None = None

    @property
    def has_breakers(self) -> bool:
        """Whether it has breakers. To resolve them, imp searches the whole vocabulary for tokens that contain one."""
        return self.dry is not None and bool(self.dry.breakers)


@dataclass(frozen=True, slots=True)
class StopOptions:
    """When generation ends. The first condition met ends it."""

    max_tokens: int | None = None
    min_tokens: int = 0
    strings: Sequence[str] = field(default=(), metadata={"keyword": "stop"})
    token_ids: Sequence[int] = field(default=(), metadata={"keyword": "stop_token_ids"})
    ignore_eos: bool = False
    include_match: bool = False
    time_limit: float | None = None  # seconds


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The parts of a reply besides token ids."""

    text: bool = True
    logprobs: bool = False
    top_logprobs: int = 0
    prompt_logprobs: bool = False
    prompt_token_ids: bool = False
    special_tokens: bool = False
    # With `text`: split it into content, reasoning and tool calls, as the model's dialect writes them.
    parse: bool = False

    @property
    def has_channels(self) -> bool:
        """Whether the output is parsed."""
        return self.parse and self.text


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How the prefix cache is used."""

    bypass_prefix: bool = False
    salt: str = field(default="", metadata={"keyword": "cache_salt"})


@dataclass(frozen=True, slots=True)
class SpeculationOptions:
    """Speculative decoding: drafters guess tokens, and the model verifies them. Changes the speed, never the output."""

    # None: as the settings.
    enabled: bool | None = field(default=None, metadata={"keyword": "speculation_enabled"})
    max_draft_tokens: int | None = None
    # Those of the server that may guess; empty: all. What a constraint forces is guessed with any of them.
    drafters: Sequence[str] = ()


# Whether only a part of a long prompt is evaluated: never, where it is long and it pays, or whatever its length.
DENSE = "dense"
SPARSE_POLICIES = (DENSE, "auto", "sparse")


@dataclass(frozen=True, slots=True)
class SparsePrefillOptions:
    """Evaluates only the part of a prompt that a draft model finds important. Approximate, and the reply says so."""

    # None: as the settings.
    policy: str | None = field(default=None, metadata={"keyword": "sparse_prefill"})
    # The share of the prompt to keep, above 0 to 1.
    keep: float | None = field(default=None, metadata={"keyword": "sparse_prefill_keep"})

    @property
    def is_wanted(self) -> bool:
        """Whether the request wants what a server may not offer."""
        return self.policy in SPARSE_POLICIES[1:] or self.keep is not None


@dataclass(frozen=True, slots=True)
class StepOptions:
    """The outputs of a step of a session at its last position."""

    sample: bool = True
    top_logprobs: int = 0
    logits: bool = False
    scores: bool = False
    allowed_token_mask: bytes = b""


# Choices of tools: at least one call, or one of the function whose name follows.
FORCED = "required"
BY_NAME = "function:"
TOOL_CHOICES = ("", "none", "auto", FORCED)

Prompt = str | Sequence[int] | ChatPrompt


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A generation to run."""

    prompt: Prompt
    sampling: SamplingOptions = SamplingOptions()
    stop: StopOptions = StopOptions()
    constraint: Constraint | None = None
    output: OutputOptions = OutputOptions()
    cache: CacheOptions = CacheOptions()
    num_sequences: int = 1
    priority: int = 0
    tenant: str = ""
    # "none", "auto", "required" or "function:NAME"; empty: the template gets the tools, and the model decides.
    tool_choice: str = ""
    # False: the output ends after its first call. Needs `output.parse` if the choice does not require a call.
    parallel_tool_calls: bool = True
    speculation: SpeculationOptions = SpeculationOptions()
    sparse_prefill: SparsePrefillOptions = SparsePrefillOptions()


class HeldSession(Protocol):
    """A session, here or on a server."""

    @property
    def position(self) -> int:
        """How many tokens it holds."""


DEFAULT_CACHE = CacheOptions()
DEFAULT_STEP = StepOptions()


@dataclass(frozen=True, slots=True)
class SessionStep:
    """A session's part of a step of several sessions."""

    session: HeldSession
    tokens: Sequence[int] = ()
    step: StepOptions = DEFAULT_STEP


def with_seed(asked: SamplingOptions) -> SamplingOptions:
    """The options with a seed, which is drawn if they have none."""
    return asked if asked.seed is not None else replace(asked, seed=secrets.randbits(64))


def seed_of(sampling: SamplingOptions) -> int:
    """The seed of a sampler in force. A request with this seed repeats the output."""
    assert sampling.seed is not None  # narrows
    return sampling.seed
