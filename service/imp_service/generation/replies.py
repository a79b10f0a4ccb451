"""What a generation and a step tell their caller: the messages of imp.v1 as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from imp_service.generation.scores import Candidate, HeldScores, TokenScores

FinishReason = Literal["stop", "max_tokens", "context_full", "time_limit", "aborted", "cancelled"]


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt is evaluated."""

    seed: int
    prompt_tokens: int
    cached_prompt_tokens: int
    held_scores: HeldScores

    @property
    def prompt(self) -> TokenScores:
        """What was asked for of the prompt's tokens. Made anew each time."""
        return self.held_scores.whole()

    @property
    def text(self) -> str:
        """Nothing: no output yet. Every reply has a text, so that all of them can be joined."""
        return ""


@dataclass(slots=True)
class Chunk:
    """New tokens of one sequence, and the text that they complete. Never cumulative.

    Not frozen, which would triple what it costs to make one for each message.
    """

    index: int
    first_token: int
    token_ids: list[int]
    text: str
    logprobs: list[float]
    candidates: list[list[Candidate]]


@dataclass(frozen=True, slots=True)
class StopMatch:
    """The condition that ended a sequence: exactly one is set."""

    text: str | None = None
    token_id: int | None = None
    eos_token_id: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens a request used, over all its sequences."""

    prompt_tokens: int
    cached_prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Where a request's time went, in seconds."""

    queue: float
    prefill: float
    decode: float
    blocked: float = 0.0  # paused because its reader did not read


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of one sequence; the last to end carries usage and timings."""

    index: int
    reason: FinishReason
    match: StopMatch | None
    text: str
    usage: Usage | None = None
    timings: Timings | None = None


Reply = Started | Chunk | Finished


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The output of a session at one step. The sampled token is pending: not yet held."""

    position: int
    token_id: int | None
    logprob: float | None
    text: str
    eos: bool
    cached_tokens: int
    candidates: list[Candidate]
    logits: bytes
    held_scores: HeldScores
    timings: Timings

    @property
    def scores(self) -> TokenScores:
        """Of the tokens that it evaluated, where asked for. Made anew each time."""
        return self.held_scores.whole()
