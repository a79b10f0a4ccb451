"""Collects violations that the always-on checks find, from any thread, until a fixture reads them."""

from __future__ import annotations


class Findings:
    """A list of violations; take() returns and empties it."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def add(self, finding: str) -> None:
        """Adds a violation."""
        self._found.append(finding)

    def take(self) -> list[str]:
        """Returns all violations since the last call."""
        taken, self._found = self._found, []
        return taken


FINDINGS = Findings()
