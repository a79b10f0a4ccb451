"""The imp.conf of a pod: every value that differs from the defaults, and nothing else."""

from collections.abc import Iterator
from itertools import groupby

from imp_service.config import Config
from imp_service.config.config import Entry
from imp_service.config.origin import DEFAULT
from imp_service.config.toml import write_key, write_path


def pod_conf(config: Config) -> str:
    """Strict TOML, read back by imp to the same settings."""
    said = (entry for entry in config.entries() if entry.value is not None and entry.origin != DEFAULT)
    return "\n".join(_block(section, entries) for section, entries in groupby(said, key=lambda entry: entry.path[:-1]))


def _block(section: tuple[str, ...], entries: Iterator[Entry]) -> str:
    lines = [f"{write_key(entry.path[-1])} = {entry.key.kind.write(entry.value)}\n" for entry in entries]
    return f"[{write_path(section)}]\n{''.join(lines)}"
