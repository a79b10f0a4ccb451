"""What engines are asked for: of each sequence, the logits after each of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Sequences = Sequence[Sequence[int]]
Rows = NDArray[np.float32]  # token × vocabulary


class RowSource(Protocol):
    """An engine in one setting; it is loaded for a call and gone afterwards."""

    name: str

    def __call__(self, path: Path, threads: int, sequences: Sequences) -> Iterator[Rows]:
        """The rows of each sequence, all of which have one length."""
