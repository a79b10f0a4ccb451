"""The values in effect as text or JSON: what `imp config show` prints and the server reports.

No key holds a secret: secrets stand in files of their own, of which settings hold the path.
"""

import json

from imp_service.config.config import Config, Entry


def as_text(config: Config, *, with_origin: bool = False) -> str:
    """One line a key, in TOML; keys that are unset stand in comments."""
    lines = [
        (
            f"{entry.name} = {entry.key.kind.write(entry.value)}"
            if entry.value is not None
            else f"# {entry.name} is unset",
            entry.origin,
        )
        for entry in config.entries()
    ]
    if not with_origin:
        return "".join(f"{line}\n" for line, _ in lines)
    width = min(60, max(len(line) for line, _ in lines))
    return "".join(f"{line:<{width}}  # {origin}\n" for line, origin in lines)


def as_json(config: Config, *, with_origin: bool = False) -> str:
    """One object, keys in dotted form; unset is null."""
    document = {
        entry.name: {"value": _plain(entry), "origin": str(entry.origin)} if with_origin else _plain(entry)
        for entry in config.entries()
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _plain(entry: Entry) -> object:
    return None if entry.value is None else entry.key.kind.plain(entry.value)
