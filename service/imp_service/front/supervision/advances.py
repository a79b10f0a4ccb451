"""Whether callers get further, over the lives of several engine processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The key of a report in a line of an engine process. A line without it says that the process serves.
PROGRESS = "progress"
# So many streams are known, the latest ones.
MOST_STREAMS = 1024


class Advances:
    """Takes what engine processes report of their callers.

    A stream that goes on counts if its caller has more tokens than the last time. So one that ends each process at the
    same token counts once.
    """

    def __init__(self) -> None:
        # By name of the stream: the most tokens that its caller had, since the last complete answer of anybody.
        self._furthest: dict[str, int] = {}
        self._are_some = False

    def take(self, report: Mapping[str, Any]) -> None:
        """A report: see ProgressReports."""
        if "told" not in report:
            self._furthest.clear()
            self._are_some = True
            return
        stream, n_told = report["stream"], report["told"]
        n_before = self._furthest.pop(stream, 0)
        self._furthest[stream] = max(n_told, n_before)
        self._are_some = self._are_some or n_told > n_before
        if len(self._furthest) > MOST_STREAMS:
            del self._furthest[next(iter(self._furthest))]

    def are_new(self) -> bool:
        """Whether somebody got further since the last call of this function."""
        found, self._are_some = self._are_some, False
        return found
