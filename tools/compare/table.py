"""The printed table of a comparison, a row at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compare.goals import Verdict, verdict_line
from compare.outcome import IMP, SPEED, Outcome
from imp_service.core.bench.report import Spread

# A heading and a width. Negative: to the left.
Column = tuple[str, int]
SPREAD: Sequence[Column] = (("median", 9), ("least", 9), ("most", 9))


class Table:
    """Columns of fixed widths, so that a row can be printed before the next one is measured."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._widths = [width for _, width in columns]
        self.heading = self.row(*(heading for heading, _ in columns))

    def row(self, *cells: str) -> str:
        """Returns a line; missing cells are empty."""
        pairs = zip(cells, self._widths, strict=False)
        return " ".join(f"{cell:{'>' if width > 0 else '<'}{abs(width)}}" for cell, width in pairs).rstrip()


class OutcomeTable(Table):
    """A row for each engine of a case: its speed, and more columns, whose cells follow from outcome and engine."""

    def __init__(self, *more: tuple[Column, Callable[[Outcome, str], str]]) -> None:
        own = (("", -44), ("engine", -13), *SPREAD, ("imp is", 13), ("of ceiling", 10))
        super().__init__([*own, *(column for column, _ in more)])
        self._cells = [cell for _, cell in more]

    def lines(self, outcome: Outcome, verdicts: Sequence[Verdict], figure: str = SPEED) -> list[str]:
        """Returns the rows with a figure in place of the speed, and remarks on goals, refusals and disturbances."""
        rows = []
        for name in outcome.engines:
            ratio = "" if name == IMP else times(outcome.ratio(name))
            fraction = f"{100 * outcome.fraction(name).median:.0f} %"
            cells = (cell(outcome, name) for cell in self._cells)
            label = outcome.case.label if name == IMP else ""
            rows.append(self.row(label, name, *numbers(outcome.spread(name, figure)), ratio, fraction, *cells))
        remarks = [verdict_line(verdicts)] if verdicts else []
        remarks += [f"{name:13} refused: {why}" for name, why in outcome.refusals.items()]
        if outcome.is_disturbed:
            others = max(round_.others for round_ in outcome.rounds)
            least = f"these are the {len(outcome.rounds)} least disturbed"
            remarks.append(f"no quiet round: {least}, in which other processes used up to {others:.2f} CPUs")
        elif outcome.n_disturbed:
            remarks.append(f"{outcome.n_disturbed} disturbed rounds left out")
        return [*rows, *(self.row("", remark) for remark in remarks)]


def numbers(spread: Spread) -> list[str]:
    """Returns median, least and most."""
    return [f"{value:.4g}" for value in (spread.median, spread.least, spread.most)]


def times(spread: Spread) -> str:
    """Returns "1.42 × ±0.05": the median, and half of the range."""
    return f"{spread.median:.2f} × ±{(spread.most - spread.least) / 2:.2f}"
