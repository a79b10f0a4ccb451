"""The sources of values that are not checked yet: lines of a file, environment variables, `--set`."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from imp_service.config.errors import ConfigError
from imp_service.config.settings import TABLE
from imp_service.config.table import ANY_NAME, keys_of
from imp_service.config.toml import KeyPath, excerpt, read_path, write_path, write_string
from imp_service.config.tree import KeyOrigin


@dataclass(frozen=True, slots=True)
class FileLines:
    file: str
    lines: Mapping[KeyPath, int]

    def origin(self, path: KeyPath) -> KeyOrigin:
        # A key without a line, such as one in an array's table, gets the line of its parent.
        line = next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), 1)
        return KeyOrigin("file", f"{self.file}:{line}")


@dataclass(frozen=True, slots=True)
class Assignment:
    """One environment variable or one `--set`. The key determines the type of its text."""

    path: KeyPath
    text: str
    origin: KeyOrigin


def of_option(option: str, key: str, text: str) -> Assignment:
    """Returns the assignment for an option of a command; errors name the option."""
    return Assignment(tuple(key.split(".")), text, KeyOrigin("option", option))


def of_text_option(option: str, key: str, text: str) -> Assignment:
    """The same for a text as it was typed, such as a path: its quotes are its own."""
    return of_option(option, key, write_string(text) if text[:1] in ('"', "'") else text)


def read_assignment(text: str) -> Assignment:
    """An argument of `--set`, `section.key=value`."""
    # The first "=" outside of quotes ends the key: a quoted pattern may contain "=".
    for cut, character in enumerate(text[:1024]):
        if character == "=" and (path := read_path(text[:cut])):
            return Assignment(path, text[cut + 1 :], KeyOrigin("--set"))
    raise ConfigError("--set", f"found {excerpt(text, 80)}, expected section.key=value")


_PREFIX = "IMP_"
# Two underscores separate section and key. Names without them are not settings: Kubernetes injects IMP_SERVICE_HOST and
# IMP_PORT_50051_TCP_ADDR for a Service named imp.
_SEPARATOR = "__"


@dataclass(frozen=True, slots=True)
class Environment:
    config: str | None
    home: str | None
    assignments: tuple[Assignment, ...]


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Reads the environment; `variables` replace those of the process."""
    found = os.environ if variables is None else variables
    ours = (name for name in found if name.startswith(_PREFIX) and _SEPARATOR in name[len(_PREFIX) :])
    return Environment(
        config=found.get("IMP_CONFIG"),
        home=found.get("HOME"),
        assignments=tuple(_assignment(name, found[name]) for name in sorted(ours)),
    )


def _names_without_separator(variables: Mapping[str, str] | None = None) -> list[str]:
    """Names with the prefix IMP_ and without a separator: they are not read as settings."""
    found = os.environ if variables is None else variables
    return sorted(name for name in found if name.startswith(_PREFIX) and _SEPARATOR not in name[len(_PREFIX) :])


def variable_name(path: Sequence[str]) -> str:
    """The variable of a key."""
    return _PREFIX + _SEPARATOR.join(path).upper()


def _assignment(name: str, text: str) -> Assignment:
    if name != name.upper():
        raise ConfigError(name, f"found small letters, expected {name.upper()}")
    path = tuple(name[len(_PREFIX) :].lower().split(_SEPARATOR))
    return Assignment(path, text, KeyOrigin("environment", name))


def misspelled_variables(names: Iterable[str] | None = None) -> list[str]:
    """A warning for each variable that would be a key if it had two underscores after its section."""
    undivided = {variable_name(["_".join(path)]): path for path, _ in keys_of(TABLE) if ANY_NAME not in path}
    found = [name for name in (_names_without_separator() if names is None else names) if name in undivided]
    return [
        f"{name}: is not read, expected {variable_name(undivided[name])} for {write_path(undivided[name])}"
        for name in found
    ]
