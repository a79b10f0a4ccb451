"""Writes the tables of docs/openai.md from the tables of request fields; --check reports whether they are fresh."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from imp_service.http_api.openai.fields import (
    CHAT,
    COMPLETIONS,
    DETOKENIZE,
    RESPONSES,
    TOKENIZE,
    Accepted,
    Ignored,
    Means,
    Refused,
    Sets,
    Table,
)

PAGE = Path(__file__).resolve().parents[1] / "docs" / "openai.md"
TABLES = {
    "chat": CHAT,
    "completions": COMPLETIONS,
    "responses": RESPONSES,
    "tokenize": TOKENIZE,
    "detokenize": DETOKENIZE,
}
_SECTION = re.compile(r"(<!-- fields: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def written(table: Table) -> str:
    """Returns the rows of a table: fields with an effect, then those without one, then refused fields."""
    lines = ["| field | option of imp.v1 | |", "|---|---|---|"]
    lines += [f"| `{name}` | {_option(row)} | {row.about} |" for name, row in table.items() if isinstance(row, Sets)]
    accepted = [f"`{name}` ({row.about})" for name, row in table.items() if isinstance(row, Accepted)]
    means = [f"`{name}` (`{row.of}`)" for name, row in table.items() if isinstance(row, Means)]
    ignored = [f"`{name}` ({row.about})" for name, row in table.items() if isinstance(row, Ignored)]
    refused = [f"`{name}`: {row.instead}" for name, row in table.items() if isinstance(row, Refused)]
    for words, listed in (
        ("Other servers' names of these fields", means),
        ("Accepted, but without effect (other values are refused)", accepted),
        ("Ignored, and named in the header `imp-ignored`", ignored),
    ):
        lines += ["", f"{words}: {'; '.join(listed)}."] if listed else []
    if refused:
        lines += ["", "Refused:", "", *(f"- {line}" for line in refused)]
    return "\n".join(lines) + "\n"


def filled(page: str) -> str:
    """Returns the page with all its tables."""
    return _SECTION.sub(lambda found: found[1] + written(TABLES[found[2]]) + found[3], page)


def _option(row: Sets) -> str:
    return f"`{row.option}`" if row.option else ""


def main() -> int:
    """Writes or checks the page; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if the page is not fresh")
    page = PAGE.read_text()
    fresh = filled(page)
    if parser.parse_args().check:
        print(f"{PAGE.name} is {'up to date' if fresh == page else 'not fresh: run python tools/write_openai_page.py'}")
        return 0 if fresh == page else 1
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
