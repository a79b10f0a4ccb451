"""The report as one HTML page that needs nothing but a browser: no script, no font, no picture from elsewhere."""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape

from .axis import Axis, linear_axis, log_axis
from .chart import Chart, Series
from .level_table import HEADINGS, duration_text, level_row, rate_text
from .page_style import STYLE
from .report import LadderReport, LevelReport, Percentiles

STREAMS = "streams at once"


def page(report: LadderReport) -> str:
    plan = report.plan
    repetitions = f"{plan.reps} repetition{'s' if plan.reps != 1 else ''}"
    when = datetime.fromtimestamp(report.measured_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = {
        "Model": report.title,
        "Server": " at ".join(filter(None, (report.server, report.address))),
        "Device": report.device,
        "Measured": when,
        "Requests": f"{report.lengths}; "
        f"{plan.requests} from each stream, {repetitions}, alternately up and down the ladder",
    }
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items() if value)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(report.model)}: speed by {STREAMS}</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(report.model)}: speed by {STREAMS}</h1><dl>{listed}</dl>",
            "<h2>Generated tokens per second, all streams together</h2>",
            "<p>The line is the median repetition, the bar from the slowest to the fastest.</p>",
            _throughput(report.levels),
            "<h2>Time to the first token</h2>",
            "<p>From the call to the token at the client: waiting, reading the prompt, the way back. Logarithmic.</p>",
            _latency("time to the first token", report.levels, [level.first_token for level in report.levels]),
            "<h2>Time between tokens</h2>",
            "<p>As they came to the client; tokens of one message share the wait for it. Logarithmic.</p>",
            _latency("time between tokens", report.levels, [level.inter_token for level in report.levels]),
            "<h2>Numbers</h2>",
            _table(report.levels),
            "</body></html>\n",
        ]
    )


def _throughput(levels: Sequence[LevelReport]) -> str:
    values = tuple(level.median_tokens_per_s for level in levels)
    ranges = tuple((min(level.tokens_per_s), max(level.tokens_per_s)) for level in levels)
    chart = _chart("generated tokens per second", levels, linear_axis([high for _, high in ranges]), rate_text)
    return _scrolled(chart.svg([Series("tokens/s", values, ranges)]))


def _latency(title: str, levels: Sequence[LevelReport], times: Sequence[Percentiles]) -> str:
    series = [
        Series("99 %", tuple(t.p99 for t in times)),
        Series("90 %", tuple(t.p90 for t in times)),
        Series("median", tuple(t.p50 for t in times)),
    ]
    measured = [value for one in series for value in one.values if value > 0]
    if not measured:
        return "<p>No request ended well.</p>"
    # Tokens of one read of the socket arrive together, with zero time between them: zero has no logarithm.
    least = min(measured)
    shown = [Series(one.name, tuple(v if math.isnan(v) else max(v, least) for v in one.values)) for one in series]
    return _scrolled(_chart(title, levels, log_axis(measured), duration_text).svg(shown))


def _scrolled(svg: str) -> str:
    """A chart stays readable on a narrow screen, where it is wider than the page."""
    return f'<div class="chart" tabindex="0">{svg}</div>'


def _chart(title: str, levels: Sequence[LevelReport], axis: Axis, text: Callable[[float], str]) -> Chart:
    return Chart(f"{title} by {STREAMS}", STREAMS, tuple(str(level.level) for level in levels), axis, text)


def _table(levels: Sequence[LevelReport]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in HEADINGS)
    rows = map(level_row, levels)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
