"""A pytest plugin that collects as if a real GPU were required, and reports uses of the emulated one.

The emulated GPU takes the place of the real one, so this works on any machine. Use it with IMP_REQUIRE_GPU=1 and
--collect-only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from imp_service import _core
from imp_service import _testing as core

EMULATED = "cuda_emulated"
made: list[str] = []


def standing_in(function: Any) -> Any:
    """Wraps a function that takes a kind of device: uses the emulated GPU for "cuda", records direct uses of it."""

    def call(*positional: Any, **named: Any) -> Any:
        kinds = [*positional[:1], named.get("kind")]
        if EMULATED in kinds:
            made.append(f"{function.__name__}({EMULATED!r})")
        replaced = [EMULATED if value == "cuda" else value for value in positional]
        return function(*replaced, **{name: EMULATED if value == "cuda" else value for name, value in named.items()})

    return call


core.Device = standing_in(core.Device)
core.gpu_kernels_here = standing_in(core.gpu_kernels_here)
_core.kernels = standing_in(_core.kernels)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    strays = [
        item.nodeid
        for item in items
        if (call := getattr(item, "callspec", None)) and EMULATED in map(str, leaves(list(call.params.values())))
    ]
    if strays or made:
        raise pytest.UsageError("on the emulated GPU: " + ", ".join([*made, *strays]))
