"""The one place where settings are read from the environment: paths and IMP_SECTION__KEY."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from imp_service.config.errors import ConfigError
from imp_service.config.origin import Origin
from imp_service.config.sources import Assignment

_PREFIX = "IMP_"
# Two underscores part section and key. Names without them are not imp's: Kubernetes injects IMP_SERVICE_HOST and
# IMP_PORT_50051_TCP_ADDR beside a Service that is called imp.
_SEPARATOR = "__"


@dataclass(frozen=True, slots=True)
class Environment:
    config: str | None
    home: str | None
    assignments: tuple[Assignment, ...]


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """What the environment says; `variables` stand in for the process's own."""
    found = os.environ if variables is None else variables
    ours = (name for name in found if name.startswith(_PREFIX) and _SEPARATOR in name[len(_PREFIX) :])
    return Environment(
        config=found.get("IMP_CONFIG"),
        home=found.get("HOME"),
        assignments=tuple(_assignment(name, found[name]) for name in sorted(ours)),
    )


def undivided_names(variables: Mapping[str, str] | None = None) -> list[str]:
    """The names of variables that begin as imp's do, and that nothing parts: nobody reads them as settings."""
    found = os.environ if variables is None else variables
    return sorted(name for name in found if name.startswith(_PREFIX) and _SEPARATOR not in name[len(_PREFIX) :])


def variable_name(path: Sequence[str]) -> str:
    """The variable of a key."""
    return _PREFIX + _SEPARATOR.join(path).upper()


def _assignment(name: str, text: str) -> Assignment:
    if name != name.upper():
        raise ConfigError(name, f"found small letters, expected {name.upper()}")
    path = tuple(name[len(_PREFIX) :].lower().split(_SEPARATOR))
    return Assignment(path, text, Origin("environment", name))
