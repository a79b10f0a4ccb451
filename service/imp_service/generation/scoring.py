"""What the engine returns for an input, as a vector or a score. Scores are computed in double."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

from imp_service.core import StartedEvent


def vector_of(event: StartedEvent) -> array[float]:
    """The vector of a text, in the bits that the core computed."""
    return array("f", event.vector.tobytes())


def sigmoid(logit: float) -> float:
    """The probability of a log-odds, without overflow."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    odds = math.exp(logit)
    return odds / (1 + odds)


@dataclass(frozen=True, slots=True)
class Scorer:
    """How a model scores a pair: by its classifier, or by the tokens of its answer, yes or no."""

    yes_no: tuple[int, int] | None = None

    def score_of(self, event: StartedEvent, *, is_raw: bool) -> float:
        """The probability that the document fits, or its log-odds."""
        if self.yes_no is None:
            log_odds = float(event.vector[0])
        else:
            yes, no = self.yes_no
            log_odds = float(event.logits[yes]) - float(event.logits[no])
        [score] = array("f", [log_odds if is_raw else sigmoid(log_odds)])  # as messages have it
        return score
