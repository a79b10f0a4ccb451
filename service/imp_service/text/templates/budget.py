"""The limits of one rendering of a chat template: its time, its iterations, and the sizes of its values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized

from jinja2.exceptions import TemplateRuntimeError

from imp_service.text.limits import TextLimits

# Bytes that all operators, filters and methods of one rendering may make together, and that it may print into
# variables and macros, in multiples of what a single one may make.
_WORK_OPERANDS = 256
_PRINTED_RENDERINGS = 3
# Bytes in one list or mapping, in multiples of what one string may have; a conversation is made of several strings.
_CONTAINER_OPERANDS = 8
_CONTAINER_VALUES = 1 << 18
# Reading the clock takes as long as an iteration.
_ITERATIONS_A_LOOK = 64


class BudgetExceeded(TemplateRuntimeError):
    """The rendering exceeds a limit."""


class Budget:
    """Belongs to one rendering. Every check raises `BudgetExceeded`."""

    def __init__(self, limits: TextLimits, clock: Callable[[], float] = time.thread_time) -> None:
        self.limits = limits
        # The processor time of this thread, so that a busy machine does not change the result.
        self._clock = clock
        self._deadline = clock() + limits.template_ms / 1000
        self._n_iterations = 0
        self._n_at_next_look = 0
        self._n_worked = 0
        self._n_printed = 0
        self._macro_depth = 0

    def charge(self, n_iterations: int) -> None:
        """Counts iterations of loops and inside filters."""
        self._n_iterations += n_iterations
        if self._n_iterations > self.limits.template_iterations:
            raise BudgetExceeded(f"more than {self.limits.template_iterations} iterations")
        if self._n_iterations >= self._n_at_next_look:
            self._n_at_next_look = self._n_iterations + _ITERATIONS_A_LOOK
            if self._clock() > self._deadline:
                raise BudgetExceeded(f"rendering takes more than {self.limits.template_ms} ms")

    def count(self, items: Iterable[object]) -> Iterator[object]:
        """The items, each counted as an iteration."""
        for item in items:
            self.charge(1)
            yield item

    def print_text(self, n_bytes: int) -> None:
        """Text that goes to the output, a macro's result or a block's variable."""
        self._n_printed += n_bytes
        if self._n_printed > _PRINTED_RENDERINGS * self.limits.render_bytes:
            raise BudgetExceeded(f"prints more than {_PRINTED_RENDERINGS * self.limits.render_bytes} bytes")

    def operand(self, n_bytes: int) -> None:
        """A string or sequence about to be made."""
        limit = self.limits.template_operand_bytes
        if n_bytes > limit:
            raise BudgetExceeded(f"a value of {n_bytes} bytes, limit {limit}")
        self._n_worked += n_bytes
        if self._n_worked > _WORK_OPERANDS * limit:
            raise BudgetExceeded(f"makes values of more than {_WORK_OPERANDS * limit} bytes in all")

    def container(self, value: object) -> None:
        """Checks the size of a list or mapping with everything in it. Shared parts count each time."""
        limit = _CONTAINER_OPERANDS * self.limits.template_operand_bytes
        n_bytes = n_values = 0
        waiting: list[object] = [value]
        while waiting:
            item = waiting.pop()
            n_values += 1
            if isinstance(item, str):
                n_bytes += len(item)
            elif isinstance(item, dict):
                waiting.extend(item.keys())
                waiting.extend(item.values())
            elif isinstance(item, (list, tuple)):
                waiting.extend(item)
            if n_bytes > limit or n_values + len(waiting) > _CONTAINER_VALUES:
                raise BudgetExceeded(f"a list or mapping of more than {limit} bytes or {_CONTAINER_VALUES} values")

    def made(self, value: object) -> None:
        """Checks a value that a call, filter or operator has made."""
        if isinstance(value, str):
            self.operand(len(value))
        elif isinstance(value, (list, tuple, dict)):
            self.container(value)

    def walk(self, value: object) -> None:
        """Counts the iterations of a filter over the value."""
        if isinstance(value, Sized) and not isinstance(value, str):
            self.charge(len(value))
        else:
            self.charge(1)

    def enter_macro(self) -> None:
        self._macro_depth += 1
        if self._macro_depth > self.limits.template_macro_depth:
            raise BudgetExceeded(f"macros nested more than {self.limits.template_macro_depth} deep")

    def leave_macro(self) -> None:
        self._macro_depth -= 1
