"""Writes ledger entries for the kernels that were correct in this run, and lists those that are now validated."""

from __future__ import annotations

import datetime

from gpu_check import ledger, sources
from gpu_check.context import Context, Row
from gpu_check.ledger import CLEAN, NOT_RUN, Entry, Speed
from gpu_check.op_cases import OPS
from gpu_check.rows import TESTS
from gpu_check.stages.sanitizer import PROVING


def run(context: Context, seconds: float) -> None:
    from imp_service import _core

    nvcc = "none" if context.is_dry else sources.nvcc_version()
    found = {} if context.is_dry else ledger.read()
    new = entries(context, nvcc)
    found |= new
    ledger.write(found, context.out / "ledger.json")
    rows = [row for row in _core.kernels(context.kind) if context.chosen(row["name"])]
    standings = ledger.standings(rows, sources.ops(), found, sources.hash_of)
    promoted = [row.kernel for row in standings if row.may_be_promoted and row.kernel in new]
    context.record("promotions", names=promoted, entries=len(new))
    context.record("waiting", names={row.kernel: row.word for row in standings if not row.proven},
                   beside={name: word for name in sources.ops()
                           for is_proven, word in [ledger.proof(name, found, sources.hash_of)]
                           if not is_proven})  # fmt: skip


def entries(context: Context, nvcc: str) -> ledger.Ledger:
    """Returns entries of correct kernels, for the sources that this run built."""
    if not any("earlier" not in row for row in context.found("build", "built")):
        context.note("nothing was built in this run: it says nothing of today's sources, and nothing is entered")
        return {}
    tried = [*context.found("numerics", "row"), *context.found("numerics", "op")]
    right = [row for row in tried if row["passed"] and tests_passed(context, row["kernel"])]
    return {row["kernel"]: entry(context, row, nvcc) for row in right}


def entry(context: Context, row: Row, nvcc: str) -> Entry:
    device = context.found("probe", "device")
    facts: Row = device[-1] if device else {}
    name = row["kernel"]
    return Entry(
        hash=sources.hash_of(name, nvcc), nvcc=nvcc, device=str(facts.get("name", "unknown")),
        compute_capability=str(facts.get("compute_cap", "unknown")), driver=str(facts.get("driver", "unknown")),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(), worst_error=row["worst"],
        speed=speeds(context, name), sanitizer=verdict(context, name),
    )  # fmt: skip


def tests_passed(context: Context, kernel: str) -> bool:
    """Returns whether all test files of such a kernel passed in this run."""
    passed = {row["family"] for row in context.found("numerics", "tests") if row["passed"]}
    return passed.issuperset(OPS[kernel].tests if kernel in OPS else TESTS[kernel.rsplit("_", maxsplit=1)[-1]])


def speeds(context: Context, kernel: str) -> dict[str, Speed]:
    scale = {"GB/s": 1e9, "TFLOP/s": 1e12}
    return {
        f"{row['shape']} m={row['m']}": Speed(round(row["rate"] / scale[row["unit"]], 3), row["unit"],
                                              round(row["fraction"] or 0.0, 4))
        for row in context.found("kernels", "kernel") if row["kernel"] == kernel
    }  # fmt: skip


def verdict(context: Context, kernel: str) -> str:
    """Returns CLEAN if all proving tools finished the kernel and found nothing in its group."""
    said = [row for row in context.found("sanitizer", "verdict") if kernel in row["asked"] and row["tool"] in PROVING]
    bad = [f"{row['tool']}: {row['verdict']}" for row in said if row["verdict"] != CLEAN
           and not row["verdict"].startswith(NOT_RUN)]  # fmt: skip
    if bad:
        return "; ".join(bad)
    through = {row["tool"] for row in said if row["verdict"] == CLEAN and kernel in row["ran"]}
    return CLEAN if through.issuperset(PROVING) else NOT_RUN
