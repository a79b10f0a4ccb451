"""The table of `imp bench`: drawn on a terminal, plain text elsewhere."""

from __future__ import annotations

from typing import TextIO

from imp_service.cli.output import write_number_table
from imp_service.core.bench import BenchReport, CaseResult, Spread

HEADINGS = (
    "case",
    "threads",
    "tokens/s",
    "min – max",
    "MB/token",
    "of bandwidth",
    "of arithmetic",
    "read GB/s",
    "peak T/s",
)
MIB = 1024**2


def write_table(report: BenchReport, out: TextIO) -> None:
    """Writes the cases, then the cost of a step outside its forward pass."""
    for line in _head(report):
        out.write(line + "\n")
    rows = [_row(case) for case in report.cases]
    if rows:
        write_number_table(out, HEADINGS, rows)
    for line in _tail(report):
        out.write(line + "\n")


def _head(report: BenchReport) -> list[str]:
    facts = report.facts
    weights = " + ".join(f"{n_bytes / MIB:.1f} MiB {dtype}" for dtype, n_bytes in facts.weights_bytes.items())
    return [
        f"{facts.name} ({facts.architecture}) on {facts.device}",
        f"weights {weights}; cache {facts.kv_bytes_per_token / 1024:g} KiB per token",
        *(f"Note: {remark}" for remark in facts.remarks),
    ]


def _row(result: CaseResult) -> tuple[str, ...]:
    case = result.case
    label = f"prefill {case.tokens}"
    if case.kind == "decode":
        label = f"decode {case.tokens}, batch {case.batch}, depth {case.depth}"
    speed = result.tokens_per_s
    return (
        label,
        str(case.threads),
        f"{speed.median:.1f}",
        f"{speed.least:.1f} – {speed.most:.1f}",
        f"{result.work.bytes / result.work.tokens / 1e6:.2f}",
        _percent(result.bandwidth_fraction),
        _percent(result.arithmetic_fraction),
        f"{result.read_bytes_per_s.median / 1e9:.1f}",
        f"{result.peak_ops_per_s.median / 1e12:.2f} {result.peak}",
    )


def _percent(fraction: Spread) -> str:
    return f"{100 * fraction.median:.0f} %"


def _tail(report: BenchReport) -> list[str]:
    return [
        f"a step outside its forward pass, batch {overhead.batch}, {overhead.threads} "
        f"thread{'s' if overhead.threads != 1 else ''}: engine {_microseconds(overhead.engine)}, "
        f"sampling {_microseconds(overhead.sampling)}"
        for overhead in report.overheads
    ]


def _microseconds(spread: Spread) -> str:
    return f"{1e6 * spread.median:.1f} µs ({1e6 * spread.least:.1f} – {1e6 * spread.most:.1f})"
