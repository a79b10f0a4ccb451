"""Writes safetensors files piece by piece, so that a test can make any of them wrong; independent of imp."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000}


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def header_of(tensors: dict[str, Any]) -> bytes:
    return json.dumps(tensors).encode()


def assemble(header: bytes, data: bytes, length: int | None = None) -> bytes:
    """Returns a file; `length` replaces the true length of the header."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def write_tensors(path: Path, tensors: dict[str, NDArray[Any]]) -> Path:
    """Writes arrays of 32-bit floats, integers, bytes or flags."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values).tobytes()
        kind = {"uint8": "U8", "float32": "F32", "int32": "I32", "int64": "I64", "bool": "BOOL"}[str(values.dtype)]
        header[name] = entry(kind, list(values.shape), len(data), len(data) + len(raw))
        data += raw
    path.write_bytes(assemble(header_of(header), data))
    return path


SMALL = {
    "__metadata__": {"format": "pt"},
    "b.weight": entry("F16", [2, 3, 5], 24, 84),
    "a.weight": entry("F32", [3, 2], 0, 24),
    "c.norm": entry("BF16", [7], 84, 98),
}
DATA = bytes((7 * i) % 61 for i in range(98))


def write(path: Path, header: bytes | dict[str, Any] = SMALL, data: bytes = DATA, **lies: Any) -> Path:
    """Writes a model to `path` and a configuration next to it."""
    encoded = header if isinstance(header, bytes) else header_of(header)
    path.write_bytes(assemble(encoded, data, **lies))
    path.with_name("config.json").write_text(json.dumps(CONFIG))
    return path


def write_set(directory: Path) -> Path:
    """Writes two shards and their index; returns the path of the index."""
    write(
        directory / "m-1.safetensors", {"a": entry("F32", [3], 0, 12), "b": entry("F16", [2], 12, 16)}, bytes(range(16))
    )
    write(directory / "m-2.safetensors", {"c": entry("BF16", [5], 0, 10)}, bytes(range(50, 60)))
    index = directory / "model.safetensors.index.json"
    weight_map = {"a": "m-1.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"}
    index.write_text(json.dumps({"metadata": {"total_size": 26}, "weight_map": weight_map}))
    return index
