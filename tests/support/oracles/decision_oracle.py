"""The probability of each label, in float64, from the definition: the tokens that a model writes after a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]
Path = tuple[int, ...]


def softmax(row: Row) -> Row:
    weights = np.exp(row - row.max())
    return weights / weights.sum()


def label_masses(after: Callable[[Path], Row], labels: Sequence[Path]) -> list[float]:
    """For each label the probability of an output of which it is the longest label at the start.

    `after` returns the logits after the prompt and some tokens.
    """
    rows = {path: softmax(after(path)) for path in {label[:n] for label in labels for n in range(len(label))}}
    begins = {label: float(np.prod([rows[label[:n]][label[n]] for n in range(len(label))])) for label in labels}

    def is_next(longer: Path, label: Path) -> bool:
        """`longer` goes on from the label, with no label between them."""
        between = [longer[:n] for n in range(len(label) + 1, len(longer))]
        return len(longer) > len(label) and longer[: len(label)] == label and not set(between) & set(labels)

    return [begins[label] - sum(begins[longer] for longer in labels if is_next(longer, label)) for label in labels]


def label_probabilities(after: Callable[[Path], Row], labels: Sequence[Path]) -> list[float]:
    """Their shares."""
    masses = label_masses(after, labels)
    return [mass / sum(masses) for mass in masses]
