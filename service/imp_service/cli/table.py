"""Columns of text, aligned; the last is as long as it is."""

from collections.abc import Sequence
from typing import TextIO


def write_table(stream: TextIO, head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> None:
    """`head` may be empty: then there are only rows."""
    lines = [*([head] if head else []), *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        stream.write(f"{indent}{'  '.join(cells).rstrip()}\n")
