"""Draws bars as an SVG file: the fraction of the machine's ceiling that each engine reaches in each case."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from compare.outcome import IMP, Outcome
from imp_service.client.bench.level_table import rate_text

# Colours for light and dark schemes that colour-blind readers can tell apart.
COLOURS = {IMP: "#1f5fbf", "openvino": "#7a2d8f", "transformers": "#5c8a3a"}
COLOURS |= dict.fromkeys(("llama.cpp", "llama-bench", "llama-server"), "#d9822b")
WIDTH, LEFT, RIGHT, TOP = 940, 270, 200, 70
VARIANT = "#7f9fd9"
BAR, GAP = 14, 12


def chart(model: str, outcomes: Sequence[Outcome]) -> str:
    """Draws a group of bars for each case, with the extremes as whiskers and tokens per second at the end."""
    parts, y = [], TOP
    for outcome in outcomes:
        parts.append(text(LEFT - 10, y + len(outcome.engines) * BAR / 2 + 4, outcome.case.label, "end"))
        for name in outcome.engines:
            parts += bar(outcome, name, y)
            y += BAR
        y += GAP
    frame = [text(LEFT, 24, f"{model}: part of the ceiling that binds (1 = the machine's limit)", "start")]
    frame += legend(list(dict.fromkeys(name for outcome in outcomes for name in outcome.engines)))
    for tenth in range(0, 11, 2):
        x = place(tenth / 10)
        frame.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{y}" stroke="#8884"/>')
        frame.append(text(x, y + 16, f"{tenth / 10:g}", "middle"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 30}" font-family="sans-serif">'
    ground = f'<rect width="{WIDTH}" height="{y + 30}" fill="#fcfcfb"/>'
    return "\n".join([head, ground, *frame, *parts, "</svg>", ""])


def bar(outcome: Outcome, name: str, y: float) -> list[str]:
    """Draws the bar of one engine."""
    fraction, speed = outcome.fraction(name), outcome.spread(name)
    low, median, high = (place(value) for value in (fraction.least, fraction.median, fraction.most))
    middle = y + BAR / 2
    ratio = "" if name == IMP else f", imp {outcome.ratio(name).median:.2f} ×"
    return [
        f'<rect x="{LEFT}" y="{y + 1:.1f}" width="{median - LEFT:.1f}" height="{BAR - 2}" fill="{colour(name)}"/>',
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.1f}" y2="{middle:.1f}" stroke="#1c1c1a"/>',
        text(high + 6, middle + 4, f"{rate_text(speed.median)} tokens/s{ratio}", "start"),
    ]


def legend(names: Sequence[str]) -> list[str]:
    """Draws the name of each engine in its colour."""
    return [
        f'<text x="{LEFT + 120 * i}" y="48" font-size="12" font-weight="600" fill="{colour(name)}">{name}</text>'
        for i, name in enumerate(names)
    ]


def colour(name: str) -> str:
    """Returns the colour of an engine; variants of imp share one."""
    return COLOURS.get(name, VARIANT)


def place(fraction: float) -> float:
    """Returns the position on the axis. A value above the ceiling (from a disturbed probe) ends just beyond it."""
    return LEFT + (WIDTH - LEFT - RIGHT) * min(fraction, 1.05)


def text(x: float, y: float, words: str, anchor: str) -> str:
    """Draws a label."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" fill="#1c1c1a" text-anchor="{anchor}">{escape(words)}</text>'
