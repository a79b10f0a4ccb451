"""The numbers of a report as a table of texts, the same on a page and in a terminal."""

import math
from collections.abc import Mapping

from .report import LevelReport

HEADINGS = (
    *("streams", "tokens/s", "min – max", "first token: median", "90 %", "99 %", "between: median", "90 %", "99 %"),
    *("tokens/message", "requests", "failed"),
)


def level_row(level: LevelReport) -> tuple[str, ...]:
    """The cells below HEADINGS for a number of streams."""
    return (
        str(level.level),
        rate_text(level.median_tokens_per_s),
        f"{rate_text(min(level.tokens_per_s))} – {rate_text(max(level.tokens_per_s))}",
        *(duration_text(t) for p in (level.first_token, level.inter_token) for t in (p.p50, p.p90, p.p99)),
        "–" if math.isnan(level.tokens_per_message) else _digits(level.tokens_per_message),
        str(level.requests),
        failures_text(level) or "0",
    )


def failures_text(level: LevelReport) -> str:
    """Failures as text, such as "3 QUEUE_FULL, 1 LOADING, 2 resumed". Empty if there are none."""
    return counts_text(level.failures | ({"resumed": level.resumed} if level.resumed else {}))


def counts_text(counts: Mapping[str, int]) -> str:
    """Counts by their reasons as text. Empty if there are none."""
    return ", ".join(f"{count} {reason}" for reason, count in counts.items())


def duration_text(seconds: float) -> str:
    """A time with three digits, such as "1.23 ms"; "–" for NaN."""
    if math.isnan(seconds):
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds * 1e6)} µs"


def rate_text(value: float) -> str:
    """A number with three digits or more, without a unit."""
    return "0" if value == 0 else _digits(value)


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
