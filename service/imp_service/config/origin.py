"""Where a value came from: a default, a line of the file, a variable, an option, or imp itself for `auto`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from imp_service.config.toml import KeyPath, excerpt, write_path


@dataclass(frozen=True, slots=True)
class Origin:
    source: Literal["default", "file", "environment", "--set", "--model", "auto"]
    # File and line, variable, or the reason in words of what `auto` became.
    place: str = ""

    def __str__(self) -> str:
        if self.source in ("file", "environment"):
            return self.place
        return f"{self.source}: {self.place}" if self.place else self.source

    def where(self, path: KeyPath) -> str:
        """How an error names the value at `path` that came from here: file:line:key."""
        key = excerpt(write_path(path), 100)
        place = excerpt(self.place, 100, keep="end")
        return f"{place}:{key}" if place else f"{self.source} {key}"


DEFAULT = Origin("default")

# A source of values: where the one at a path comes from.
OriginOf = Callable[[KeyPath], Origin]
