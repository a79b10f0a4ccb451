"""Observes a running server, which takes a setting at its start or by a reload."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from support.servers.served import Served

S = TypeVar("S")


@dataclass(frozen=True)
class Running(Generic[S]):
    """`serve` starts a server with texts of --set, and `look` observes it."""

    serve: Callable[..., AbstractContextManager[S]]
    served_of: Callable[[S], Served]
    look: Callable[[S], Any]

    def __call__(self, _: Path, settings: tuple[str, ...]) -> Any:
        with self.serve(*settings) as started:
            return self.look(started)

    def after_reload(self, settings: tuple[str, ...], reloaded: str) -> tuple[tuple[str, ...], Any]:
        """Returns the keys that a reload of a server changed, and what the look shows after it."""
        with self.serve(*settings) as started:
            changed = self.served_of(started).reload(reloaded)
            return changed, self.look(started)
