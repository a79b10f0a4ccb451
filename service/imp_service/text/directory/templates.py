"""The chat templates of a model directory, by name, each with the place that it was read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from imp_service.text.directory.json_files import JsonObject, read_json_object
from imp_service.text.directory.special_names import CONFIG_FILE

DEFAULT = "default"
_FILE = "chat_template.jinja"
_JSON_FILE = "chat_template.json"
_FOLDER = "additional_chat_templates"

# Name -> (place, source).
Sources = Mapping[str, tuple[str, object]]


def read_templates(files: Mapping[str, object]) -> Sources:
    """The templates of a directory's files. Those in files of their own replace those of the configuration."""
    own = dict(_in_own_files(files))
    if own:
        return own
    found: dict[str, tuple[str, object]] = {}
    for name in (CONFIG_FILE, _JSON_FILE):
        content = files.get(name)
        if isinstance(content, bytes):
            found |= _of_json(read_json_object(name, content))
    return found


def _in_own_files(files: Mapping[str, object]) -> Iterator[tuple[str, tuple[str, object]]]:
    for name, content in files.items():
        path = PurePosixPath(name)
        if name == _FILE:
            yield DEFAULT, (name, content)
        elif path.parent.name == _FOLDER and path.suffix == ".jinja":
            yield path.stem, (name, content)


def _of_json(config: JsonObject) -> dict[str, tuple[str, object]]:
    if not isinstance(config.members.get("chat_template"), list):
        source = config.text("chat_template")
        return {} if source is None else {DEFAULT: (f"{config.path}: chat_template", source)}
    found: dict[str, tuple[str, object]] = {}
    for entry in config.objects("chat_template"):
        name, source = entry.text("name"), entry.text("template")
        if name is None or source is None:
            raise entry.fail("name" if name is None else "template", "missing")
        found[name] = (entry.path, source)
    return found
