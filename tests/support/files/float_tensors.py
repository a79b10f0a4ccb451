"""Reads the float32 tensors of a safetensors file, where the safetensors package is not installed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def read_floats(path: Path) -> dict[str, np.ndarray]:
    """Returns them by name."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    found = {}
    for name, fact in json.loads(content[8:start]).items():
        if name != "__metadata__" and fact["dtype"] == "F32":
            first, end = fact["data_offsets"]
            values = np.frombuffer(content, "<f4", (end - first) // 4, start + first)
            found[name] = values.reshape(fact["shape"]).copy()
    return found
