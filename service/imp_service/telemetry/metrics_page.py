"""The page of metrics, rendered at a bounded rate: rendering takes a millisecond of the event loop."""

from __future__ import annotations

from collections.abc import Callable

RENDERS_PER_SECOND = 10
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    """Renders for each request, or gives the last page again where requests come too fast."""

    def __init__(self, render: Callable[[], bytes], clock: Callable[[], float]) -> None:
        self._render = render
        self._clock = clock
        self._page = b""
        self._asked_at = float("-inf")
        self._allowance = float(RENDERS_PER_SECOND)

    def get(self) -> bytes:
        """The page."""
        now = self._clock()
        self._allowance = min(self._allowance + (now - self._asked_at) * RENDERS_PER_SECOND, RENDERS_PER_SECOND)
        self._asked_at = now
        if self._allowance >= 1 or not self._page:
            self._allowance -= 1
            self._page = self._render()
        return self._page
