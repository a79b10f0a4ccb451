"""The sandbox of chat templates: with limits of steps, sizes and time, and without access to Python objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import BuiltinMethodType
from typing import Any

from jinja2 import Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.ext import LoopControlExtension
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace

from imp_service.text.templates.budget import BudgetExceeded
from imp_service.text.templates.guard import GenerationTag, guard
from imp_service.text.templates.operations import (
    FILTERS,
    OPERATORS,
    STRING_METHODS,
    budget_of,
    call_string_method,
    printed,
)
from imp_service.text.templates.template_text import TemplateText, join_printed, join_texts

# The methods that a template may call, by the type of the value.
_METHODS: tuple[tuple[type, frozenset[str]], ...] = (
    (str, STRING_METHODS),
    (dict, frozenset({"get", "items", "keys", "values", "copy"})),
    (list, frozenset({"count", "index", "copy"})),
    (tuple, frozenset({"count", "index"})),
    (LoopContext, frozenset({"cycle", "changed"})),
    (Cycler, frozenset({"next", "reset"})),
)
_MAX_RANGE = 100_000
_DATE_WIDTH = re.compile(r"%[-_0^#+]*\d")


# The function with which templates write the date.
DATE = "strftime_now"


def dates(now: Callable[[], datetime]) -> Callable[[str], str]:
    """A function that writes a date in the form that it gets."""

    def strftime_now(form: str) -> str:
        if _DATE_WIDTH.search(form):
            raise BudgetExceeded("a wide field in a date")
        return now().strftime(form)

    return strftime_now


class RaisedByTemplate(TemplateRuntimeError):
    """The template called raise_exception."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles one template, and keeps its literals. Immutable after that; renders on any thread."""

    # All of them: those that are not intercepted would be computed while compiling.
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, GenerationTag],
            finalize=_finalize,
            cache_size=0,
        )
        self.filters = dict(FILTERS)
        # Filters and tests that do not exist: a rendering that reaches one fails.
        self.unknown_names: list[str] = []

        self.globals = {
            "range": _bounded_range,
            "dict": dict,
            "cycler": Cycler,
            "joiner": Joiner,
            "namespace": Namespace,
            "raise_exception": _raise_exception,
            DATE: dates(now),
        }

    # Generated code calls these methods; jinja2 defines their names.

    def concat(self, pieces: Iterable[str]) -> TemplateText:
        """The text of a macro or block."""
        return join_printed(pieces)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        bounded = OPERATORS.get(operator)
        if bounded is None:
            return super().call_binop(context, operator, left, right)
        return bounded(budget_of(context), left, right)

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = budget_of(__context)
        budget.charge(1)
        if isinstance(__obj, Macro):
            budget.enter_macro()
            try:
                return printed(budget, super().call(__context, __obj, *args, **kwargs))
            finally:
                budget.leave_macro()
        if isinstance(__obj, BuiltinMethodType) and isinstance(__obj.__self__, str):
            # jinja2 passes these arguments to functions that take the context.
            kwargs = {name: value for name, value in kwargs.items() if name not in ("_loop_vars", "_block_vars")}
            return call_string_method(budget, __obj.__self__, __obj.__name__, args, kwargs)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str):
            return printed(budget, result)
        budget.made(result)
        return result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        # A loop's previtem and nextitem may be undefined, and what is undefined is callable.
        if isinstance(obj, (Namespace, Undefined)) or isinstance(value, Undefined):
            return True
        if not callable(value):
            return isinstance(obj, (LoopContext, Macro, Cycler))
        return any(isinstance(obj, kind) and attr in names for kind, names in _METHODS)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        raise SecurityError(f"access to attribute {attribute!r} of a {type(obj).__name__}")

    def wrap_str_format(self, value: Any) -> None:
        """The library's own format reaches attributes: call() runs a bounded one in its place."""
        return

    # Called by the nodes that `guard` puts in.

    def counted(self, context: Context, items: Any) -> Iterator[object]:
        """A loop's items, charged one by one."""
        return budget_of(context).count(items)

    def joined(self, context: Context, *values: Any) -> TemplateText:
        """`a ~ b`."""
        budget = budget_of(context)
        texts = [printed(budget, value) for value in values]
        budget.operand(sum(map(len, texts)))
        return join_texts(texts)

    def measured(self, context: Context, value: object) -> object:
        """A list or mapping that the template wrote out."""
        budget_of(context).container(value)
        return value

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        return guard(tree, self.keep_literal, self._note_unknown)

    def _note_unknown(self, node: nodes.Filter | nodes.Test) -> None:
        what, known = ("filter", self.filters) if isinstance(node, nodes.Filter) else ("test", self.tests)
        if node.name not in known:
            self.unknown_names.append(f"no {what} named {node.name!r} (line {node.lineno})")

    def keep_literal(self, text: str) -> nodes.Expr:
        """A node for text that the template wrote."""
        name = f"literal_{len(vars(self))}"
        setattr(self, name, TemplateText.trusted(text))
        return nodes.EnvironmentAttribute(name)


@pass_context
def _finalize(context: Context, value: object) -> TemplateText:
    """Every value on its way to the output."""
    budget = budget_of(context)
    text = printed(budget, value)
    budget.print_text(len(text))
    return text


def _bounded_range(*args: int) -> range:
    items = range(*args)
    if len(items) > _MAX_RANGE:
        raise BudgetExceeded(f"a range of {len(items)}")
    return items


def _raise_exception(message: object = "") -> None:
    if not isinstance(message, str):
        raise SecurityError("raise_exception takes a string")
    raise RaisedByTemplate(str.__str__(message))
