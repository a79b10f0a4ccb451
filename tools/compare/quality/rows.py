"""The interface of engines: the logits after each token of each sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Sequences = Sequence[Sequence[int]]
Rows = NDArray[np.float32]  # token × vocabulary


class RowSource(Protocol):
    """An engine with one setting; each call loads and unloads it."""

    name: str

    def __call__(self, path: Path, threads: int, sequences: Sequences) -> Iterator[Rows]:
        """Returns the rows of each sequence. All sequences have the same length."""
