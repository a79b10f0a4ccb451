"""Kinds of JSON values that a request field takes. Each returns the value in the form that imp uses, or refuses it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any

from imp_service.api.rules import token_pieces
from imp_service.tables import LIMITS

MAX_SHOWN = 64
# OpenAI's limits of `metadata`.
MAX_LABELS, MAX_LABEL_NAME, MAX_LABEL = 16, 64, 512

# Said once in a refusal: users of other people's clients can change the server, but not the client.
REMEDY = 'with http.unknown_fields = "ignore" the server ignores unknown fields'

# Most tokens of an output that only the context bounds, as in llama-server, LM Studio and Ollama.
NO_LIMIT = -1

# Takes a value and returns it in the form that imp uses. Raises WrongValue.
ReadValue = Callable[[Any], Any]


class WrongValue(Exception):
    """A value of the wrong kind. `where` is the path within the field, such as `[2].role`."""

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where


def within(where: str, read: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `read`. A WrongValue, and an ignored member, gets `where` before its own path."""
    ignored = _IGNORED.get()
    if ignored is not None:
        ignored.place.append(where)
    try:
        return read(*arguments)
    except WrongValue as mismatch:
        raise WrongValue(mismatch.message, f"{where}{mismatch.where}") from None
    finally:
        if ignored is not None:
            ignored.place.pop()


class _Ignored:
    """What is ignored of one field."""

    def __init__(self, field: str, paths: list[str], *, unknown: bool) -> None:
        self.paths = paths
        # Unknown members are ignored.
        self.unknown = unknown
        # The path of the value that is read, in parts.
        self.place = [field]

    def add(self, member: str = "") -> None:
        """Adds the value that is read, or its member."""
        self.paths.append("".join(self.place) + member)


_IGNORED: ContextVar[_Ignored | None] = ContextVar("_IGNORED", default=None)


@contextmanager
def ignored_in(field: str, paths: list[str], *, unknown: bool) -> Iterator[None]:
    """Within the `with` block the paths of what is ignored of a field are added to `paths`.

    `unknown`: its unknown members are ignored too. Otherwise they are refused.
    """
    token = _IGNORED.set(_Ignored(field, paths, unknown=unknown))
    try:
        yield
    finally:
        _IGNORED.reset(token)


def known_members(value: Any, known: Collection[str]) -> dict[str, Any]:
    """The members of a JSON object that are known. A null is an unset member. Other members are refused or ignored."""
    given = {name: each for name, each in members(value).items() if each is not None}
    ignored = _IGNORED.get()
    for name in sorted(given.keys() - set(known)):
        if ignored is None or not ignored.unknown:
            raise WrongValue(f"unknown field ({REMEDY})", f".{name}")
        ignored.add(f".{name}")
        del given[name]
    return given


def ignored(value: Any) -> None:
    """Any value. It is ignored, and the reply names it."""
    if (found := _IGNORED.get()) is not None:
        found.add()


def expected(what: str, value: object, where: str = "") -> WrongValue:
    """The error for a value that is not `what`."""
    return WrongValue(f"{shown(value)}, expected {what}", where)


def shown(value: object) -> str:
    """A JSON value, shortened for an error message."""
    text = json.dumps(_shortened(value, [MAX_SHOWN]))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _shortened(value: object, room: list[int]) -> object:
    """As much of a JSON value as can be shown: writing all of a large one takes long. `room`: the parts left."""
    room[0] -= 1
    if isinstance(value, str):
        return value[: MAX_SHOWN + 1]
    if isinstance(value, list):
        return [_shortened(each, room) for each in islice(value, max(1, room[0]))]
    if isinstance(value, dict):
        some = islice(value.items(), max(1, room[0]))
        return {key[: MAX_SHOWN + 1]: _shortened(each, room) for key, each in some}
    return value


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise expected("a string", value)
    return value


