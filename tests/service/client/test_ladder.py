"""The arithmetic of the load test: percentiles, times between tokens, the order of runs, the axes of the charts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imp_service.client.bench import LadderPlan, Percentiles
from imp_service.client.bench.axis import linear_axis, log_axis
from imp_service.client.bench.level_table import duration_text
from imp_service.client.bench.measure import LevelRun, RequestResult


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_percentiles_are_measured_values(values):
    """NumPy's inverted_cdf is the definition: the least value that at least this share does not exceed."""
    found = Percentiles.of(values)
    expected = np.quantile(values, [0.5, 0.9, 0.99], method="inverted_cdf")
    assert [found.p50, found.p90, found.p99] == expected.tolist()


def test_percentiles_of_nothing_are_none():
    found = Percentiles.of([])
    assert (math.isnan(found.p50), math.isnan(found.p99), found.n) == (True, True, 0)


def test_tokens_of_one_message_share_the_wait_for_it():
    result = RequestResult(10.0, arrivals=[(10.5, 1), (11.0, 2), (11.25, 1)], ended_at=11.5)
    assert result.first_token_seconds == 0.5
    assert result.inter_token_seconds() == [0.25, 0.25, 0.25]
    other = RequestResult(9.5, arrivals=[(10.0, 6)], ended_at=10.5, failure="SLOW_CLIENT")
    run = LevelRun(2, [result, other])
    assert (run.seconds, run.tokens_per_s, dict(run.failures)) == (2.0, 5.0, {"SLOW_CLIENT": 1})


def test_repetitions_go_up_and_down():
    plan = LadderPlan(levels=(1, 4, 16), reps=3)
    assert [level for _, level in plan.order()] == [1, 4, 16, 16, 4, 1, 1, 4, 16]


@pytest.mark.parametrize(
    ("values", "top", "step"), [([9.0], 10, 2), ([1234.0], 1500, 500), ([0.0], 1, 0.2), ([], 1, 0.2)]
)
def test_a_linear_axis_begins_at_zero_and_ends_at_a_round_value(values, top, step):
    axis = linear_axis(values)
    assert (axis.place(0), axis.high) == (0, pytest.approx(top))
    assert axis.ticks[1] == pytest.approx(step)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20))
def test_an_axis_holds_its_values_in_order(values):
    for axis in (linear_axis(values), log_axis(values)):
        places = [axis.place(value) for value in sorted(values)]
        assert places == sorted(places)
        assert places[0] >= -1e-9 and places[-1] <= 1 + 1e-9
        assert 2 <= len(axis.ticks) <= 12


def test_a_logarithmic_axis_puts_equal_ratios_at_equal_distances():
    axis = log_axis([0.002, 0.3])
    assert axis.ticks == pytest.approx((0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5))
    assert axis.place(0.02) - axis.place(0.01) == pytest.approx(axis.place(0.2) - axis.place(0.1))


def test_times_have_three_digits_and_a_unit():
    assert [duration_text(t) for t in (1.234, 0.0123, 0.5, 4.2e-5, 123.4, math.nan)] == [
        "1.23 s", "12.3 ms", "500 ms", "42 µs", "123 s", "–",
    ]  # fmt: skip
