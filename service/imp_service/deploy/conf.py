"""The imp.conf of a pod: the values that differ from the defaults, with the comments of the base."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from imp_service.config import Config
from imp_service.config.config import Entry
from imp_service.config.toml import write_key, write_path
from imp_service.config.tree import DEFAULT


def pod_conf(config: Config, base: Path) -> str:
    """TOML that imp reads back as the same settings. `base` is the file that `config` was read from."""
    lines = base.read_text().splitlines()
    changed = (entry for entry in config.entries() if entry.value is not None and entry.origin != DEFAULT)
    blocks = [
        _block(section, entries, lines) for section, entries in groupby(changed, key=lambda entry: entry.path[:-1])
    ]
    return "\n".join([*_head(lines), *blocks])


def _head(lines: list[str]) -> list[str]:
    """The comment that begins the file."""
    end = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return ["".join(f"{line}\n" for line in lines[:end])] if end else []


def _block(section: tuple[str, ...], entries: Iterator[Entry], lines: list[str]) -> str:
    text = f"[{write_path(section)}]\n"
    for entry in entries:
        above, after = _comments(entry, lines)
        text += "".join(f"{line}\n" for line in above)
        text += f"{write_key(entry.path[-1])} = {entry.key.kind.write(entry.value)}{after}\n"
    return text


def _comments(entry: Entry, lines: list[str]) -> tuple[list[str], str]:
    """The comments above and after a value that comes from the file."""
    if entry.origin.source != "file":
        return [], ""
    number = int(entry.origin.place.rpartition(":")[2]) - 1
    first = number
    while lines[first - 1].startswith("#"):
        first -= 1
    comment = lines[number].partition("  # ")[2]
    return lines[first:number], f"  # {comment}" if comment else ""
