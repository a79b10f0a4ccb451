"""A scripted model that blocks at one token until the test releases it, so that a test can hold a request anywhere."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.run.patience import HANGS_AFTER
from support.servers.served_models import ServedModel, scripted

# The token whose evaluation blocks.
HELD = 900
# More steps than any test makes.
ALL_STEPS = 10_000


class Gate:
    """Starts closed. The engine's thread blocks inside a step, so commands wait too."""

    def __init__(self) -> None:
        self._gate, self._opener = os.pipe()
        self._hung, self._hung_end = os.pipe()

    def model(
        self,
        rule: str = "counter",
        table: list[int] | None = None,
        *,
        script: dict[str, Any] | None = None,
        **engine: Any,
    ) -> ServedModel:
        """Returns a model that blocks at HELD: "counter" after HELD - prompt outputs, table [HELD] at every step."""
        script = {**(script or {}), "hanging_token": HELD, "hung_fd": self._hung_end, "gate_fd": self._gate}
        return scripted(rule, script=script if table is None else {**script, "table": table}, **engine)

    def wait(self) -> None:
        """Waits until a step is blocked."""
        assert select.select([self._hung], [], [], HANGS_AFTER / 2)[0], "nothing came to the gate"
        os.read(self._hung, 1)

    def open(self, n_steps: int = 1) -> None:
        """Releases `n_steps` steps: those blocked now, then the next ones to block."""
        os.write(self._opener, b"x" * n_steps)

    def close(self) -> None:
        """Closes the gate; call it after the server has stopped."""
        for descriptor in (self._gate, self._opener, self._hung, self._hung_end):
            os.close(descriptor)


# Those that are not closed.
_GATES: list[Gate] = []


@contextmanager
def gate() -> Iterator[Gate]:
    """Yields a gate; leave the block after the server has stopped."""
    made = Gate()
    _GATES.append(made)
    try:
        yield made
    finally:
        _GATES.remove(made)
        made.close()


def open_gates() -> None:
    """Releases every step: a test has failed, and its server is to stop."""
    for each in _GATES:
        each.open(ALL_STEPS)
