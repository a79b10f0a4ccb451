"""How commands print: tables, JSON lines, and numbers with units."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from imp_service.api.shown import scaled

if TYPE_CHECKING:
    from google.protobuf.message import Message


def write_table(stream: TextIO, head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> None:
    """Aligns columns to the left. An empty `head` prints rows only."""
    lines = [*([head] if head else []), *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        stream.write(f"{indent}{'  '.join(cells).rstrip()}\n")


def write_number_table(out: TextIO, head: Sequence[str], rows: Sequence[Sequence[str]], n_words: int = 1) -> None:
    """The first `n_words` columns are text, the others numbers. A terminal gets a drawn table, a pipe plain text."""
    (_draw if out.isatty() else _print)(out, head, rows, n_words)


def _draw(out: TextIO, head: Sequence[str], rows: Sequence[Sequence[str]], n_words: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for i, heading in enumerate(head):
        table.add_column(heading, justify="left" if i < n_words else "right")
    for row in rows:
        table.add_row(*map(Text, row))  # words in brackets are no markup
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


def write_message(message: "Message") -> None:
    """One line of JSON with the field names of the protos. Includes zeros, so that a script finds every field."""
    from google.protobuf.json_format import MessageToJson

    text = MessageToJson(
        message,
        indent=None,
        ensure_ascii=False,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def bytes_text(n_bytes: int) -> str:
    """For example "4.1 MB" or "23.5 GB": powers of 1000, as disks and downloads are sold."""
    return scaled(n_bytes, 1000, ("B", "kB", "MB", "GB", "TB"), " ")


def memory_text(n_bytes: int) -> str:
    """For example "3.9 MiB": powers of 1024, as memory is divided."""
    return scaled(n_bytes, 1024, ("B", "KiB", "MiB", "GiB", "TiB"), " ")
