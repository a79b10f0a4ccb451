"""Sources of values before they are checked: a file's lines, and texts assigned to one key each."""

from collections.abc import Mapping
from dataclasses import dataclass

from imp_service.config.errors import ConfigError
from imp_service.config.origin import Origin
from imp_service.config.toml import KeyPath, excerpt, read_path


@dataclass(frozen=True, slots=True)
class FileLines:
    file: str
    lines: Mapping[KeyPath, int]

    def origin(self, path: KeyPath) -> Origin:
        # What has no line of its own, such as a key in an array's table, is placed where its parent begins.
        line = next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), 1)
        return Origin("file", f"{self.file}:{line}")


@dataclass(frozen=True, slots=True)
class Assignment:
    """One variable or one `--set`: its value is a text, typed by the key it belongs to."""

    path: KeyPath
    text: str
    origin: Origin


def of_option(option: str, key: str, text: str) -> Assignment:
    """What a command's own option says of a key that it stands for: errors name the option."""
    return Assignment(tuple(key.split(".")), text, Origin("option", option))


def read_assignment(text: str) -> Assignment:
    """An argument of `--set`, `section.key=value`."""
    # The first "=" outside of quotes ends the key: a quoted pattern may hold one.
    for cut, character in enumerate(text[:1024]):
        if character == "=" and (path := read_path(text[:cut])):
            return Assignment(path, text[cut + 1 :], Origin("--set"))
    raise ConfigError("--set", f"found {excerpt(text, 80)}, expected section.key=value")
