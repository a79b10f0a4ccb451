"""A systemd unit: conf/systemd/imp.service, filled in with a command, its memory and its times."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import imp_service
from imp_service.config.server_settings import DrainSettings

# The unit hides what is below these folders: ProtectHome and PrivateTmp.
HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))
# GPUs: their devices are visible, and the driver may compile code at run time.
_GPU = {"PrivateDevices": "no", "DeviceAllow": "char-nvidia* rw", "MemoryDenyWriteExecute": "no"}
_PLAIN = re.compile(r"[\w@%+=,./~-]+")


@dataclass(frozen=True, slots=True)
class UnitFilling:
    """The needs of a server that its unit states."""

    words: Sequence[str]  # the command
    memory_bytes: int
    drain: DrainSettings
    is_gpu: bool
    read_paths: Sequence[Path]  # what the server reads, wherever that is


def read_unit() -> str:
    """The unit as it is shipped: the build installs it next to the package."""
    # An editable install has two folders for the package: the sources and the build.
    folders = [Path(folder, "systemd") for folder in imp_service.__path__]
    return next(folder for folder in folders if folder.is_dir()).joinpath("imp.service").read_text()


def fill_unit(unit: str, filling: UnitFilling) -> str:
    """The unit with the directives of one server."""
    margin = _seconds(directive(unit, "TimeoutStopSec")) - _time_of(DrainSettings())
    stop = math.ceil((_time_of(filling.drain) + margin).total_seconds())
    set_to: dict[str, str] = {
        "ExecStart": " ".join(map(_quoted_word, filling.words)),
        "TimeoutStopSec": f"{stop}s",
        **(_GPU if filling.is_gpu else {}),
    }
    more = {"MemoryMax": str(filling.memory_bytes)}
    if hidden := hidden_folders(filling.read_paths):
        more["BindReadOnlyPaths"] = " ".join(_quoted_path(str(folder)) for folder in hidden)
    return _with_directives(unit, set_to, more)


def directive(unit: str, name: str) -> str:
    """The value of a directive that the unit has once."""
    (value,) = re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE)
    return str(value)


def hidden_folders(paths: Iterable[Path]) -> list[Path]:
    """The folders of files that the unit would hide, without those that lie in another one."""
    named = {folder for path in paths for folder in (path.absolute(), path.resolve())}
    folders = {path if path.is_dir() else path.parent for path in named}
    wanted = {folder for folder in folders if any(folder.is_relative_to(hidden) for hidden in HIDDEN)}
    return sorted(f for f in wanted if not any(f != other and f.is_relative_to(other) for other in wanted))


def _quoted_word(word: str) -> str:
    """A word of a command line as systemd reads it, which puts in variables."""
    return _quoted_path(word).replace("$", "$$")


def _quoted_path(text: str) -> str:
    """A text as systemd reads it, which splits lines at white space and puts in specifiers."""
    text = text.replace("%", "%%")
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _with_directives(unit: str, set_to: Mapping[str, str], more: Mapping[str, str]) -> str:
    lines, left = [], dict(set_to)
    for line in unit.splitlines():
        name = line.partition("=")[0]
        lines.append(f"{name}={left.pop(name)}" if name in left else line)
        if name == "LimitNOFILE":
            lines += [f"{name}={value}" for name, value in {**left, **more}.items()]
            left = {}
    return "\n".join(lines) + "\n"


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=int(text.removesuffix("s")))


def _time_of(drain: DrainSettings) -> timedelta:
    return drain.delay + drain.grace
