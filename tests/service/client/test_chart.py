"""The charts of a load test: values are at their axes' positions, inside the frame, and no name covers another."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from imp_service.client.bench.axis import linear_axis, log_axis
from imp_service.client.bench.chart import Chart, Series

LABELS = ("1", "4", "16", "64")
AXIS = linear_axis([100.0])
CHART = Chart("speed <a>", "streams", LABELS, AXIS, lambda value: f"{value:g} & more")
FAST = Series("fast", (20.0, 60.0, math.nan, 100.0), ((10.0, 30.0), (60.0, 60.0), (0.0, 80.0), (90.0, 100.0)))
SLOW = Series("slow", (20.0, 40.0, 50.0, 99.0))


def drawn(*series: Series, chart: Chart = CHART) -> ET.Element:
    return ET.fromstring(chart.svg(series))


def numbers(elements: list[ET.Element], *names: str) -> list[tuple[float, ...]]:
    return [tuple(float(element.attrib[name]) for name in names) for element in elements]


def texts(svg: ET.Element, style: str) -> list[ET.Element]:
    return [text for text in svg.findall("text") if text.attrib["class"].startswith(style)]


def test_positions_are_equally_far_apart_within_the_grid():
    svg = drawn(SLOW)
    (left, right), *_ = numbers(svg.findall("line[@class='grid']"), "x1", "x2")
    places = [x for x, _ in numbers(svg.findall("circle"), "cx", "cy")]
    width = (right - left) / len(LABELS)
    assert places == pytest.approx([left + width * (i + 0.5) for i in range(len(LABELS))])
    labels = [(text.text, float(text.attrib["x"])) for text in texts(svg, "tick") if text.text in LABELS]
    assert labels == list(zip(LABELS, places, strict=True))


def test_heights_follow_the_axis_from_its_line_at_zero_to_that_at_the_top():
    svg = drawn(SLOW)
    lines = numbers(svg.findall("line[@class='grid']"), "y1", "y2")
    assert len(lines) == len(AXIS.ticks) and all(one == other for one, other in lines)
    bottom, top = lines[0][0], lines[-1][0]
    assert 0 < top < bottom < float(svg.attrib["viewBox"].split()[3])
    heights = [y for _, y in numbers(svg.findall("circle"), "cx", "cy")]
    assert heights == pytest.approx([bottom + (top - bottom) * value / 100 for value in SLOW.values])


def test_the_line_goes_through_what_was_measured_and_the_bars_span_the_ranges():
    svg = drawn(FAST)
    circles = numbers(svg.findall("circle"), "cx", "cy")
    assert len(circles) == 3  # none without a measurement
    path = [tuple(map(float, point.split(","))) for point in svg.find("polyline").attrib["points"].split()]
    assert path == circles
    bars = numbers(svg.findall("line[@class='s1']"), "x1", "x2", "y1", "y2")
    assert [bar[2] - bar[3] for bar in bars] == pytest.approx([48.0, 0.0, 192.0, 24.0])
    assert all(x1 == x2 for x1, x2, *_ in bars) and [bars[i][0] for i in (0, 1, 3)] == [x for x, _ in circles]
    told = [circle.findtext("title") for circle in svg.findall("circle")]
    assert told == ["fast, 1: 20 & more", "fast, 4: 60 & more", "fast, 64: 100 & more"]


def test_names_stand_beside_the_ends_of_their_lines_and_do_not_cover_each_other():
    svg = drawn(FAST, SLOW, Series("absent", (1.0, 2.0, 3.0, math.nan)), Series("low", (0.0, 0.0, 0.0, 10.0)))
    names = {text.text: text for text in texts(svg, "name")}
    assert set(names) == {"fast", "slow", "low"}
    assert {name: text.attrib["class"] for name, text in names.items()} == {
        "fast": "name s1", "slow": "name s2", "low": "name s4",
    }  # fmt: skip
    width = float(svg.attrib["viewBox"].split()[2])
    rightmost = max(x for x, _ in numbers(svg.findall("circle"), "cx", "cy"))
    assert all(rightmost < x < width for (x,) in numbers(list(names.values()), "x"))
    heights = [float(names[name].attrib["y"]) for name in ("fast", "slow", "low")]
    assert all(lower - upper >= 15 for upper, lower in pairwise(heights))
    ends = [y for _, y in numbers(svg.findall("circle"), "cx", "cy")]
    assert abs(heights[0] - min(ends)) < 6 and abs(heights[2] - ends[-1]) < 6


def test_words_of_a_chart_are_text_and_no_markup():
    svg = drawn(SLOW)
    assert (svg.attrib["aria-label"], svg.attrib["role"]) == ("speed <a>", "img")
    shown = [text.text for text in texts(svg, "tick")]
    assert shown == [*(f"{tick:g} & more" for tick in AXIS.ticks), *LABELS, "streams"]
    anchors = [text.attrib["text-anchor"] for text in texts(svg, "tick")]
    assert anchors == ["end"] * len(AXIS.ticks) + ["middle"] * 5


def test_a_logarithmic_axis_of_many_decades_shows_powers_of_ten():
    axis = log_axis([0.003, 40.0])
    assert axis.ticks == pytest.approx((0.01, 0.1, 1.0, 10.0))
    assert (axis.low, axis.high, axis.place(axis.low), axis.place(axis.high)) == (0.002, 50.0, 0.0, 1.0)


@pytest.mark.parametrize("value", [0.02, 1.0, 5.0, 300.0])
def test_a_logarithmic_axis_of_one_value_has_a_length(value: float):
    axis = log_axis([value])
    assert axis.low < axis.high and 0 <= axis.place(value) <= 1


@pytest.mark.parametrize(
    ("top", "ticks"),
    [(5.0, 6), (10.0, 6), (10.1, 4), (20.0, 5), (25.0, 6), (99.0, 6), (0.3, 4), (1.0, 6)],
)
def test_a_linear_axis_has_few_lines_at_equal_distances(top: float, ticks: int):
    axis = linear_axis([top])
    assert len(axis.ticks) == ticks
    steps = [after - before for before, after in pairwise(axis.ticks)]
    assert steps == pytest.approx([steps[0]] * (ticks - 1))
    assert axis.ticks[0] == 0 and axis.ticks[-1] == axis.high
    assert top <= axis.high < top + steps[0]
