"""When an engine process is started again, and when it is given up. The clock is the test's."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import cast
from unittest import mock

import pytest

from imp_service.front.supervision.parent import Starter
from imp_service.front.supervision.restarts import FINAL, MOST_DEATHS, WINDOW_SECONDS, Restarts
from imp_service.telemetry.log import Log

UNIT = Path(__file__).resolve().parents[3] / "conf" / "systemd" / "imp.service"

DELAYS = [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_iso_7_a_restart_is_at_once_then_later_and_later_and_then_never() -> None:
    restarts = Restarts(Clock())
    assert [restarts.died() for _ in range(MOST_DEATHS)] == pytest.approx(DELAYS)
    assert restarts.died() is None


def test_iso_7_a_token_makes_deaths_before_it_count_no_more() -> None:
    restarts = Restarts(Clock())
    for _ in range(100):
        assert [restarts.died() for _ in range(MOST_DEATHS)] == pytest.approx(DELAYS)
        restarts.forget()


def test_iso_7_deaths_count_for_ten_minutes() -> None:
    clock = Clock()
    restarts = Restarts(clock)
    for _ in range(100):
        clock.now += WINDOW_SECONDS / MOST_DEATHS + 1
        assert isinstance(restarts.died(), float)
    clock = Clock()
    restarts = Restarts(clock)
    found = []
    for _ in range(MOST_DEATHS + 1):
        clock.now += WINDOW_SECONDS / MOST_DEATHS - 1
        found.append(restarts.died())
    assert found[-1] is None and None not in found[:-1]


def test_y26_refused_starts_are_tried_again_for_ever_and_count_as_no_deaths() -> None:
    restarts = Restarts(Clock())
    assert [restarts.refused() for _ in range(10)] == pytest.approx([*DELAYS[1:], 10.0, 10.0, 10.0])
    assert {restarts.refused() for _ in range(2000)} == {10.0}  # no power overflows
    assert restarts.died() == 0.0
    restarts.started()
    assert restarts.refused() == pytest.approx(0.1)


def test_iso_11_the_pause_of_a_parent_doubles_up_to_ten_minutes_however_often_it_is_refused() -> None:
    starter = Starter(lambda *_: [], cast(Log, mock.Mock()))
    found = []
    for n in range(1100):
        starter._hears(mock.Mock(), {"refused": "no process", "is_final": False})
        if n in (0, 1, 2, 6, 1099):
            found.append(starter._paused_until - time.monotonic())
    assert [round(seconds, -1) for seconds in found] == [10, 20, 40, 600, 600]
    assert starter._paused_until < math.inf


def test_iso_7_systemd_gives_up_after_the_statuses_after_which_a_front_does() -> None:
    (line,) = (line for line in UNIT.read_text().splitlines() if line.startswith("RestartPreventExitStatus="))
    assert sorted(FINAL) == [int(word) for word in line.partition("=")[2].split()]
