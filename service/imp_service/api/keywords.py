"""Options as keyword arguments: each field of an option class is one. The classes are the only list of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import Field, fields, replace
from functools import wraps
from itertools import chain
from typing import Any, ParamSpec, TypeVar

from .facts import facts_of
from .other_names import ADVICE, SAME

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
JSON = "_json"


def keyword_of(field: Field[Any]) -> str:
    """The keyword of a field: its name, unless its metadata has another. One that holds JSON takes the value."""
    return (facts_of(field).keyword or field.name).removesuffix(JSON)


def take(base: T, keywords: dict[str, Any]) -> T:
    """`base` with the keywords that are its fields. They are removed from `keywords`."""
    changes = {}
    for field in fields(base):  # type: ignore[arg-type]  # a dataclass
        if keyword_of(field) in keywords:
            value = keywords.pop(keyword_of(field))
            changes[field.name] = as_json(value) if field.name.endswith(JSON) else value
    return replace(base, **changes) if changes else base  # type: ignore[type-var]


def as_json(value: object) -> str:
    """JSON as it is, any other value written as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def unknown_keyword(function: str, name: str, advice: str) -> TypeError:
    """The error of a keyword that a function does not have."""
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{advice}")


def advice_on(name: str, known: Collection[str]) -> str:
    """What to write in place of an unknown keyword, as the end of a sentence; empty if nobody knows."""
    if advice := ADVICE.get(name):
        return f": {advice}"
    from difflib import get_close_matches

    same = SAME.get(name)
    close = " or ".join(map(repr, [same] if same in known else get_close_matches(name, known)))
    return f". Did you mean {close}?" if close else ""


def takes_options(*groups: Iterable[inspect.Parameter]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For a function with **options: its signature names them, and any other name is a TypeError."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        known = {each.name: each for each in own}
        for each in chain(*groups):
            known.setdefault(each.name, each)

        @wraps(function)
        def checked(*arguments: P.args, **options: P.kwargs) -> R:
            for name in options:
                if name not in known:
                    raise unknown_keyword(function.__name__, name, advice_on(name, known))
            return function(*arguments, **options)

        checked.__signature__ = signature.replace(parameters=list(known.values()))  # type: ignore[attr-defined]
        return checked

    return decorate


def parameters_of(options: object) -> list[inspect.Parameter]:
    """The fields of an option class, of which `options` has the defaults, as keyword parameters."""
    return [
        inspect.Parameter(
            keyword_of(field),
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(options, field.name),
            annotation=field.type,
        )
        for field in fields(options)  # type: ignore[arg-type]  # a dataclass
    ]
