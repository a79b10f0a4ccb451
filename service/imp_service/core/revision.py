"""The commit that this installation was built from."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def revision() -> str:
    """The commit in hexadecimal; empty if it was not built from a checkout."""
    path = Path(__file__).parents[1] / "revision.txt"
    return path.read_text().strip() if path.exists() else ""
