"""Vocabularies for the tests of the text room, each read and built once."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from imp_service.text import Tokenizer
from support.gguf_key_values import read_key_values

_REPOSITORY = Path(__file__).parents[3]
VECTORS = Path(os.environ.get("IMP_TOKENIZER_VECTORS", _REPOSITORY / "../shared/tokenizers"))


@cache
def _metadata(name: str) -> dict[str, object]:
    return read_key_values(VECTORS / f"{name}.gguf")


@cache
def _tokenizer(name: str) -> Tokenizer:
    return Tokenizer.from_metadata(_metadata(name))


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of published vocabularies with their vectors."""
    if not VECTORS.is_dir():
        if "IMP_TOKENIZER_VECTORS" in os.environ:
            pytest.fail(f"IMP_TOKENIZER_VECTORS names {VECTORS}, which is not there")
        pytest.skip(f"no tokenizer vectors at {VECTORS}; IMP_TOKENIZER_VECTORS names their folder")
    return VECTORS


@pytest.fixture(scope="session")
def published(vectors: Path) -> Callable[[str], Tokenizer]:
    """The tokenizer of a published vocabulary, by its file's name."""
    return _tokenizer


@pytest.fixture(scope="session")
def published_metadata(vectors: Path) -> Callable[[str], dict[str, object]]:
    """The metadata of a published vocabulary, by its file's name."""
    return _metadata
