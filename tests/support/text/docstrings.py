"""English texts that every Python has: the docstrings of its standard library."""

from __future__ import annotations

import ast
import os
import random
from collections.abc import Iterator
from pathlib import Path

# Words of a text, at least and at most.
WORDS = (5, 110)


def docstrings(n: int) -> list[str]:
    """Returns so many different ones, the same for the same number."""
    return random.Random(38).sample(sorted(set(_all())), n)


def _all() -> Iterator[str]:
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):  # a file that tests of Python itself read
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef | ast.Module):
                words = (ast.get_docstring(node) or "").split()
                if WORDS[0] <= len(words) <= WORDS[1]:
                    yield " ".join(words)
