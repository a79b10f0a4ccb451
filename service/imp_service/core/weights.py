"""A loaded model's weights: their number, their main type, and the digest of their files."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence

from imp_service import _core

HASH_CHUNK_BYTES = 1024**2


def count_parameters(model: _core.Model) -> int:
    """The parameters of all tensors. A tensor with two uses counts once."""
    return sum(weight["n_matrices"] * weight["n"] * weight["k"] for weight in model.weights)


def weight_format(model: _core.Model) -> str:
    """The type of most parameters."""
    counts: Counter[str] = Counter()
    for weight in model.weights:
        counts[weight["dtype"]] += weight["n_matrices"] * weight["n"] * weight["k"]
    return counts.most_common(1)[0][0]


def sha256_of(files: Sequence[_core.OpenFile], goes_on: Callable[[], bool] = lambda: True) -> str | None:
    """SHA-256 of the concatenated files, in hexadecimal; None if `goes_on` returns False before the end.

    Raises MODEL_IO if a file has changed since it was opened.
    """
    digest = hashlib.sha256()
    for file in files:
        offset = 0
        while chunk := file.read(offset, HASH_CHUNK_BYTES):
            if not goes_on():
                return None
            digest.update(chunk)
            offset += len(chunk)
    return digest.hexdigest()
