"""Bad accesses and races, as compute-sanitizer sees them in small work of every kernel."""

from __future__ import annotations

import re
import shutil
import time

from gpu_check.context import Context, StageError, python, run_module

TOOLS = ("memcheck", "racecheck")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards? displayed)")
# What the tool says where it cannot work at all.
REFUSALS = ("Device not supported", "not supported", "Unable to", "Failed to initialize")


def run(context: Context, seconds: float) -> None:
    end = time.monotonic() + 0.95 * seconds
    work = [*python(), "-m", "gpu_check.small_cases", context.kind, *context.only]
    if context.is_dry or shutil.which("compute-sanitizer") is None:
        if not context.is_dry:
            context.note("no compute-sanitizer here; the small cases ran without it")
        status, output = run_module(context, work, end - time.monotonic())
        context.record("verdict", tool="none", verdict="not run", ran=ran(output))
        if status != 0:
            raise StageError(f"the small cases ended with status {status}: {output.strip()[-300:]}")
        return
    found = []
    for tool in TOOLS:
        status, output = run_module(
            context, ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *work], end - time.monotonic()
        )
        verdict = verdict_of(status, output)
        context.record("verdict", tool=tool, verdict=verdict, ran=ran(output))
        print(output[-6000:])
        if verdict.startswith("not run"):
            context.note(f"{tool}: {verdict}")
        elif verdict != "clean":
            found.append(f"{tool}: {verdict}")
    if found:
        raise StageError("; ".join(found))


def verdict_of(status: int | None, output: str) -> str:
    """ "clean", what was found, or "not run: …"."""
    summaries = [int(number) for number in SUMMARY.findall(output)]
    if any(word in output for word in REFUSALS) and not ran(output):
        return "not run: refused here"
    if status is None:
        return "not run: not done in time" if not any(summaries) else f"{sum(summaries)} found, not done in time"
    if not summaries:
        return f"not run: no summary, status {status}"
    if sum(summaries):
        return f"{sum(summaries)} found"
    return "clean" if status == 0 else f"status {status}"


def ran(output: str) -> list[str]:
    """What was through when it ended."""
    return re.findall(r"^ran (\w+)$", output, re.MULTILINE)
