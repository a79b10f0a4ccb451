"""The cases that prove kernels outside the matrix list: correct kernels pass, wrong ones fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpu_check.op_cases import OPS, Asked, part, same, worst
from imp_service import _core
from support.kernels.devices import GPU_KINDS

each_kind = pytest.mark.parametrize("kind", GPU_KINDS)


@pytest.mark.few(3)
@each_kind
@pytest.mark.parametrize("name", OPS)
def test_krn_3_every_op_is_near_float64(kind: str, name: str) -> None:
    errors = OPS[name].errors(Asked(kind, is_small=True, seed=4))
    assert errors
    assert {asked: error for asked, error in errors.items() if error > 1} == {}


# Only the host starts these: they are copies.
COPIES = {"copy_block", "read_row"}


@pytest.mark.long
@each_kind
def test_hon_2_the_cases_begin_every_op_that_there_is(kind: str) -> None:
    asked = Asked(kind, is_small=True)
    before = asked.device.launches()
    for op in OPS.values():
        op.errors(asked)
    idle = {name for name, count in asked.device.launches().items() if count == before[name]}
    assert idle - {row["name"] for row in _core.kernels(kind)} <= COPIES


class Off:
    """A device whose results are all off by a thousandth."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        def op(*given: Any, **named: Any) -> Any:
            found = getattr(self._device, name)(*given, **named)
            shift = np.float32(1.001)
            return tuple(each * shift for each in found) if isinstance(found, tuple) else found * shift

        return op


@pytest.mark.parametrize("name", ["norm", "rope", "embedding", "elementwise"])
def test_krn_3_control_an_op_that_is_off_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(GPU_KINDS[0], is_small=True)
    right = asked.device
    monkeypatch.setattr(Asked, "device", Off(right))
    errors = OPS[name].errors(asked)
    assert {key for key, error in errors.items() if error <= 1} <= {
        "rows for a product"
    }  # both sides are off by the same factor


def test_what_is_no_number_is_infinitely_far() -> None:
    exact = np.array([1.0, 0.0])
    assert part(np.array([1.5, 0.0]), exact, np.array([1.0, 0.0])) == 0.5
    assert part(np.array([1.0, 0.1]), exact, np.array([1.0, 0.0])) == np.inf
    assert part(np.array([np.nan, 0.0]), exact, np.array([1.0, 1.0])) == np.inf
    assert same(exact, exact.copy()) == 0
    assert same(exact, -exact) == np.inf
    assert worst([("a", 0.5), ("b", 0.0), ("a", 0.7)]) == {"a": 0.7, "b": 0.0}
