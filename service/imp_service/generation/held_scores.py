"""Scores as the core holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from imp_service.api.replies import Candidate, TokenScores
from imp_service.core import CoreCandidate, CoreScores

# Tokens of one part of scores. With 20 candidates each they take less than a millisecond.
PART_TOKENS = 32


@dataclass(frozen=True, slots=True)
class HeldScores:
    """Scores in the core's memory, converted when they are requested."""

    core: CoreScores | None = None
    # None: the tokens that the core scored.
    token_ids: list[int] | None = None

    def __len__(self) -> int:
        return max(len(self.token_ids or ()), 0 if self.core is None else len(self.core.tokens))

    def parts(self) -> Iterator[TokenScores]:
        """All of them, in order."""
        core = self.core
        tokens, logprobs, candidates = ([], [], []) if core is None else (core.tokens, core.logprobs, core.candidates)
        if self.token_ids is not None:
            tokens = self.token_ids
        if not any(candidates):
            candidates = []  # not requested; where they were, cells of images alone have none
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
