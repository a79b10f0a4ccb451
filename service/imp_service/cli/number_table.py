"""A table whose first columns are words and the others numbers: drawn on a terminal, plain text elsewhere."""

from collections.abc import Sequence
from typing import TextIO


def write_numbers(out: TextIO, head: Sequence[str], rows: Sequence[Sequence[str]], n_words: int = 1) -> None:
    (_draw if out.isatty() else _print)(out, head, rows, n_words)


def _draw(out: TextIO, head: Sequence[str], rows: Sequence[Sequence[str]], n_words: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for i, heading in enumerate(head):
        table.add_column(heading, justify="left" if i < n_words else "right")
    for row in rows:
        table.add_row(*row)
    Console(file=out).print(table)


def _print(out: TextIO, head: Sequence[str], rows: Sequence[Sequence[str]], n_words: int) -> None:
    lines = [head, *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            (str.ljust if i < n_words else str.rjust)(cell, width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        out.write("  ".join(cells).rstrip() + "\n")
