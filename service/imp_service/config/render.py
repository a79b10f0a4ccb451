"""Settings as text: the shipped imp.conf, and the values in effect as text or JSON."""

import json
from collections.abc import Iterator

from imp_service.config.config import Config, Entry
from imp_service.config.settings import TABLE
from imp_service.config.table import Key, Named, Node, Section
from imp_service.config.toml import KeyPath, write_key, write_path

_HEAD = """\
# imp.conf: every key with its default. docs/cuda.md describes one more key.
# A key in a comment ("# key = …") has no default. It is unset; its value is an example.
# imp reads --config FILE, else the file of $IMP_CONFIG, else the first that exists of ./imp.conf,
# ~/.config/imp/imp.conf and /etc/imp/imp.conf.
# IMP_SECTION__KEY in the environment overrides the file, --set section.key=value overrides both.
# SIGHUP makes a running server read the keys marked [reload] again; every other key needs a restart.
# Sizes may be written "8GiB" or "64 KiB", counts "32K"; durations need their unit: "5ms", "30s", "1h".
"""
_COMMENT_COLUMN = 34
RELOADS = " [reload]"


def render() -> str:
    return _HEAD + "".join(f"\n{block}\n" for block in _blocks(TABLE, ()))


def _blocks(section: Section, path: KeyPath) -> Iterator[str]:
    """One block for each section: its header, its keys, then the sections within."""
    keys = [_key_line(name, node) for name, node in section.nodes.items() if isinstance(node, Key) and node.shipped]
    if path:
        yield "\n".join([_line(f"[{write_path(path)}]", section.text), *keys])
    for name, node in section.nodes.items():
        yield from _inner_blocks(node, (*path, name))


def _inner_blocks(node: Node, path: KeyPath) -> Iterator[str]:
    match node:
        case Section():
            yield from _blocks(node, path)
        case Named(item=Key() as item):
            yield f"{_line(f'[{write_path(path)}]', node.text)}\n{_key_line(node.example, item)}"
        case Named():
            yield _line(f"# [{write_path((*path, node.example))}]", node.text)
        case Key():
            return


def _key_line(name: str, key: Key) -> str:
    if key.default is None:
        setting = f"# {write_key(name)} = {key.kind.write(key.kind.read(key.example))}"
    else:
        setting = f"{write_key(name)} = {key.kind.write(key.default)}"
    allowed = f" ({key.kind.allowed})" if key.kind.allowed else ""
    return _line(setting, key.text + allowed + (RELOADS if key.reloads else ""))


def _line(setting: str, text: str) -> str:
    return f"{setting:<{_COMMENT_COLUMN}}  # {text}"


def as_text(config: Config, *, with_origin: bool = False) -> str:
    """One line for each key, in TOML; unset keys are comments."""
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
    """One JSON object with dotted keys; unset keys are null."""
    document = {
        entry.name: {"value": _plain(entry), "origin": str(entry.origin)} if with_origin else _plain(entry)
        for entry in config.entries()
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _plain(entry: Entry) -> object:
    return None if entry.value is None else entry.key.kind.plain(entry.value)
