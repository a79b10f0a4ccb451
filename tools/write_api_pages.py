"""Writes the tables of docs/openai.md and docs/anthropic.md from the tables of request fields.

With --check it reports whether they are fresh.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from imp_service.http_api.anthropic.fields import COUNT_TOKENS, MESSAGES
from imp_service.http_api.openai.fields import CHAT, COMPLETIONS, DECISIONS, DETOKENIZE, INFILL, RESPONSES, TOKENIZE
from imp_service.http_api.requests.rows import Accepted, Ignored, Means, Refused, Sets, Table
from imp_service.http_api.vectors.fields import EMBEDDINGS, RERANK, SCORE, TEI_EMBED

DOCS = Path(__file__).resolve().parents[1] / "docs"
# Page -> its tables by their names.
PAGES: Mapping[Path, Mapping[str, Table]] = {
    DOCS / "openai.md": {
        "chat": CHAT,
        "completions": COMPLETIONS,
        "infill": INFILL,
        "responses": RESPONSES,
        "decisions": DECISIONS,
        "tokenize": TOKENIZE,
        "detokenize": DETOKENIZE,
        "embeddings": EMBEDDINGS,
        "embed": TEI_EMBED,
        "rerank": RERANK,
        "score": SCORE,
    },
    DOCS / "anthropic.md": {"messages": MESSAGES, "count_tokens": COUNT_TOKENS},
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


def filled(page: str, tables: Mapping[str, Table]) -> str:
    """Returns the text of a page with all its tables."""
    return _SECTION.sub(lambda found: found[1] + written(tables[found[2]]) + found[3], page)


def _option(row: Sets) -> str:
    return f"`{row.option}`" if row.option else ""


def main() -> int:
    """Writes or checks the pages; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if a page is not fresh")
    checks, is_fresh = parser.parse_args().check, True
    for path, tables in PAGES.items():
        page = path.read_text()
        fresh = filled(page, tables)
        if checks:
            print(
                f"{path.name} is {'up to date' if fresh == page else 'not fresh: run python tools/write_api_pages.py'}"
            )
            is_fresh = is_fresh and fresh == page
        else:
            path.write_text(fresh)
    return 0 if is_fresh else 1


if __name__ == "__main__":
    sys.exit(main())
