"""The refusal of an engine."""

from __future__ import annotations

from support.run.needed import PEERS


class RefusedError(Exception):
    """The engine does not run the file, or the case; the message says why."""


def not_installed(missing: ImportError) -> RefusedError:
    """Returns the refusal of an engine whose packages are not installed."""
    return RefusedError(f"not installed ({PEERS}): {missing}")
