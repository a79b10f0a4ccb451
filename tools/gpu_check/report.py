"""Writes the findings of a run: the report, and the summary of at most forty lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_check.context import Context, Row
from gpu_check.numbers import percent, rate_text, table

if TYPE_CHECKING:
    from gpu_check.main import Outcome

MOST_LINES = 40
# The share of a step's time that the deterministic mode may add.
MOST_DETERMINISTIC_COST = 0.15


@dataclass(frozen=True)
class Target:
    """A case and its targets, most of them shares of its limit: for the first version, the next ones, and the best."""

    case: str
    find: Callable[[Row], bool]
    marks: tuple[str, str, str]


def decode(model: str, batch: int, depth: int) -> Callable[[Row], bool]:
    return lambda row: (row["what"] == "decode" and row["model"] == model and row["batch"] == batch
                        and row["depth"] == depth)  # fmt: skip


def prompt(model: str, tokens: int) -> Callable[[Row], bool]:
    return lambda row: row["what"] == "first token" and row["model"] == model and row["prompt"] == tokens


TARGETS = (
    Target("8B Q8_0, batch 1", decode("8b q8_0", 1, 0), ("60 %", "80 %", "85 %")),
    Target("8B Q4_K_M, batch 1", decode("8b q4_k_m", 1, 0), ("45 %", "70 %", "80 %")),
    Target("8B bf16, batch 1", decode("8b bf16", 1, 0), ("75 %", "85 %", "90 %")),
    Target("1B Q8_0, batch 1", decode("1b q8_0", 1, 0), ("35 %", "65 %", "80 %")),
    Target("1B Q4_K_M, batch 1", decode("1b q4_k_m", 1, 0), ("22 %", "50 %", "70 %")),
    Target("8B Q4_K_M, batch 16 at 1k", decode("8b q4_k_m", 16, 1024), ("35 %", "70 %", "80 %")),
    Target("8B bf16, prompt of 2048", prompt("8b bf16", 2048), ("45 %", "75 %", "85 %")),
    Target("8B bf16, first token of 512", prompt("8b bf16", 512), ("22 ms", "14 ms", "12 ms")),
)


def target_lines(rows: Sequence[Row]) -> list[str]:
    """Returns a table of measured and target values."""
    lines = []
    for target in TARGETS:
        found = [row for row in rows if row["stage"] == "engine" and target.find(row)]
        lines.append((target.case, *measured(found[-1] if found else None), *target.marks))
    return table(("case", "measured", "of the limit", "first", "next", "best"), lines)


def deterministic_lines(rows: Sequence[Row]) -> list[str]:
    """Returns the cost of the deterministic mode and its bound."""
    found = [row for row in rows if row["stage"] == "engine" and row["what"] == "deterministic"]
    costs = [f"{row['case']} {100 * row['cost']:+.0f} %" for row in found]
    most = f"at most +{100 * MOST_DETERMINISTIC_COST:.0f} %"
    return [f"deterministic mode, {found[0]['model']}: {', '.join(costs)} (meant: {most})"] if found else []


def measured(row: Row | None) -> tuple[str, str]:
    if row is None:
        return "not measured", "–"
    if row["what"] == "first token":
        return f"{row['milliseconds']:.1f} ms", percent(row["fraction"])
    return f"{row['tokens_per_s']:.0f} tok/s", percent(row["fraction"])


def ceiling_line(rows: Sequence[Row]) -> str:
    found = [row for row in rows if row["stage"] == "ceilings" and row["what"] == "ceiling"]
    words = [f"{row['name']} {rate_text(row['rate'], row['unit'])}" for row in found]
    launch = [f"a launch in a graph {row['median_us']:.2f} us" for row in rows if row["what"] == "launch"]
    return "ceilings: " + (", ".join(words + launch) or "not measured")


def best_kernels(rows: Sequence[Row]) -> list[str]:
    """Returns the kernels by their share of the limit, for the most telling shapes and numbers of rows."""
    lines = []
    for shape, m in (("8b gate", 1), ("1b gate", 1), ("8b gate", 16), ("8b gate", 2048)):
        found = [row for row in rows if row["what"] == "kernel" and row["shape"] == shape and row["m"] == m]
        found.sort(key=lambda row: -(row["fraction"] or 0))
        words = [f"{row['kernel']} {percent(row['fraction'])}" for row in found[:7]]
        if words:
            lines.append(f"{shape}, {m} rows: {', '.join(words)}")
    return lines


def summary(context: Context, outcomes: Sequence[Outcome]) -> list[str]:
    """Returns the summary, at most MOST_LINES lines."""
    rows = list(context.rows())
    device = next((row for row in rows if row["what"] == "device"), {})
    machine = next((row for row in rows if row["what"] == "machine"), {})
    failed = [outcome for outcome in outcomes if outcome.status != "passed"]
    commit = machine.get("commit", "?")[:12]
    lines = [
        f"{device.get('name', 'unknown device')}, driver {device.get('driver', '?')}, source {commit}",
        ceiling_line(rows),
        "stages: " + ", ".join(f"{o.stage} {o.status} {o.seconds:.0f} s" for o in outcomes),
        *(f"  {o.stage}: {o.message}"[:160] for o in failed),
        *target_lines(rows),
        *deterministic_lines(rows),
        *best_kernels(rows),
        *service_lines(rows),
        *(f"{row['name']}: {row['tokens_per_s']:.0f} tok/s, {percent(row['fraction'])}"
          for row in rows if row["what"] == "comparator"),
        *(f"may be called validated: {', '.join(row['names']) or 'none'}"
          for row in rows if row["what"] == "promotions"),
    ]  # fmt: skip
    verdict = "PASSED" if not any(o.is_fatal for o in outcomes) else "FAILED"
    return [*lines[: MOST_LINES - 1], verdict]


def service_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        if row["stage"] == "service" and row["what"] == "level":
            first, between = row["first_token"] or {}, row["inter_token"] or {}
            lines.append(f"service, {row['level']} streams: first token p50 {milliseconds(first, 'p50')}, "
                         f"between p50 {milliseconds(between, 'p50')} p99 {milliseconds(between, 'p99')}")  # fmt: skip
    return lines


def milliseconds(percentiles: Row, name: str) -> str:
    value = percentiles.get(name)
    return "–" if value is None else f"{1e3 * value:.1f} ms"


def write_report(context: Context, outcomes: Sequence[Outcome]) -> None:
    """Writes report.md: the summary, then every finding in tables."""
    rows = list(context.rows())
    lines = ["# GPU check", "", "```", *summary(context, outcomes), "```", ""]
    notes = [f"- {row['stage']}: {row['text']}" for row in rows if row["what"] == "note"]
    lines += ["## Notes", "", *notes, ""] if notes else []
    for stage in dict.fromkeys(row["stage"] for row in rows):
        for what in dict.fromkeys(row["what"] for row in rows if row["stage"] == stage and row["what"] != "note"):
            lines += [f"## {stage}: {what}", "", *rows_table(rows, stage, what), ""]
    (context.out / "report.md").write_text("\n".join(lines))


def rows_table(rows: Sequence[Row], stage: str, what: str) -> list[str]:
    chosen = [row for row in rows if row["stage"] == stage and row["what"] == what]
    names = list(dict.fromkeys(name for row in chosen for name in row if name not in ("stage", "what")))
    return table(names, [[cell(row.get(name)) for name in names] for row in chosen])


def cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("|", "/").replace("\n", " ")
