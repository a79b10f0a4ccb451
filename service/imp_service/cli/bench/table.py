"""The table of `imp bench`: drawn on a terminal, plain text elsewhere."""

from __future__ import annotations

from typing import TextIO

from imp_service.cli.output import write_number_table
from imp_service.core.bench import (
    BenchReport,
    CaseResult,
    ImageResult,
    ReplayResult,
    RowsResult,
    SparseResult,
    Spread,
    VectorsResult,
)

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
ROW_HEADINGS = ("rows of one sequence", "threads", "ms", "min – max", "steps of one row", "worth it from")
REPLAY_HEADINGS = (
    *("replay", "threads", "tokens", "tokens a step", "drafted", "accepted"),
    *("tokens/s without", "with", "speed-up", "min – max"),
)
SPARSE_HEADINGS = (
    *("sparse prefill", "threads", "evaluated", "first token, whole: ms", "in part: ms"),
    *("speed-up", "min – max", "equal tokens", "divergence"),
)
IMAGE_HEADINGS = (
    *("image", "threads", "tokens", "decode: ms", "encode: ms", "first token: ms", "min – max"),
    *("longest gap: ms", "min – max", "of a text: ms", "times as long"),
)
VECTOR_HEADINGS = ("vectors", "threads", "texts/s", "min – max", "tokens/s", "a call: ms", "min – max")
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
    if report.rows:
        write_number_table(out, ROW_HEADINGS, [_cost_row(each) for each in report.rows])
    if report.replays:
        write_number_table(out, REPLAY_HEADINGS, [_replay_row(each) for each in report.replays])
    if report.sparse:
        write_number_table(out, SPARSE_HEADINGS, [_sparse_row(each) for each in report.sparse])
    if report.images:
        write_number_table(out, IMAGE_HEADINGS, [_image_row(each) for each in report.images])
    if report.vectors:
        write_number_table(out, VECTOR_HEADINGS, [_vectors_row(each) for each in report.vectors])


def _head(report: BenchReport) -> list[str]:
    facts = report.facts
    weights = " + ".join(f"{n_bytes / MIB:.1f} MiB {dtype}" for dtype, n_bytes in facts.weights_bytes.items())
    return [
        f"{facts.model} ({facts.architecture}) on {facts.device}",
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


def _cost_row(result: RowsResult) -> tuple[str, ...]:
    seconds, share = result.seconds, result.break_even
    return (
        f"{result.rows}, depth {result.depth}",
        str(result.threads),
        f"{1e3 * seconds.median:.2f}",
        f"{1e3 * seconds.least:.2f} – {1e3 * seconds.most:.2f}",
        f"{result.cost:.2f}",
        "–" if share is None else f"{100 * share:.0f} % right",
    )


def _replay_row(result: ReplayResult) -> tuple[str, ...]:
    plain, drafting = sum(result.seconds_without.samples), sum(result.seconds_with.samples)
    speed_up = result.speed_up
    return (
        f"{result.kind}, batch {result.streams}",
        str(result.threads),
        str(result.tokens),
        f"{result.tokens_per_step:.2f}",
        str(result.drafted),
        str(result.accepted),
        f"{result.tokens / plain:.1f}",
        f"{result.tokens / drafting:.1f}",
        f"{speed_up.median:.2f}",
        f"{speed_up.least:.2f} – {speed_up.most:.2f}",
    )


def _sparse_row(result: SparseResult) -> tuple[str, ...]:
    speed_up = result.speed_up
    return (
        f"prompt {result.prompt_tokens}",
        str(result.threads),
        f"all: {result.fallback_reason}" if result.fallback_reason else str(result.evaluated_tokens),
        f"{1e3 * result.seconds_whole.median:.1f}",
        f"{1e3 * result.seconds_part.median:.1f}",
        f"{speed_up.median:.2f}",
        f"{speed_up.least:.2f} – {speed_up.most:.2f}",
        f"{result.equal_tokens} of {result.output_tokens}",
        f"{result.divergence:.4f}",
    )


def _image_row(result: ImageResult) -> tuple[str, ...]:
    first_token, gap = result.first_token_seconds, result.gap_seconds
    return (
        f"{result.width} x {result.height}",
        str(result.threads),
        str(result.prompt_tokens),
        f"{1e3 * result.decode_seconds.median:.1f}",
        f"{1e3 * result.encode_seconds.median:.1f}",
        f"{1e3 * first_token.median:.1f}",
        f"{1e3 * first_token.least:.1f} – {1e3 * first_token.most:.1f}",
        f"{1e3 * gap.median:.1f}",
        f"{1e3 * gap.least:.1f} – {1e3 * gap.most:.1f}",
        f"{1e3 * result.text_gap_seconds.median:.1f}",
        f"{result.gap_ratio:.2f}",
    )


def _vectors_row(result: VectorsResult) -> tuple[str, ...]:
    rate, call = result.texts_per_s, result.call_seconds
    return (
        f"{result.texts} text{'s' if result.texts != 1 else ''} of {result.tokens} tokens",
        str(result.threads),
        f"{rate.median:.1f}",
        f"{rate.least:.1f} – {rate.most:.1f}",
        f"{rate.median * result.tokens:.0f}",
        f"{1e3 * call.median:.2f}",
        f"{1e3 * call.least:.2f} – {1e3 * call.most:.2f}",
    )


def _percent(fraction: Spread) -> str:
    return f"{100 * fraction.median:.0f} %"


def _tail(report: BenchReport) -> list[str]:
    return [
        f"a step outside its forward pass, batch {overhead.batch}, {overhead.threads} "
        f"thread{'s' if overhead.threads != 1 else ''}: engine {_microseconds(overhead.engine_seconds_per_step)}, "
        f"sampling {_microseconds(overhead.sampling_seconds_per_step)}"
        for overhead in report.overheads
    ]


def _microseconds(spread: Spread) -> str:
    return f"{1e6 * spread.median:.1f} µs ({1e6 * spread.least:.1f} – {1e6 * spread.most:.1f})"
