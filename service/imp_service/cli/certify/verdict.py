"""What the answers to the same questions say about a loss, and whether the pair passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# One-sided, 95 %.
Z = 1.6448536269514722
LEAST_POINTS = -2.0


@dataclass(frozen=True, slots=True)
class Pairs:
    """How many questions were answered rightly with all of the prompt, with a part of it, or with both."""

    n: int
    both: int
    whole_alone: int
    part_alone: int

    @property
    def points(self) -> float:
        """What a part gains, in points of a hundred."""
        return 100 * (self.part_alone - self.whole_alone) / self.n

    @property
    def least_points(self) -> float:
        """The lower bound of the gain, with 95 % confidence: of the score interval for paired shares (Tango 1998)."""
        return 100 * _lower_bound(self.part_alone, self.whole_alone, self.n)


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The median seconds to the first token, while so many prompts are asked at once."""

    concurrency: int
    prompt_tokens: int
    whole: float
    part: float

    @property
    def speed_up(self) -> float:
        return self.whole / self.part


def faults(pairs: Pairs, times: Sequence[FirstToken]) -> list[str]:
    """Why the pair does not pass; empty: it passes."""
    found = []
    if pairs.least_points < LEAST_POINTS:
        found.append(
            f"the loss may be {-pairs.least_points:.1f} points of right answers, expected at most {-LEAST_POINTS:.0f}"
            + (": more questions may show less" if pairs.points >= LEAST_POINTS else "")
        )
    found += [
        f"with {each.concurrency} at once the first token takes {each.part:.2f} s instead of {each.whole:.2f} s"
        for each in times
        if each.part >= each.whole
    ]
    return found


def _lower_bound(gained: int, lost: int, n: int) -> float:
    """The least difference of paired shares whose score statistic is within Z."""
    low, high = -1.0, (gained - lost) / n
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _score(gained, lost, n, middle) < Z else (middle, high)
    return low


def _score(gained: int, lost: int, n: int, difference: float) -> float:
    """How many standard errors the observed difference is above this one, under which they are estimated."""
    # The share that is lost, by maximum likelihood under the difference: the root of a quadratic.
    a = 2 * n
    b = -gained - lost + (2 * n - gained + lost) * difference
    c = -lost * difference * (1 - difference)
    share = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = n * (2 * share + difference * (1 - difference))
    above = gained - lost - n * difference
    return above / math.sqrt(variance) if variance > 0 else math.inf if above > 0 else 0.0
