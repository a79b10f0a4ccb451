"""The budget of one rendering: a limit itself passes, and one more is refused, at once or in parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from imp_service.text.limits import TextLimits
from imp_service.text.templates.budget import Budget, BudgetExceeded

LIMITS = TextLimits(
    template_iterations=200, template_operand_bytes=10, template_macro_depth=2, template_ms=1500, render_bytes=7
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.n_looks = 0

    def __call__(self) -> float:
        self.n_looks += 1
        return self.now


def budget() -> Budget:
    return Budget(LIMITS, Clock())


SPENT: dict[str, tuple[Callable[[Budget], object], Callable[[Budget], object], str]] = {
    "iterations": (lambda b: b.charge(200), lambda b: b.charge(1), "more than 200 iterations"),
    "items": (lambda b: list(b.count(range(200))), lambda b: b.charge(1), "iterations"),
    "a walk over a list": (lambda b: b.walk([0] * 200), lambda b: b.walk(None), "iterations"),
    "walks over texts": (lambda b: [b.walk("text") for _ in range(200)], lambda b: b.walk("text"), "iterations"),
    "printed": (lambda b: [b.print_text(7) for _ in range(3)], lambda b: b.print_text(1), "prints more than 21 bytes"),
    "a text": (lambda b: b.operand(10), lambda b: b.operand(11), "a value of 11 bytes, limit 10"),
    "all texts": (lambda b: [b.operand(10) for _ in range(256)], lambda b: b.operand(1), "more than 2560 bytes in all"),
    "what a call made": (lambda b: b.made("x" * 10), lambda b: b.made("x" * 11), "a value of 11 bytes"),
    "a list": (lambda b: b.container(["x" * 40, "y" * 40]), lambda b: b.container(["x" * 81]), "more than 80 bytes"),
    "a list that was made": (lambda b: b.made(["x" * 80]), lambda b: b.made(("x" * 81,)), "more than 80 bytes"),
    "a mapping": (
        lambda b: b.container({"k" * 40: "v" * 40}),
        lambda b: b.container({"k" * 40: ["v" * 40, {"k": 1}]}),
        "more than 80 bytes",
    ),
    "values": (
        lambda b: b.container([0] * (2**18 - 1)),
        lambda b: b.container([[], [0] * (2**18 - 2)]),
        "or 262144 values",
    ),
    "macros": (lambda b: [b.enter_macro() for _ in range(2)], lambda b: b.enter_macro(), "nested more than 2 deep"),
}


@pytest.mark.parametrize("what", SPENT)
def test_t22_a_budget_ends_after_its_last(what: str) -> None:
    spend, more, said = SPENT[what]
    one = budget()
    spend(one)
    with pytest.raises(BudgetExceeded, match=said):
        more(one)


def test_t22_macros_one_after_the_other_are_not_nested() -> None:
    one = budget()
    for _ in range(9):
        one.enter_macro()
        one.enter_macro()
        one.leave_macro()
        one.leave_macro()


def test_t22_items_are_charged_as_they_are_taken() -> None:
    one = budget()
    items = one.count(range(10**9))
    assert [next(items) for _ in range(200)] == list(range(200))
    with pytest.raises(BudgetExceeded):
        next(items)


def test_t22_numbers_and_nothing_have_no_size() -> None:
    one = budget()
    for value in (10**30, 1.5, None, True):
        one.made(value)
    one.container([10**30, None, 1.5])


def test_t22_the_clock_is_looked_at_now_and_then_and_ends_a_rendering_after_its_time() -> None:
    clock = Clock()
    one = Budget(LIMITS, clock)
    clock.now += 1.5
    one.charge(1)
    n_looks = clock.n_looks
    one.charge(63)
    assert clock.n_looks == n_looks
    one.charge(1)
    assert clock.n_looks == n_looks + 1
    clock.now += 0.001
    with pytest.raises(BudgetExceeded, match="more than 1500 ms"):
        one.charge(64)
