"""Sizes of caches."""

from __future__ import annotations

from pathlib import Path

from imp_service import _core

CELLS = 256


def room_of(n_tokens: int) -> int:
    """Returns the tokens of a sequence, rounded up as llama.cpp rounds the room of a context."""
    return -(-n_tokens // CELLS) * CELLS


def kv_bytes(path: Path, n_tokens: int) -> int:
    """Returns the size of the cache for so many tokens, with 2 bytes for each number (f16 and bf16)."""
    metadata = _core.open_model_file(path).metadata
    facts = {key.partition(".")[2]: value for key, value in metadata.items()}
    head_dim = facts["embedding_length"] // facts["attention.head_count"]
    widths = sum(facts.get(f"attention.{half}_length", head_dim) for half in ("key", "value"))
    return int(2 * n_tokens * facts["block_count"] * facts["attention.head_count_kv"] * widths)
