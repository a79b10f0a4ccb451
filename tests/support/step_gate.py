"""Stops a scripted engine in the midst of a step, at a token, until the test lets it go on."""

from __future__ import annotations

import os
import select
from types import TracebackType
from typing import Any, Self

from support.loop_thread import HANGS_AFTER


class StepGate:
    """A forward pass over a batch that holds `token` waits for open(). For scripted(script=gate.script)."""

    def __init__(self, token: int) -> None:
        self._gate, self._opener = os.pipe()
        self._hung, hung_fd = os.pipe()
        self._descriptors = (self._gate, self._opener, self._hung, hung_fd)
        self.token = token
        self.script: dict[str, Any] = {"hanging_token": token, "hung_fd": hung_fd, "gate_fd": self._gate}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)

    def wait(self) -> None:
        """Until a step stands at the gate."""
        assert select.select([self._hung], [], [], HANGS_AFTER)[0], "no step came to the gate"
        os.read(self._hung, 1)

    def open(self) -> None:
        """Lets the step go on that stands here, or the next that comes."""
        os.write(self._opener, b"x")
