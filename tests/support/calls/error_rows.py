"""Reads the error table of docs/contracts.md: the source that the service's own table is compared with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"
DETAILS = ("BadRequest", "RetryInfo", "QuotaFailure", "PreconditionFailure", "RequestInfo")


@dataclass(frozen=True)
class DocumentedRow:
    """One reason as the document states it."""

    reason: str  # empty where gRPC itself ends the call
    code: str
    metadata: tuple[str, ...]
    details: tuple[str, ...]
    pushback: str  # "", "pushback" or "pushback never"
    unless_never: bool
    retry: str


def documented_rows() -> list[DocumentedRow]:
    """Returns every row; a row with two reasons becomes two rows."""
    section = (DOCS / "contracts.md").read_text().split("### 10.3 Error table")[1].split("- **RPC-40**")[0]
    rows = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 5 or cells[0] in ("situation", "---"):
            continue
        _, code, reasons, told, retry = cells
        words = [word.strip() for word in re.split(r"[,;]", told) if word.strip() != "–"]
        metadata = tuple(word for word in words if re.fullmatch(r"[a-z_]+", word) and word != "pushback")
        details = tuple(word.split(":")[0].split(" on ")[0] for word in words if word.startswith(DETAILS))
        pushback = next((word.removesuffix(" unless never") for word in words if word.startswith("pushback")), "")
        for reason in reasons.split(","):
            name = reason.strip()
            known = name if re.fullmatch(r"[A-Z_]+", name) else ""
            rows.append(DocumentedRow(known, code, metadata, details, pushback, "unless never" in told, retry))
    return rows


def advised_reasons() -> list[tuple[str, list[str]]]:
    """Returns each reason of the table for operators in docs/serving.md, with the codes of its row."""
    section = (DOCS / "serving.md").read_text().split("## Errors and how to handle them")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([A-Z_, ]+) \| ([A-Z_, ]+) \|", section, re.MULTILINE)
    return [(reason, codes.split(", ")) for codes, reasons in rows for reason in reasons.split(", ")]
