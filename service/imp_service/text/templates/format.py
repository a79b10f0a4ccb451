"""`'…'.format(…)` and `'…' % …` in chat templates, in parts whose origin is known.

Fields have a position or a name and a limited width, and no attributes or items.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from string import Formatter

from jinja2.exceptions import SecurityError, TemplateRuntimeError

from imp_service.text.templates.budget import Budget, BudgetExceeded
from imp_service.text.templates.template_text import TemplateText, cut_texts, is_trusted

MAX_WIDTH = 256
_FIELD = re.compile(r"\d{1,3}|[^\W\d]\w*|")
_SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?#?0?(?P<width>\d*)[,_]?(?:\.(?P<precision>\d+))?[bdeEfFgGosxX%]?", re.DOTALL)
_CONVERSION = re.compile(r"%(?:\((?P<name>[^)]*)\))?(?P<options>[#0\- +]*\d*(?:\.\d+)?)(?P<letter>[a-zA-Z%])")


def format_pieces(
    budget: Budget, text: str, args: Sequence[object], kwargs: Mapping[str, object]
) -> Iterator[tuple[object, str]]:
    """The parts of the result: literal parts of the text, as template text, and values with their format specification.

    A specification is bounded. It is empty for literal parts.
    """
    n_automatic = 0
    own = TemplateText.trusted if is_trusted(text) else TemplateText.untrusted
    for literal, field, spec, conversion in _parsed(text):
        budget.charge(1)
        if literal:
            yield own(literal), ""
        if field is None:
            continue
        if not _FIELD.fullmatch(field) or conversion is not None:
            raise SecurityError("a format's field is neither a position nor a name")
        yield _value(field or str(n_automatic), args, kwargs), _checked_spec(spec or "")
        n_automatic += not field


def printf_pieces(text: str, values: object, to_text: Callable[[object], str]) -> Iterator[str]:
    """The parts of a printf format: literal parts with their origin, and each value as its own text.

    A conversion other than `%s` is text of unknown origin.
    """
    conversions = list(_CONVERSION.finditer(str.__str__(text)))
    ends = [0, *(end for found in conversions for end in found.span()), len(text)]
    parts = cut_texts(text, [end - start for start, end in pairwise(ends)])
    n_used = 0
    for found, literal, conversion in zip(conversions, parts[::2], parts[1::2], strict=False):
        yield literal
        if found["letter"] == "%":
            yield conversion[-1:]
            continue
        value = values
        if found["name"] is not None and isinstance(values, Mapping):
            value = values[found["name"]]
        elif isinstance(values, tuple) and n_used < len(values):
            value = values[n_used]
        n_used += 1
        is_plain = found["letter"] == "s" and not found["options"]
        yield to_text(value) if is_plain else f"%{found['options']}{found['letter']}" % (value,)
    yield parts[-1]


def _parsed(text: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(Formatter().parse(str.__str__(text)))
    except ValueError as error:
        raise TemplateRuntimeError("a format that cannot be read") from error


def _value(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    try:
        return args[int(name)] if name.isdecimal() else kwargs[name]
    except LookupError as error:
        raise TemplateRuntimeError("a format has a field without a value") from error


def _checked_spec(spec: str) -> str:
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise SecurityError("a chat template may not use this format specification")
    if any(len(digits or "") > 3 or int(digits or 0) > MAX_WIDTH for digits in match.group("width", "precision")):
        raise BudgetExceeded(f"a field wider than {MAX_WIDTH} in a format")
    return spec
