"""What a loaded model's weights are: how many, of which type, and the digest of their files."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from imp_service import _core

HASH_CHUNK_BYTES = 1024**2
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5}\.(?:gguf|safetensors))")


def count_parameters(model: _core.Model) -> int:
    """Of all tensors; one that serves twice counts once."""
    return sum(weight["n_matrices"] * weight["n"] * weight["k"] for weight in model.weights)


def weight_format(model: _core.Model) -> str:
    """The type of most of them."""
    counts: Counter[str] = Counter()
    for weight in model.weights:
        counts[weight["dtype"]] += weight["n_matrices"] * weight["n"] * weight["k"]
    return counts.most_common(1)[0][0]


def weight_files(path: Path) -> list[Path]:
    """The files of a checkpoint that is named by one of them, by its index, or by its folder."""
    if path.is_dir() or path.suffix == ".json":
        return sorted((path if path.is_dir() else path.parent).glob("*.safetensors"))
    match = _SHARD.fullmatch(path.name)
    if match is None:
        return [path]
    shard = re.compile(rf"{re.escape(match[1])}-\d{{5}}-of-{re.escape(match[2])}")
    return sorted(each for each in path.parent.iterdir() if shard.fullmatch(each.name))


def sha256_of(paths: Sequence[Path], goes_on: Callable[[], bool] = lambda: True) -> str | None:
    """Digest of the files' bytes, one after the other, in hexadecimal; None where `goes_on` says no before the end."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(HASH_CHUNK_BYTES):
                if not goes_on():
                    return None
                digest.update(chunk)
    return digest.hexdigest()
