"""A scripted model that stands still at one token until the test lets it go on: any place of a request can be held."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.patience import HANGS_AFTER
from support.served_models import ServedModel, scripted

# The token at which it stands still, whoever evaluates it.
HELD = 900
# More than any test lets it make.
ALL_STEPS = 10_000


class Gate:
    """Closed from the start. The engine's thread waits inside a step, so commands wait too."""

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
        """One that it holds. "counter" stops after HELD - prompt outputs; a table of [HELD] stops at every step."""
        script = {**(script or {}), "hanging_token": HELD, "hung_fd": self._hung_end, "gate_fd": self._gate}
        return scripted(rule, script=script if table is None else {**script, "table": table}, **engine)

    def wait(self) -> None:
        """Until a step stands still."""
        assert select.select([self._hung], [], [], HANGS_AFTER / 2)[0], "nothing came to the gate"
        os.read(self._hung, 1)

    def open(self, n_steps: int = 1) -> None:
        """Lets so many steps that stand still, or will, go on."""
        os.write(self._opener, b"x" * n_steps)

    def close(self) -> None:
        """After the server."""
        for descriptor in (self._gate, self._opener, self._hung, self._hung_end):
            os.close(descriptor)


@contextmanager
def gate() -> Iterator[Gate]:
    """To be left after the server."""
    made = Gate()
    try:
        yield made
    finally:
        made.close()
