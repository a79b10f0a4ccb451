"""Scores of tokens: as the core holds them, and as callers read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imp_service.core import CoreCandidate, CoreScores

# Tokens of one part: with 20 candidates each they take less than a millisecond.
PART_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could have stood here, with its log probability before penalties and truncation."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log probabilities of consecutive tokens, in parallel lists; the first token of a prompt has NaN."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    candidates: list[list[Candidate]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HeldScores:
    """Scores as the core holds them. Those of a long prompt take long to read: parts() reads a few at a time."""

    core: CoreScores | None = None
    # None: those that the core scored.
    token_ids: list[int] | None = None

    def __len__(self) -> int:
        return max(len(self.token_ids or ()), 0 if self.core is None else len(self.core.tokens))

    def parts(self) -> Iterator[TokenScores]:
        """All of them, in order."""
        core = self.core
        tokens, logprobs, candidates = ([], [], []) if core is None else (core.tokens, core.logprobs, core.candidates)
        if self.token_ids is not None:
            tokens = self.token_ids
        for first in range(0, max(len(tokens), len(logprobs)), PART_TOKENS):
            here = slice(first, first + PART_TOKENS)
            yield TokenScores(tokens[here], logprobs[here], [candidates_of(items) for items in candidates[here]])

    def whole(self) -> TokenScores:
        """All of them in one."""
        whole = TokenScores()
        for part in self.parts():
            whole.token_ids.extend(part.token_ids)
            whole.logprobs.extend(part.logprobs)
            whole.candidates.extend(part.candidates)
        return whole


def candidates_of(items: Sequence[CoreCandidate]) -> list[Candidate]:
    """The core's candidates as replies have them."""
    return [Candidate(item.token, item.logprob) for item in items]
