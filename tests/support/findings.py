"""What the always-on checks of every call found, until a fixture has read it. Filled from any thread."""

from __future__ import annotations


class Findings:
    """A list that is emptied by whoever answers for it."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def add(self, finding: str) -> None:
        """Notes a violation."""
        self._found.append(finding)

    def take(self) -> list[str]:
        """All since the last time."""
        taken, self._found = self._found, []
        return taken


FINDINGS = Findings()
