"""Opens invalid model files and checks the form of the error."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from imp_service import _testing as core


def refusal(path: Path, opener: Any = core.open_gguf) -> Any:
    """Returns the ModelError of opening `path`. Checks that it is one line that begins with the file's name."""
    with pytest.raises(_core.ModelError) as raised:
        opener(path)
    error = raised.value
    assert str(error) == f"{error.reason}: {error.message}"
    assert len(str(error).encode()) <= 480  # the line has "imp: error: " before it
    assert all(ord(c) >= 32 and ord(c) != 127 for c in str(error))
    assert str(path.parent) not in str(error)
    return error


def assert_refused(path: Path, reason: str, *words: str, opener: Any = core.open_gguf) -> None:
    error = refusal(path, opener)
    assert error.reason == reason, error.message
    for word in words:
        assert word in error.message, error.message


@contextlib.contextmanager
def address_space(extra_bytes: int) -> Iterator[None]:
    """Limits the growth of the process to extra_bytes; larger allocations fail."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
