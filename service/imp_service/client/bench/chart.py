"""A line chart as inline SVG without script or external files. The page's style sets its colours."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from .axis import Axis

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 96, 16, 44
LABEL_GAP = 15.0  # between two names at the end of their lines


@dataclass(frozen=True, slots=True)
class Series:
    """A line: one value for each position, NaN where there is none, with the least and the most around it."""

    name: str
    values: tuple[float, ...]
    ranges: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """The frame of a chart. `title` is for screen readers; `text` formats a value of the axis."""

    title: str
    x_title: str
    x_labels: tuple[str, ...]
    axis: Axis
    text: Callable[[float], str]

    def svg(self, series: Sequence[Series]) -> str:
        lines = [part for number, one in enumerate(series, 1) for part in self._line(f"s{number}", one)]
        head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">'
        return "\n".join([head, *self._grid(), *lines, *self._names(series), "</svg>"])

    def _grid(self) -> list[str]:
        parts = []
        for tick in self.axis.ticks:
            y = self._y(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(_text(LEFT - 8, y + 4, self.text(tick), anchor="end"))
        parts += [_text(self._x(i), HEIGHT - BOTTOM + 18, label) for i, label in enumerate(self.x_labels)]
        return [*parts, _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, self.x_title)]

    def _line(self, style: str, series: Series) -> list[str]:
        measured = enumerate(zip(series.values, self.x_labels, strict=True))
        points = [(self._x(i), self._y(v), v, label) for i, (v, label) in measured if not math.isnan(v)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, *_ in points)
        parts = [f'<polyline class="{style}" points="{path}"/>']
        for i, (low, high) in enumerate(series.ranges):
            place = f'x1="{self._x(i):.1f}" x2="{self._x(i):.1f}" y1="{self._y(low):.1f}" y2="{self._y(high):.1f}"'
            parts.append(f'<line class="{style}" {place}/>')
        for x, y, value, label in points:
            title = escape(f"{series.name}, {label}: {self.text(value)}")
            parts.append(f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{title}</title></circle>')
        return parts

    def _names(self, series: Sequence[Series]) -> list[str]:
        """Each name at the end of its line, pushed apart where the lines end together."""
        ends = [(self._y(one.values[-1]), f"name s{number}", one.name) for number, one in enumerate(series, 1)]
        parts, free = [], -math.inf
        for y, style, name in sorted(end for end in ends if not math.isnan(end[0])):
            free = max(y, free + LABEL_GAP)
            parts.append(_text(WIDTH - RIGHT + 10, free + 4, name, style=style, anchor="start"))
        return parts

    def _x(self, i: int) -> float:
        """Positions have equal distances, since the ladder's levels are usually powers."""
        return LEFT + (WIDTH - RIGHT - LEFT) * ((i + 0.5) / len(self.x_labels))

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * self.axis.place(value)


def _text(x: float, y: float, text: str, *, style: str = "tick", anchor: str = "middle") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
