"""Selects the tests of a quick run, which is a plain `pytest`; `pytest --all` runs all tests.

A quick run tests every row of the contracts. Four marks name what it leaves out:

`sweep`: a quick run takes a few cases of this test, which together have each value of each parameter. Arguments
restrict the parameters that count: a name, or several names whose combinations count, as in "kernel,weight". `quick=`
is a function of the parameters that chooses the cases instead.
`few`: a quick run takes as many cases of this test as the argument says, spread evenly.
`long`: a quick run leaves this test out. Another test covers the same rows in less time.
`timing`: the same, for a test that compares measured times, which other work on the machine disturbs.

`pytest --long` also runs the long tests. `pytest --rest` runs what a quick run leaves out. It also runs again the tests
that repeat less in a quick run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import hypothesis
import pytest

Repeats = Callable[[int], int]
Value = tuple[str, tuple[str, ...]]


def left_out(items: Iterable[pytest.Item], *, takes_long: bool = False) -> set[pytest.Item]:
    """Returns the tests that `--all` adds."""
    of_one_test: dict[str, list[pytest.Item]] = defaultdict(list)
    found: set[pytest.Item] = set()
    for item in items:
        if item.get_closest_marker("timing") or (item.get_closest_marker("long") and not takes_long):
            found.add(item)
        elif item.get_closest_marker("sweep") or item.get_closest_marker("few"):
            of_one_test[item.nodeid.partition("[")[0]].append(item)
    for cases in of_one_test.values():
        found |= set(cases) - set(quick_cases(cases))
    return found


def repeats_less(item: pytest.Item) -> bool:
    """Returns whether a quick run makes fewer repetitions of this test, or draws fewer examples for it."""
    return "repeats" in getattr(item, "fixturenames", ()) or hypothesis.is_hypothesis_test(getattr(item, "obj", None))


def quick_cases(cases: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Returns the cases of one test that a quick run takes: at least one."""
    if few := cases[0].get_closest_marker("few"):
        return [cases[place] for place in spread(len(cases), few.args[0])]
    marker = cases[0].get_closest_marker("sweep")
    assert marker is not None  # narrows
    if "quick" in marker.kwargs:
        chosen = [case for case in cases if marker.kwargs["quick"](**parameters_of(case))]
        return chosen or [cases[0]]
    return [cases[place] for place in cover([values_of(case, marker.args) for case in cases])]


def parameters_of(case: pytest.Item) -> dict[str, object]:
    call = getattr(case, "callspec", None)
    return {} if call is None else call.params


def values_of(case: pytest.Item, counting: Iterable[str]) -> set[Value]:
    """Returns the values of a case's counting parameters, as text, because not every value is hashable."""
    parameters = parameters_of(case)
    return {(names, tuple(repr(parameters[name]) for name in names.split(","))) for names in counting or parameters}


def spread(n_cases: int, n_wanted: int) -> list[int]:
    """Returns the indices of that many cases, or of all: the first, the last and others at equal distances."""
    n = min(n_cases, n_wanted)
    return sorted({round(place * (n_cases - 1) / max(n - 1, 1)) for place in range(n)})


def cover(cases: Sequence[set[Value]]) -> list[int]:
    """Returns the indices of a few cases that together have all values (greedy set cover)."""
    missing = set[Value]().union(*cases)
    chosen: list[int] = []
    while missing or not chosen:
        best = max(range(len(cases)), key=lambda place: (len(cases[place] & missing), -place))
        chosen.append(best)
        missing -= cases[best]
    return chosen
