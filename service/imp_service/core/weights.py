"""What a loaded model's weights are: how many, of which type, and the digest of their files."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence

from imp_service import _core

HASH_CHUNK_BYTES = 1024**2


def count_parameters(model: _core.Model) -> int:
    """Of all tensors; one that serves twice counts once."""
    return sum(weight["n_matrices"] * weight["n"] * weight["k"] for weight in model.weights)


def weight_format(model: _core.Model) -> str:
    """The type of most of them."""
    counts: Counter[str] = Counter()
    for weight in model.weights:
        counts[weight["dtype"]] += weight["n_matrices"] * weight["n"] * weight["k"]
    return counts.most_common(1)[0][0]


def sha256_of(files: Sequence[_core.OpenFile], goes_on: Callable[[], bool] = lambda: True) -> str | None:
    """Digest of the files' bytes, one after the other, in hexadecimal; None where `goes_on` says no before the end.

    Raises MODEL_IO where a file was changed since it was opened.
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
