"""The built-in model with another context length. Beyond its own the output is arbitrary."""

from __future__ import annotations

import struct
from pathlib import Path

CONTEXT_KEY = b"qwen3.context_length"
UINT32 = struct.pack("<I", 4)


def with_context(path: Path, n_tokens: int) -> bytes:
    """Returns the file's content with another context length."""
    content = bytearray(path.read_bytes())
    at = content.index(CONTEXT_KEY + UINT32) + len(CONTEXT_KEY) + len(UINT32)
    content[at : at + 4] = struct.pack("<I", n_tokens)
    return bytes(content)
