"""Where a value came from: a default, a line of the file, a variable, an option, or imp itself for `auto`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from imp_service.config.toml import KeyPath, excerpt, write_path


@dataclass(frozen=True, slots=True)
class Origin:
    source: Literal["default", "file", "environment", "--set", "--model", "option", "auto"]
    # File and line, variable, an option of a command, or the reason in words of what `auto` became.
    place: str = ""

    def __str__(self) -> str:
        if self.source in ("file", "environment", "option"):
            return self.place
        return f"{self.source}: {self.place}" if self.place else self.source

    def where(self, path: KeyPath) -> str:
        """How an error names the value at `path` that came from here: file:line:key; an option's name says it all."""
        if self.source in ("option", "--model"):
            return str(self)
        key = excerpt(write_path(path), 100)
        place = excerpt(self.place, 100, keep="end")
        if not place:
            return f"{self.source} {key}"
        return f"{place}: {key}" if self.source == "environment" else f"{place}:{key}"


DEFAULT = Origin("default")

# A source of values: where the one at a path comes from.
OriginOf = Callable[[KeyPath], Origin]
