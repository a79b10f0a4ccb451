"""The engine's limits, which bound the options of the library and of every server."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from imp_service.api.errors import Violation, refuse
from imp_service.api.rules import U32, Bounds, Finding
from imp_service.tables import DRAFTERS, DRY, DRY_FIELDS, LIMITS, SAMPLER_FIELDS, SamplerField


def bounds_of(field: SamplerField) -> Bounds:
    """The bounds of a sampler's field in a request and in imp.conf. Without an upper bound it has 32 bits."""
    high = U32 if math.isinf(field.high) else field.high
    return Bounds(field.low, high, above=field.above, whole=field.is_whole)


BOUNDS: Mapping[str, Bounds] = {
    **{name: bounds_of(field) for name, field in SAMPLER_FIELDS.items()},
    **{f"{DRY}{name}": bounds_of(field) for name, field in DRY_FIELDS.items()},
    "logit_bias": Bounds(-LIMITS.bias, LIMITS.bias),
    "max_draft_tokens": Bounds(1, LIMITS.draft_tokens, whole=True),
    "num_sequences": Bounds(1, LIMITS.sequences, whole=True),
    "priority": Bounds(-LIMITS.priority, LIMITS.priority, whole=True),
    "top_logprobs": Bounds(0, LIMITS.top_logprobs, whole=True),
}
COUNTS: Mapping[str, float] = {
    "logit_biases": LIMITS.logit_biases,
    "stop_tokens": LIMITS.stop_tokens,
    "tenant_bytes": LIMITS.tenant_bytes,
}
WORDS: Mapping[str, Collection[str]] = {"speculation.drafters": DRAFTERS}
# The most tokens of a text, as a limit.
CONTEXT = "max_context"
# The engine counts outputs with 31 bits.
MOST_OUTPUTS = 2**31 - 1
# The engine counts nanoseconds.
MOST_SECONDS = 1e9
# Seconds until a call that found the queue full asks again for a place.
ASK_AGAIN = 0.05


class CoreLimits:
    """What the core bounds, whatever the model and the settings."""

    __slots__ = ()

    @property
    def bounds(self) -> Mapping[str, Bounds]:
        """The ranges of numbers."""
        return BOUNDS

    @property
    def words(self) -> Mapping[str, Collection[str]]:
        """The names of the features of each kind."""
        return WORDS


@dataclass(frozen=True, slots=True)
class EngineLimits(CoreLimits):
    """The limits of the engine and of a model's vocabulary; without a model the largest that there may be.

    Every feature is there.
    """

    n_tokens: int = U32
    vocab_size: int = U32
    max_context: int = U32

    def most(self, name: str) -> float:
        """A limit of the core; those of settings are as high as the engine allows."""
        others = {"limits.request_time": MOST_SECONDS, CONTEXT: self.max_context}
        return others.get(name, COUNTS.get(name, math.inf))

    def lacks(self, feature: str) -> str:
        """Nothing is switched off."""
        return ""


ENGINE = EngineLimits()


def refuse_findings(findings: Iterable[Finding]) -> None:
    """Raises FieldsInvalid with every violation."""
    refuse(each for each in findings if isinstance(each, Violation))
