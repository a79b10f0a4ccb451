"""The operators, string methods and filters of chat templates. They have limits, and track which text is trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jinja2 import Undefined, filters, pass_context
from jinja2.exceptions import FilterArgumentError, SecurityError, TemplateRuntimeError
from jinja2.runtime import Context
from markupsafe import escape

from imp_service.text.errors import FieldInvalid
from imp_service.text.strict_json import parse_strict_json
from imp_service.text.templates.budget import Budget, BudgetExceeded
from imp_service.text.templates.format import format_pieces, printf_pieces
from imp_service.text.templates.json_arguments import as_operand
from imp_service.text.templates.template_text import (
    TemplateText,
    cut_at_separators,
    cut_text,
    cut_texts,
    is_trusted,
    join_texts,
    repeat_text,
    runs_of,
    strip_text,
)

# Integers of a template are counters and dates.
_MAX_INTEGER_BITS = 4_096
_MAX_INDENT = 16
_MAX_JSON_DEPTH = 32
# A width or precision in a format; a star takes it from an argument.
_WIDE_FORMAT = re.compile(r"%[^a-zA-Z%]*(?:\*|\d{4})")


def budget_of(context: Context) -> Budget:
    """The rendering's budget."""
    budget = getattr(context, "budget", None)
    assert isinstance(budget, Budget)
    return budget


def printed(budget: Budget, value: object) -> TemplateText:
    """A value as text: only plain data has one."""
    if isinstance(value, TemplateText):
        return value
    if isinstance(value, str):
        return TemplateText.untrusted(str(value))
    if isinstance(value, (list, tuple, dict)):
        budget.container(value)
    elif value is not None and not isinstance(value, (bool, int, float, Undefined)):
        raise SecurityError(f"a {type(value).__name__} cannot be converted to text")
    text = str(value)
    budget.operand(len(text))
    return TemplateText.untrusted(text)


def add(budget: Budget, left: Any, right: Any) -> object:
    """`+` of numbers, strings and lists. The arguments of a call act as a string if the other operand is a string."""
    left, right = as_operand(left, right), as_operand(right, left)
    if isinstance(left, str) and isinstance(right, str):
        budget.operand(len(left) + len(right))
        return join_texts((left, right))
    result = left + right
    budget.made(result)
    return result


def multiply(budget: Budget, left: Any, right: Any) -> object:
    """`*`: numbers, and repetition."""
    for sequence, n in ((left, right), (right, left)):
        if isinstance(sequence, (str, list, tuple)) and isinstance(n, int):
            budget.operand(len(sequence) * max(n, 0))
            if isinstance(sequence, str):
                return repeat_text(sequence, n)
            result = sequence * n
            budget.container(result)
            return result
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    return left * right


def power(_budget: Budget, left: Any, right: Any) -> object:
    """`**`: numbers."""
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * abs(right))
    return left**right


def remainder(budget: Budget, left: Any, right: Any) -> object:
    """`%`: numbers, and printf formats without wide fields."""
    if not isinstance(left, str):
        return left % right
    if _WIDE_FORMAT.search(left):
        raise BudgetExceeded("a wide field in a format")
    values = right if isinstance(right, tuple) else tuple(right.values()) if isinstance(right, dict) else (right,)
    longest = max((len(printed(budget, value)) for value in values), default=0)
    budget.operand(len(left) + left.count("%") * longest)
    result: str = str.__mod__(left, right)
    pieces = join_texts(printf_pieces(left, right, lambda value: printed(budget, value)))
    # What the pieces do not cover has lost its origin.
    return pieces if pieces == result else _of_sources(result, left, *values)


OPERATORS: dict[str, Callable[[Budget, Any, Any], object]] = {"+": add, "*": multiply, "**": power, "%": remainder}


