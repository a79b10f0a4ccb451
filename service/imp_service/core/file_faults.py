"""Whether the files that keys name open, and how a key that was typed is named."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from imp_service.config import Config, ConfigError
from imp_service.config.toml import KeyPath
from imp_service.config.tree import origin_at, value_at


def file_faults(config: Config, path: KeyPath) -> Iterator[ConfigError]:
    """Why the file that this key names does not open, where it names one."""
    value: object = config.settings
    for name in path:
        value = getattr(value, name)
    if value is None:
        return
    file = Path(str(value))
    try:
        mode = file.stat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            with file.open("rb") as content:
                content.read(1)
        elif not os.access(file, os.R_OK):  # what a pipe holds can be read once: the start does
            raise PermissionError
    except PermissionError:
        yield ConfigError(typed_at(config, path), f"{value}: may not be read", reason="CONFIG_PERMISSION")
    except OSError as error:
        yield ConfigError(typed_at(config, path), f"{value}: {error.strerror}")


def typed_at(config: Config, path: KeyPath) -> str:
    """Where the value at `path` was typed, and under which key: [model] may stand for an entry of [models]."""
    value = value_at(config.tree, path)
    if path[0] == "model" and value is not None:
        of_entries = [("models", name, *path[1:]) for name in config.settings.models]
        path = next((typed for typed in of_entries if value_at(config.tree, typed) is value), path)
    return origin_at(config.tree, path).where(path)
