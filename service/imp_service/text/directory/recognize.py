"""Whether the metadata of a model is that of a directory."""

from __future__ import annotations

from collections.abc import Mapping


def is_directory(metadata: Mapping[str, object]) -> bool:
    """The metadata is of a directory's config.json, not of a GGUF file."""
    return "model_type" in metadata and "tokenizer.ggml.model" not in metadata