def call_string_method(budget: Budget, text: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """A method of a string; the caller has checked that it is one of `STRING_METHODS`."""
    match name:
        case "strip" | "lstrip" | "rstrip":
            return strip_text(text, *(args or (None,)), left=name != "rstrip", right=name != "lstrip")
        case "join":
            return _join(budget, text, *args)
        case "replace":
            return replace(budget, text, *args)
        case "format":
            return _format(budget, text, args, kwargs)
    return _plain_method(budget, text, name, args, kwargs)


def _plain_method(budget: Budget, text: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """A method whose result is never longer than the text."""
    result = getattr(str, name)(text, *args, **kwargs)
    if isinstance(result, str):
        budget.operand(len(result))
        if name == "removeprefix":
            return cut_text(text, len(text) - len(result), len(text))
        if name == "removesuffix":
            return cut_text(text, 0, len(result))
        return _of_sources(result, text, *args)
    if isinstance(result, (list, tuple)):
        budget.charge(len(result))
        return type(result)(_parts(result, text, name, args, kwargs))
    return result


def _parts(
    parts: Sequence[str], text: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Sequence[TemplateText]:
    """The parts into which a method has split the text, each with its origin where their places are known."""
    separator = kwargs.get("sep", args[0] if args else None)
    if name in ("partition", "rpartition"):
        return cut_texts(text, map(len, parts))
    if name in ("split", "rsplit") and isinstance(separator, str):
        return cut_at_separators(text, parts, separator)[::2]
    return [_of_sources(part, text) for part in parts]


# Left out: format_map, which reaches attributes; center, zfill and the like, which make text of any width.
STRING_METHODS = frozenset(
    {
        *("capitalize", "casefold", "lower", "swapcase", "title", "upper"),
        *("count", "endswith", "find", "index", "rfind", "rindex", "startswith"),
        *("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric"),
        *("isprintable", "isspace", "istitle", "isupper"),
        *("lstrip", "rstrip", "strip", "removeprefix", "removesuffix", "replace"),
        *("format", "join", "partition", "rpartition", "rsplit", "split", "splitlines"),
    }
)


def replace(budget: Budget, text: str, old: str, new: str, count: int = -1) -> TemplateText:
    """`replace`, its result measured before it is made."""
    n_found = text.count(old) if count < 0 else min(text.count(old), count)
    budget.operand(len(text) + n_found * max(len(new) - len(old), 0))
    if not old or all(not trusted for _, trusted in runs_of(text)):
        return _of_sources(str.replace(text, old, new, count), text, new)
    budget.charge(n_found)
    pieces: list[str] = [*cut_at_separators(text, str.split(text, old, count), old)]
    # What takes the place of a caller's text is the caller's.
    untrusted = TemplateText.untrusted(new)
    pieces[1::2] = [new if is_trusted(piece) else untrusted for piece in pieces[1::2]]
    return join_texts(pieces)


def _format(budget: Budget, text: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TemplateText:
    pieces: list[TemplateText] = []
    for value, spec in format_pieces(budget, text, args, kwargs):
        piece = printed(budget, value)
        if spec:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            try:
                piece = _of_sources(format(value if is_number else str.__str__(piece), spec), value)
            except ValueError as error:
                raise TemplateRuntimeError("a format's specification does not fit its value") from error
        budget.operand(len(piece))
        pieces.append(piece)
    budget.operand(sum(map(len, pieces)))
    return join_texts(pieces)


def _join(budget: Budget, separator: str, items: Iterable[Any]) -> TemplateText:
    texts: list[str] = []
    for item in budget.count(items):
        if texts and separator:
            texts.append(separator)
        texts.append(printed(budget, item))
    budget.operand(sum(map(len, texts)))
    return join_texts(texts)


def _of_sources(result: str, *sources: object) -> TemplateText:
    """Trusted only where every string that went in was."""
    trusted = all(is_trusted(source) for source in sources if isinstance(source, str))
    trusted = trusted and all(isinstance(source, (str, int, float, type(None))) for source in sources)
    return TemplateText.trusted(result) if trusted else TemplateText.untrusted(result)


def _check_bits(n_bits: int) -> None:
    if n_bits > _MAX_INTEGER_BITS:
        raise BudgetExceeded(f"an integer of {n_bits} bits, limit {_MAX_INTEGER_BITS}")


def _filter_join(budget: Budget, context: Context, value: Any, d: str = "", attribute: Any = None) -> object:
    if attribute is not None:
        value = filters.sync_do_map(context, value, attribute=attribute)
    return _join(budget, printed(budget, d), value)


def _filter_replace(budget: Budget, _: Context, s: Any, old: str, new: str, count: int | None = None) -> object:
    return replace(budget, printed(budget, s), str(old), printed(budget, new), -1 if count is None else count)


def _filter_trim(budget: Budget, _: Context, value: Any, chars: str | None = None) -> object:
    return strip_text(printed(budget, value), chars, left=True, right=True)


def _filter_string(budget: Budget, _: Context, value: Any) -> object:
    return printed(budget, value)


def _filter_format(budget: Budget, _: Context, value: str, *args: Any, **kwargs: Any) -> object:
    if kwargs:
        raise FilterArgumentError("named arguments of a format")
    return remainder(budget, printed(budget, value), args)


def _filter_escape(budget: Budget, _: Context, value: Any) -> object:
    text = printed(budget, value)
    budget.operand(5 * len(text))
    return str.__str__(escape(str.__str__(text)))


def _filter_indent(
    budget: Budget, _: Context, s: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> object:
    text = printed(budget, s)
    margin = width if isinstance(width, str) else " " * min(max(width, 0), 256)
    budget.operand(len(text) + (text.count("\n") + 1) * len(margin))
    pieces: list[str] = []
    for i, line in enumerate(cut_texts(text, [len(line) + 1 for line in text.split("\n")])):
        is_indented = (line.strip("\n") or blank) if i else first
        pieces += [margin, line] if is_indented else [line]
    return join_texts(pieces)


def _filter_tojson(  # noqa: PLR0917 - templates may pass them by position
    budget: Budget,
    _: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> object:
    """JSON as chat templates expect it: not escaped for HTML, and not ASCII only."""
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise BudgetExceeded(f"an indent of {indent}, limit {_MAX_INDENT}")
    if isinstance(value, (list, tuple, dict)):
        budget.container(value)
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys, default=_no_json
    )
    pieces: list[str] = []
    n_bytes = 0
    for piece in encoder.iterencode(value):
        n_bytes += len(piece)
        if n_bytes > budget.limits.template_operand_bytes:
            budget.operand(n_bytes)
        pieces.append(piece)
    budget.operand(n_bytes)
    return "".join(pieces)


def _filter_from_json(budget: Budget, _: Context, value: Any) -> object:
    """JSON text as data. Its strings count as not written by the template."""
    if not isinstance(value, str):
        raise TemplateRuntimeError("from_json takes a string")
    text = str.__str__(value)
    limits = budget.limits
    try:
        data = parse_strict_json(text, "from_json", max_bytes=limits.template_operand_bytes, max_depth=_MAX_JSON_DEPTH)
    except FieldInvalid as error:
        raise TemplateRuntimeError("from_json: not JSON that a template may read") from error
    budget.operand(len(text))
    budget.container(data)
    return data


def _no_json(value: object) -> object:
    raise TypeError(f"a {type(value).__name__} cannot be converted to JSON")


def _own(filter_: Callable[..., object]) -> Callable[..., object]:
    """Returns a filter of imp that gets the budget."""

    @pass_context
    def bounded(context: Context, value: Any, *args: Any, **kwargs: Any) -> object:
        budget = budget_of(context)
        budget.walk(value)
        result = filter_(budget, context, value, *args, **kwargs)
        return printed(budget, result) if isinstance(result, str) else result

    return bounded


def _library(filter_: Callable[..., Any]) -> Callable[..., object]:
    """A filter of the library's that makes nothing larger than what goes in."""
    takes_context = getattr(filter_, "jinja_pass_arg", None)
    takes = takes_context.name if takes_context is not None else ""

    @pass_context
    def bounded(context: Context, value: Any, *args: Any, **kwargs: Any) -> object:
        budget = budget_of(context)
        budget.walk(value)
        first = {"context": (context,), "environment": (context.environment,), "eval_context": (context.eval_ctx,)}
        result = filter_(*first.get(takes, ()), value, *args, **kwargs)
        if hasattr(result, "__next__"):
            return budget.count(result)
        if result is value:
            return result
        budget.made(result)
        if isinstance(result, str) and not isinstance(result, TemplateText):
            return _of_sources(str(result), value, *args)
        return result

    return bounded


_LIBRARY_FILTERS = (
    "abs capitalize count d default dictsort first float groupby int items last length list lower map max min reject "
    "rejectattr reverse round select selectattr sort sum title truncate unique upper wordcount"
)
_OWN_FILTERS: dict[str, Callable[..., object]] = {
    "e": _filter_escape,
    "escape": _filter_escape,
    "format": _filter_format,
    "from_json": _filter_from_json,
    "indent": _filter_indent,
    "join": _filter_join,
    "replace": _filter_replace,
    "safe": _filter_string,
    "string": _filter_string,
    "tojson": _filter_tojson,
    "trim": _filter_trim,
}

# Left out: attr reaches past the sandbox's look-up; batch, slice, center make output of any size; random is random.
FILTERS: dict[str, Callable[..., object]] = {
    **{name: _library(filters.FILTERS[name]) for name in _LIBRARY_FILTERS.split()},
    **{name: _own(filter_) for name, filter_ in _OWN_FILTERS.items()},
}
