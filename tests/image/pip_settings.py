"""pip's settings on this machine as one file, so that pip finds the same packages in the build of an image."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Settings that name a place of this machine's own, or say how pip prints.
LEFT_OUT = {"cache-dir", "log", "require-virtualenv", "target", "prefix", "user"}


def pip_settings() -> str:
    """Returns a pip.conf with what pip reads here from its files and from the environment."""
    listed = [sys.executable, "-m", "pip", "config", "list"]
    return write_settings(subprocess.run(listed, capture_output=True, text=True, check=True).stdout)


def write_settings(listed: str) -> str:
    """Returns a pip.conf of the output of `pip config list`. The environment comes before the files, as in pip."""
    sections: dict[str, dict[str, str]] = {}
    lines = [re.fullmatch(r"(\S+?)\.([\w-]+)=(.*)", line) for line in listed.splitlines()]
    found = [(match[1], match[2], str(ast.literal_eval(match[3]))) for match in lines if match]
    for section, key, value in sorted(found, key=lambda each: each[0] == ":env:"):
        if key not in LEFT_OUT:
            sections.setdefault("global" if section == ":env:" else section, {})[key] = value
    return "".join(
        f"[{section}]\n" + "".join(f"{key} = {' '.join(value.split())}\n" for key, value in keys.items())
        for section, keys in sections.items()
    )


def places(settings: str) -> list[Path]:
    """Returns the files and folders of this machine that the settings name. The build must see them."""
    named = {place for line in settings.splitlines() for place in _places(line.partition(" = ")[2])}
    return sorted(place for place in named if place.exists())


def _places(value: str) -> Iterator[Path]:
    for word in value.split():
        path = Path(unquote(urlsplit(word).path) if word.startswith("file://") else word)
        if path.is_absolute():
            # A simple index links to files outside of its folder.
            yield path.parent if path.name == "simple" else path
