"""Runs small work of every kernel under compute-sanitizer: bad accesses, races, barriers, uninitialized memory."""

from __future__ import annotations

import concurrent.futures
import re
import shutil
import time
from dataclasses import dataclass

from gpu_check.context import Context, StageError, python, run_module
from gpu_check.ledger import CLEAN
from gpu_check.op_cases import OPS
from gpu_check.rows import runnable_kernels

PROGRAM = "compute-sanitizer"
# The tools that must all report a kernel as clean before it is proven.
PROVING = ("memcheck", "racecheck", "synccheck")
# initcheck also counts memory that is copied but never read: its findings are reported, but prove no fault.
TOOLS = (*PROVING, "initcheck")
FOUND_STATUS = 9
# Kernels whose names end with the same of these words share a process.
WORDS = ("dp4a", "imma", "mma", "wgmma", "hmma", "cublaslt")
# Processes on the GPU at a time. Each takes seconds to start, mostly CPU time.
PARALLEL = 8
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards? displayed)")
# The message of the tool if it cannot run at all.
REFUSALS = ("Device not supported", "not supported", "Unable to", "Failed to initialize")


@dataclass(frozen=True)
class Work:
    """Kernels that one process runs under one tool."""

    tool: str
    kernels: tuple[str, ...]

    def command(self, kind: str) -> list[str]:
        cases = [*python(), "-m", "gpu_check.small_cases", kind, *self.kernels]
        if self.tool == "none":
            return cases
        return [PROGRAM, "--tool", self.tool, "--error-exitcode", str(FOUND_STATUS), "--print-limit", "20", *cases]


def run(context: Context, seconds: float) -> None:
    end = time.monotonic() + 0.95 * seconds
    if context.is_dry or shutil.which(PROGRAM) is None:
        if not context.is_dry:
            context.note(f"{PROGRAM} not found: the small cases run unchecked, and no kernel is validated")
        without_tools(context, end)
        return
    work = [Work(tool, group) for group in groups(context) for tool in PROVING]
    work += [Work(tool, group) for group in groups(context) for tool in TOOLS if tool not in PROVING]
    found = []
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        runs = {pool.submit(run_until, end, context, each): each for each in work}
        for done in concurrent.futures.as_completed(runs):
            found += judged(context, runs[done], *done.result())
    if found:
        raise StageError("; ".join(found))


def run_until(end: float, context: Context, work: Work) -> tuple[int | None, str]:
    """Runs work in the time that is left when its turn comes."""
    left = end - time.monotonic()
    return run_module(context, work.command(context.kind), left) if left > 1 else (None, "")


def without_tools(context: Context, end: float) -> None:
    work = Work("none", tuple(name for group in groups(context) for name in group))
    status, output = run_until(end, context, work)
    context.record("verdict", tool="none", verdict="not run", asked=list(work.kernels), ran=ran(output))
    if status != 0:
        raise StageError(f"the small cases ended with status {status}: {output.strip()[-300:]}")


def groups(context: Context) -> list[tuple[str, ...]]:
    """Returns the groups of kernels. Those that every model needs come first, because time may run out."""
    rows = [kernel.name for kernel in runnable_kernels(context.kind) if context.chosen(kernel.name)]
    by_word = [tuple(name for name in rows if name.split("_")[-1] == word) for word in WORDS]
    others = tuple(name for name in rows if name.split("_")[-1] not in WORDS)
    found = [tuple(name for name in OPS if context.chosen(name)), *by_word, others]
    return [group for group in found if group]


def judged(context: Context, work: Work, status: int | None, output: str) -> list[str]:
    """Records a verdict; returns the problem as text."""
    verdict = verdict_of(status, output)
    context.record("verdict", tool=work.tool, verdict=verdict, asked=list(work.kernels), ran=ran(output))
    if verdict == CLEAN:
        return []
    print(output[-6000:])
    where = f"{work.tool} of {work.kernels[0]} and {len(work.kernels) - 1} more: {verdict}"
    if verdict.startswith("not run") or work.tool not in PROVING:
        context.note(where)
        return []
    return [where]


def verdict_of(status: int | None, output: str) -> str:
    """Returns "clean", the problem found, or "not run: …"."""
    summaries = [int(number) for number in SUMMARY.findall(output)]
    if any(word in output for word in REFUSALS) and not ran(output):
        return "not run: refused here"
    if status is None:
        return "not run: not done in time" if not any(summaries) else f"{sum(summaries)} found, not done in time"
    if not summaries:
        return f"not run: no summary, status {status}"
    if sum(summaries):
        return f"{sum(summaries)} found"
    return CLEAN if status == 0 else f"status {status}"


def ran(output: str) -> list[str]:
    """Returns the kernels that had finished when the process ended."""
    return re.findall(r"^ran (\w+)$", output, re.MULTILINE)
