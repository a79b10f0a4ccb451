"""The verdict on a goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """A measured value, and the least or the most that the goal allows."""

    of: str
    found: float
    asked: float
    is_least: bool = True

    @property
    def is_met(self) -> bool:
        """Whether the value meets the goal."""
        return self.found >= self.asked if self.is_least else self.found <= self.asked

    @property
    def words(self) -> str:
        """ "1.62 × llama.cpp (at least 1.8: missed)"."""
        bound, end = "at least" if self.is_least else "at most", "met" if self.is_met else "missed"
        return f"{self.found:.2f} × {self.of} ({bound} {self.asked:.2g}: {end})"

    def as_json(self) -> dict[str, object]:
        """Returns the verdict as JSON values."""
        return {"of": self.of, "found": self.found, "asked": self.asked, "met": self.is_met}


def verdict_line(found: Sequence[Verdict]) -> str:
    """Returns all verdicts in one line; empty without goals."""
    return "; ".join(verdict.words for verdict in found)
