"""Writes a tiny reranker with random weights that answers yes or no, as Qwen3-Reranker does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.models.tiny_models import TinyModel, tiny
from support.text.tiny_vocabularies import byte_level

MERGES = (("y", "e"), ("ye", "s"), ("n", "o"))
YES, NO = 257, 258
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONTEXT = 1024


def judge() -> TinyModel:
    return tiny("qwen3", vocab_size=256 + len(MERGES) + len(CONTROL), context=CONTEXT)


def write_judge(path: Path, keys: Mapping[str, Any] | None = None) -> Path:
    """Writes the model, with further keys of the file."""
    words = byte_level(merges=MERGES, control=CONTROL)
    contents = judge().contents()
    contents.keys = {**contents.keys, **words, **(keys or {})}
    contents.write(path)
    return path
