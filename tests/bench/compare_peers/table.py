"""The printed table."""

from __future__ import annotations

from collections.abc import Sequence

from bench.compare_peers.goals import start_verdicts, verdict_line, verdicts
from bench.compare_peers.outcome import IMP, Outcome, Start
from imp_service.core.bench.report import Spread

HEADING = f"{'':44} {'engine':13} {'median':>9} {'least':>9} {'most':>9}  {'imp is':>13}  of the ceiling"
MIB = 1024**2


def outcome_lines(outcome: Outcome) -> list[str]:
    """Returns a row for each engine, and a remark if rounds were disturbed."""
    lines = []
    for name in outcome.engines:
        ratio = "" if name == IMP else times(outcome.ratio(name))
        fraction = f"{100 * outcome.fraction(name).median:4.0f} %" + "  the best peer" * (name == outcome.best_peer)
        label = outcome.case.label if name == IMP else ""
        lines.append(f"{label:44} {name:13} {numbers(outcome.tokens_per_s(name))}  {ratio:>13}  {fraction}")
    if goals := verdict_line(verdicts(outcome)):
        lines.append(f"{'':44} {goals}")
    lines += [f"{'':44} {name:13} refused: {why}" for name, why in outcome.refusals.items()]
    if outcome.is_disturbed:
        lines.append(f"{'':44} no quiet round: these are the {len(outcome.rounds)} least disturbed")
    elif outcome.n_disturbed:
        lines.append(f"{'':44} {outcome.n_disturbed} disturbed rounds left out")
    return lines


def start_lines(start: Start, starts: Sequence[Start]) -> list[str]:
    """Returns seconds to the first token, imp's ratio to them, and the peak memory next to the file's size."""
    ours = next(other for other in starts if other.engine == IMP)
    label = (
        f"load to a first token, {start.threads} thread{'s' * (start.threads > 1)}, seconds" if start is ours else ""
    )
    ratio = "" if start is ours else f"{start.seconds.median / ours.seconds.median:.2f} ×"
    peak = f"peak {start.peak_bytes.median / MIB:.0f} MiB ({start.peak_bytes.median / start.file_bytes:.2f} × the file)"
    lines = [f"{label:44} {start.engine:13} {numbers(start.seconds)}  {ratio:>13}  {peak}"]
    if goals := verdict_line(start_verdicts(start)):
        lines.append(f"{'':44} peak of memory {goals}")
    if start.note:
        lines.append(f"{'':44} {start.engine}: {start.note}")
    return lines


def numbers(spread: Spread) -> str:
    """Returns median, least and most."""
    return " ".join(f"{value:9.4g}" for value in (spread.median, spread.least, spread.most))


def times(spread: Spread) -> str:
    """Returns "1.42 × ±0.05": the median, and half of the range."""
    return f"{spread.median:.2f} × ±{(spread.most - spread.least) / 2:.2f}"
