"""Vocabularies for the tests of the text package, each read and built once."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from imp_service.text import Tokenizer
from support.files.gguf_key_values import read_key_values

VECTORS = os.environ.get("IMP_TOKENIZER_VECTORS")


@cache
def _metadata(name: str) -> dict[str, object]:
    assert VECTORS is not None
    return read_key_values(Path(VECTORS) / f"{name}.gguf")


@cache
def _tokenizer(name: str) -> Tokenizer:
    return Tokenizer.from_metadata(_metadata(name))


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of published vocabularies with their test vectors."""
    if VECTORS is None:
        pytest.skip("no published tokenizer vectors; IMP_TOKENIZER_VECTORS names their folder")
    if not Path(VECTORS).is_dir():
        pytest.fail(f"IMP_TOKENIZER_VECTORS names {VECTORS}, which is not there")
    return Path(VECTORS)


@pytest.fixture(scope="session")
def published(vectors: Path) -> Callable[[str], Tokenizer]:
    """Returns the tokenizer of a published vocabulary by its file's name."""
    return _tokenizer


@pytest.fixture(scope="session")
def published_metadata(vectors: Path) -> Callable[[str], dict[str, object]]:
    """Returns the metadata of a published vocabulary by its file's name."""
    return _metadata
