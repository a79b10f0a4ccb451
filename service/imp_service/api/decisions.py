"""A decision: a question, the labels that may answer it, and the probability of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .errors import Violation
from .facts import option
from .options import DEFAULT_CACHE, CacheOptions, Prompt
from .replies import Usage
from .rules import Bounds, Core, Number, Text, Texts
from .shown import quoted

MAX_LABELS = 1024
MAX_LABEL_BYTES = 1024
# Of all labels together.
MAX_LABELS_BYTES = 64 * 1024
# Beginnings of labels: each is evaluated.
MAX_EVALUATIONS = 4096
# The largest magnitude of a number of a range.
RANGE_BOUND = 10**9
_BOUND = Number(Bounds(-RANGE_BOUND, RANGE_BOUND, whole=True))


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """The whole numbers from `low` in steps, up to `high`. Each is a label: its decimal digits."""

    low: int = option(0, _BOUND)
    high: int = option(0, _BOUND)
    step: int = option(1, Number(Bounds(1, RANGE_BOUND, whole=True)))

    @property
    def numbers(self) -> range:
        """The numbers."""
        return range(self.low, self.high + 1, self.step)

    def contradictions(self, path: str) -> Iterator[Violation]:
        """It has two numbers at least, and no more than there may be labels."""
        n_numbers = (self.high - self.low) // self.step + 1
        if not 2 <= n_numbers <= MAX_LABELS:
            n = max(n_numbers, 0)
            yield Violation(path, f"{n} number{'' if n == 1 else 's'}, expected 2 to {MAX_LABELS}")


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """A question, and what may answer it: labels, or a range of numbers."""

    prompt: Prompt
    labels: Sequence[str] = option((), Texts((2, MAX_LABELS), Text(1, MAX_LABEL_BYTES), MAX_LABELS_BYTES))
    range: IntegerRange | None = None
    cache: CacheOptions = DEFAULT_CACHE
    priority: int = option(0, Core("priority"))
    tenant: str = option("", Text(0, "tenant_bytes"))

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of each label."""
        return tuple(self.labels) if self.range is None else tuple(map(str, self.range.numbers))

    def contradictions(self, path: str) -> Iterator[Violation]:
        """Either labels, each once, or a range."""
        where = f"{path}.labels" if path else "labels"
        if bool(self.labels) == (self.range is not None):
            yield Violation(where, "expected exactly one of labels and range")
        first: dict[str, int] = {}
        for i, label in enumerate(self.labels):
            if first.setdefault(label, i) != i:
                yield Violation(f"{where}[{i}]", f"the same as {where}[{first[label]}]")


@dataclass(frozen=True, slots=True)
class LabelProbability:
    """A label, the tokens that are its text, and its probability among the labels."""

    label: str
    probability: float
    token_ids: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Decision:
    """The most likely label, and the probability of each. The probabilities add up to 1."""

    # Of several that are equally likely, the first.
    label: str
    labels: tuple[LabelProbability, ...]
    # The probability of an output that begins with a label: how much the model wants to give one of these answers.
    mass: float
    # 1: one label has all the probability; 0: all labels have the same.
    confidence: float
    # Of a range: the mean of its numbers, weighted by their probabilities.
    mean: float | None
    usage: Usage
    # Beginnings of labels that were evaluated after the prompt. 0: one forward pass, as each label is one token.
    evaluations: int

    @property
    def probabilities(self) -> Mapping[str, float]:
        """Label -> its probability, in the order of the labels."""
        return {each.label: each.probability for each in self.labels}

    @property
    def probability(self) -> float:
        """That of the most likely label."""
        return self.probabilities[self.label]

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"<Decision: {quoted(self.label)} with probability {self.probability:.3g} of {len(self.labels)} labels>"
