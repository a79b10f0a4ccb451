"""What to write in place of a keyword of `load` that it does not have: a setting as a text, or an option elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from imp_service.api.arguments import CHAT_PARAMETERS, GENERATION_PARAMETERS
from imp_service.api.keywords import advice_on, unknown_keyword
from imp_service.api.other_names import SAME
from imp_service.config.foreign_names import FOREIGN_NAMES
from imp_service.config.settings import TABLE
from imp_service.config.table import ANY_NAME, keys_of
from imp_service.config.toml import write_path

_KEYWORDS = ("path", "config", "progress")
_OPTIONS = {each.name for each in (*GENERATION_PARAMETERS, *CHAT_PARAMETERS)}


def unknown_setting(given: Mapping[str, object]) -> TypeError:
    """The error of keywords that `load` does not have. It names the first."""
    name, value = next(iter(given.items()))
    return unknown_keyword("load", name, _advice(name, value))


def _advice(name: str, value: object) -> str:
    if (option := SAME.get(name, name)) in _OPTIONS:
        return f": {option} is an option of generate() and chat()"
    found = [f'load(PATH, "{setting}")' for setting in _settings(name, value)]
    remark = FOREIGN_NAMES[name].remark if name in FOREIGN_NAMES else ""
    written = f": settings are texts, write {' or '.join(found)}{f'; {remark}' if remark else ''}"
    return written if found else advice_on(name, _KEYWORDS)


def _settings(name: str, value: object) -> Iterator[str]:
    """The assignments that the keyword may mean."""
    shown = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else value
    if (foreign := FOREIGN_NAMES.get(name)) is not None:
        is_usable = foreign.is_same and isinstance(shown, int | float | str)
        yield f"{foreign.key}={shown if is_usable else foreign.value}"
        return
    paths = [path for path, _ in keys_of(TABLE) if ANY_NAME not in path]
    spelled = {"_".join(path): path for path in paths}
    last = [path for path in paths if path[-1] == name]
    close = [spelled[each] for each in get_close_matches(name, spelled, n=1)]
    for path in [spelled[name]] if name in spelled else last or close:
        yield f"{write_path(path)}={shown if isinstance(shown, int | float | str) else 'VALUE'}"
