"""Packages that not every command and not every environment needs: imported where they are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

# How a checkout installs them.
PEERS = "pip install '.[peers]'"
PARITY = "pip install '.[parity]'"
TESTING = "IMP_TESTING=ON pip install '.[test]'"
MUTANTS = "IMP_TESTING=ON pip install '.[test,mutants]'"
# The extension for tests: an engine over a script, and parts of the core.
EXTENSION = "imp_service._testing"


@contextmanager
def needs(install: str) -> Iterator[None]:
    """Ends the program with one line that says how to install it, if a module that the block imports is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise SystemExit(absent(str(error.name), install)) from None


def missing_of(modules: Sequence[str]) -> list[str]:
    """Returns those of the modules that are not installed."""
    return [name for name in modules if not _is_installed(name)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package is not installed
        return False


def absent(module: str, install: str) -> str:
    """Returns the line about a missing module."""
    return f"{module} is not installed: {install}"