def flag(value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise expected("true or false", value)
    return value


def flag_or_text(value: Any) -> bool | str:
    """true, false or a string."""
    if not isinstance(value, bool | str):
        raise expected("true, false or a string", value)
    return value


def number(value: Any) -> float:
    """A number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise expected("a number", value)
    return value


def whole(value: Any) -> int:
    """An integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise expected("an integer", value)
    return value


def whole_or_all(value: Any) -> int:
    """An integer. -1 is 0: both mean all."""
    return 0 if whole(value) == -1 else whole(value)


def limit(value: Any) -> int:
    """A number of tokens, or NO_LIMIT. Ollama's -2 is all the room of the context, which is the same here."""
    return NO_LIMIT if whole(value) == -2 else int(value)


def window(value: Any) -> int:
    """The last tokens that a penalty looks at, as in llama-server: -1 is all of them, which imp writes as 0."""
    if whole(value) == 0:
        raise WrongValue("0, expected -1 or above 0: without a penalty leave it out, or set repetition_penalty to 1")
    return 0 if value == -1 else int(value)


def milliseconds(value: Any) -> float | None:
    """A time in seconds. Zero is none."""
    return number(value) / 1000 or None


def greedy_if_false(value: Any) -> int | None:
    """The temperature of an output that is not sampled."""
    return None if flag(value) else 0


def seed(value: Any) -> int | None:
    """An integer of 64 bits. -1 means no seed, as in other servers; another negative one counts from 2^64 down."""
    if whole(value) == -1:
        return None
    return int(value) + 2**64 if -(2**63) <= value < 0 else value


def members(value: Any) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise expected("an object", value)
    return value


def read_members(value: Any, readers: Mapping[str, ReadValue]) -> dict[str, Any]:
    """The known members of a JSON object, each converted by its reader."""
    given = known_members(value, readers)
    return {name: within(f".{name}", read, given[name]) for name, read in readers.items() if name in given}


def labels(value: Any) -> Mapping[str, str]:
    """A JSON object whose values are strings."""
    if len(members(value)) > MAX_LABELS:
        raise WrongValue(f"{len(value)} entries, expected at most {MAX_LABELS}")
    for name, each in value.items():
        if len(name) > MAX_LABEL_NAME or len(within("", text, each)) > MAX_LABEL:
            limits = f"a name of at most {MAX_LABEL_NAME} characters and a text of at most {MAX_LABEL}"
            raise WrongValue(f"{shown(name)} or its text is too long, expected {limits}")
    return members(value)


def entries(value: Any) -> list[Any]:
    """A JSON list."""
    if not isinstance(value, list):
        raise expected("a list", value)
    return value


def texts(value: Any) -> tuple[str, ...]:
    """A list of strings. Their number and sizes are checked with the option that they become."""
    for i, each in enumerate(entries(value)):
        if not isinstance(each, str):
            raise expected("a string", each, f"[{i}]")
    return tuple(value)


def text_or_texts(value: Any) -> tuple[str, ...]:
    """A string, or a list of strings."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise expected("a string or a list of strings", value)
    return texts(value)


def token_ids(value: Any) -> tuple[int, ...]:
    """A list of token ids. Whether the vocabulary has them is checked with the option that they become."""
    # In pieces: one call over a long list would block every other thread.
    if any(set(map(type, piece)) != {int} for _, piece in token_pieces(entries(value))):
        i = next(i for i, each in enumerate(value) if type(each) is not int)
        raise expected("a token id", value[i], f"[{i}]")
    return tuple(value)


def biases(value: Any) -> dict[int, float]:
    """Token id -> bias. JSON has no numbers as keys, so each key is a number as text."""
    if len(members(value)) > LIMITS.logit_biases:
        raise WrongValue(f"{len(value)} entries, expected at most {LIMITS.logit_biases}")
    found = {}
    for key, bias in value.items():
        if not key.isascii() or not key.isdigit() or len(key) > len(str(2**32)):
            raise WrongValue(f"{shown(key)}, expected a token id")
        try:
            found[int(key)] = number(bias)
        except WrongValue as mismatch:
            raise WrongValue(mismatch.message, f"[{key}]") from None
    return found


def only(*allowed: Any) -> ReadValue:
    """One of a few values."""

    def check(value: Any) -> Any:
        for each in allowed:
            if type(each) is type(value) and each == value:
                return value
        raise expected(" or ".join(map(json.dumps, allowed)), value)

    return check


def only_or_ignored(allowed: Collection[Any], without_effect: Collection[Any]) -> ReadValue:
    """One of the allowed values, or one that is ignored, and the reply names it."""
    known = only(*allowed, *without_effect)

    def check(value: Any) -> Any:
        if known(value) in allowed:
            return value
        return ignored(value)

    return check


def anything(value: Any) -> Any:
    """Any value."""
    return value


def refused(instead: str) -> ReadValue:
    """A reader that refuses every value, and names what to use in its place."""

    def refuse(value: Any) -> None:
        raise WrongValue(f"not supported: {instead}")

    return refuse


def number_or_flag(value: Any) -> int | None:
    """An integer. true means 1, and false means unset."""
    return whole(value) if not isinstance(value, bool) else 1 if value else None
