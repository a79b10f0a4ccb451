"""Entries for the kernels that were right in this run, and which rows may be called validated."""

from __future__ import annotations

import datetime

from gpu_check import ledger, sources
from gpu_check.context import Context, Row
from gpu_check.ledger import CLEAN, Entry, Speed


def run(context: Context, seconds: float) -> None:
    from imp_service import _core

    nvcc = "none" if context.is_dry else sources.nvcc_version()
    found = {} if context.is_dry else ledger.read()
    new = entries(context, nvcc)
    found |= new
    ledger.write(found, context.out / "ledger.json")
    rows = [row for row in _core.kernels(context.kind) if context.chosen(row["name"])]
    standings = ledger.standings(rows, found, sources.hash_of)
    promoted = [row.kernel for row in standings if row.may_be_promoted and row.kernel in new]
    context.record("promotions", names=promoted, entries=len(new))
    context.record("waiting", names=[row.kernel for row in standings if not row.proven])


def entries(context: Context, nvcc: str) -> ledger.Ledger:
    """Of the rows whose numerics passed."""
    device = context.found("probe", "device")
    facts: Row = device[-1] if device else {}
    found = {}
    for row in context.found("numerics", "row"):
        name = row["kernel"]
        if row["passed"]:
            found[name] = Entry(
                hash=sources.hash_of(name, nvcc), nvcc=nvcc, device=str(facts.get("name", "unknown")),
                driver=str(facts.get("driver", "unknown")), date=datetime.datetime.now(datetime.UTC).date().isoformat(),
                worst_error=row["worst"], speed=speeds(context, name), sanitizer=verdict(context, name),
            )  # fmt: skip
    return found


def speeds(context: Context, kernel: str) -> dict[str, Speed]:
    scale = {"GB/s": 1e9, "TFLOP/s": 1e12}
    return {
        f"{row['shape']} m={row['m']}": Speed(round(row["rate"] / scale[row["unit"]], 3), row["unit"],
                                              round(row["fraction"] or 0.0, 4))
        for row in context.found("kernels", "kernel") if row["kernel"] == kernel
    }  # fmt: skip


def verdict(context: Context, kernel: str) -> str:
    """Of all tools together."""
    said = [(row["tool"], row["verdict"]) for row in context.found("sanitizer", "verdict") if kernel in row["ran"]]
    bad = [f"{tool}: {word}" for tool, word in said if word != CLEAN and not word.startswith("not run")]
    if bad:
        return "; ".join(bad)
    return CLEAN if said and all(word == CLEAN for _, word in said) else "not run"
