"""One log line, and its format as JSON or as text. Control characters are escaped."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

# Characters of one text in a line, escapes included: a client must not be able to fill a disk.
MAX_TEXT = 128
MAX_MESSAGE = 512
MAX_FRAMES = 24

Field = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One event. `event` is a fixed word: lines are counted and limited by it."""

    at: float  # seconds since the epoch
    level: str
    event: str
    message: str
    fields: Mapping[str, Field]


Format = Callable[[LogEntry], str]


def as_json(entry: LogEntry) -> str:
    """One JSON object on one line, in ASCII."""
    head = {"time": _time(entry.at), "level": entry.level, "event": entry.event}
    parts = [f'"{name}": {_quoted(value, MAX_TEXT)}' for name, value in head.items()]
    if entry.message:
        parts.append(f'"message": {_quoted(entry.message, MAX_MESSAGE)}')
    parts += [f'"{name}": {_literal(value)}' for name, value in entry.fields.items()]
    return "{" + ", ".join(parts) + "}"


def as_text(entry: LogEntry) -> str:
    """For people: time, level, event, message, then name=value."""
    message = f" {_quoted(entry.message, MAX_MESSAGE)[1:-1]}" if entry.message else ""
    fields = "".join(f" {name}={_bare(value)}" for name, value in entry.fields.items())
    return f"{_time(entry.at)} {entry.level:<7} {entry.event}:{message}{fields}"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _literal(value: Field) -> str:
    if isinstance(value, str):
        return _quoted(value, MAX_TEXT)
    if isinstance(value, tuple):
        return "[" + ", ".join(_quoted(item, MAX_TEXT) for item in value[:MAX_FRAMES]) + "]"
    # default=str: a value of an unexpected type is still logged.
    return json.dumps(round(value, 6) if isinstance(value, float) else value, default=str)


def _bare(value: Field) -> str:
    """Without quotes if the value needs none."""
    text = _literal(value)
    is_plain = isinstance(value, str) and value and text[1:-1] == value and not set(value) & set(' ="')
    return text[1:-1] if is_plain else text


def _quoted(text: str, most: int) -> str:
    """A JSON string in ASCII of at most `most` characters between its quotes, cut at whole escapes."""
    quoted = json.dumps(text[: most + 1])
    if len(quoted) - 2 <= most:
        # DEL is the one control character that JSON leaves as it is.
        return quoted.replace("\x7f", "\\u007f")
    kept: list[str] = []
    left = most - len("\\u2026")
    for character in text:
        escaped = json.dumps(character)[1:-1]
        left -= len(escaped)
        if left < 0:
            break
        kept.append(escaped)
    return '"' + "".join(kept).replace("\x7f", "\\u007f") + '\\u2026"'
