"""The measure of growth finds work that is not linear, and repeats a measurement that was disturbed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.run import growth as module
from support.run.growth import ATTEMPTS, LINEAR, SCALE, growth


class Work:
    """Work that takes `n ** power` milliseconds on a clock of its own; the first large inputs may take longer."""

    def __init__(self, power: int, n_disturbed: int = 0) -> None:
        self.now = 0.0  # ms
        self.n_large = 0
        self._power = power
        self._n_disturbed = n_disturbed

    def __call__(self, n: int) -> None:
        self.now += n**self._power
        if n >= SCALE:
            self.n_large += 1
            self.now += 50 * n if self.n_large <= self._n_disturbed else 0


@pytest.mark.parametrize(
    ("work", "expected", "n_attempts"),
    [
        (Work(1), SCALE, 1),
        (Work(2), SCALE**2, ATTEMPTS),
        (Work(1, n_disturbed=ATTEMPTS - 1), SCALE, ATTEMPTS),
        (Work(4), SCALE**4, 1),  # takes 10 s
    ],
    ids=["linear", "quadratic", "disturbed", "long"],
)
def test_hon_1_quadratic_work_is_found(
    work: Work, expected: float, n_attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(thread_time=lambda: work.now / 1000))
    assert round(growth(work, 1)) == expected
    assert work.n_large == n_attempts
    assert SCALE < LINEAR < SCALE**2
