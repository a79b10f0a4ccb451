"""Checks all kernels (those of the list and the others) against float64, and runs the tests for GPUs."""

from __future__ import annotations

import concurrent.futures
import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from gpu_check.context import ROOT, Context, Row, StageError, python, run_module
from gpu_check.op_cases import OPS
from gpu_check.rows import listed_kernels

# Test files that run on GPUs use one of these names.
USES_GPUS = re.compile(r"\b(GPU_KINDS|GPUS|each_device|each_family)\b")
# The tests of this check itself use the emulated GPU.
TRIES_THE_CHECK = re.compile(r"\bgpu_check\.(main|stages)\b")
# Test files that read the free memory of the GPU must run alone on it.
ALONE = re.compile(r"\bdevice_bytes_left\b")
# The reason of a skip for want of a GPU has one of these words, outside paths.
FOR_THE_GPU = re.compile(r"\b(GPU|CUDA|cuda)\b")
A_PATH = re.compile(r"\S*/\S*")
PARALLEL = 6


def run(context: Context, seconds: float) -> None:
    end = time.monotonic() + 0.9 * seconds
    wrong = check_kernels(context, seconds)
    wrong += check_tests(context, end)
    if wrong:
        raise StageError(f"wrong: {', '.join(wrong)}")


# Kernels: those of the list and the others.


def check_kernels(context: Context, seconds: float) -> list[str]:
    """Checks each kernel in a separate process, because a fault breaks the device for its process."""
    chosen = [kernel for kernel in listed_kernels(context.kind) if context.chosen(kernel.name)]
    for kernel in chosen:
        if kernel.refusal is not None:
            context.record("refused", kernel=kernel.name, reason=kernel.refusal)
    rows = [kernel.name for kernel in chosen if kernel.refusal is None]
    ops = [name for name in OPS if context.chosen(name)]
    work = [("row", "row_errors", group) for group in groups(context, rows)]
    work += [("op", "op_errors", group) for group in groups(context, ops)]
    wrong = []
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        found = pool.map(lambda each: errors_of(context, each[1], each[2], 0.4 * seconds), work)
        for (what, _, _), answers in zip(work, found, strict=True):
            for answer in answers:
                context.record(what, **answer)
                wrong += [] if answer["passed"] else [answer["kernel"]]
    return wrong


def groups(context: Context, names: list[str]) -> list[list[str]]:
    """Returns the kernels of each process: all on the emulated device, which no fault breaks; one on a real GPU."""
    return [names] if context.is_dry else [[name] for name in names]


def errors_of(context: Context, module: str, names: list[str], seconds: float) -> list[Row]:
    """Runs a module for these kernels; returns a finding for each, even if the process dies."""
    command = [*python(), "-m", f"gpu_check.{module}", context.kind, "dry" if context.is_dry else "all", *names]
    status, output = run_module(context, command, seconds)
    found = {row["kernel"]: row for line in output.splitlines() if line.startswith("{") for row in [json.loads(line)]}
    why = f"no answer, status {status}: {output.strip()[-200:]}"
    return [found.get(name, {"kernel": name, "passed": False, "why": why}) for name in names]


# The tests.


@dataclass(frozen=True)
class Counts:
    """The results of one test file."""

    tests: int
    failures: int
    skipped_for_the_gpu: int
    skipped_for_a_package: int = 0
    seconds: float = 0.0

    @property
    def word(self) -> str:
        """The problems; empty if there are none."""
        if self.failures:
            return f"{self.failures} of {self.tests} failed"
        if self.skipped_for_the_gpu:
            return f"{self.skipped_for_the_gpu} of {self.tests} skipped"
        return "" if self.tests or self.skipped_for_a_package else "no test ran"


def check_tests(context: Context, end: float) -> list[str]:
    """Runs each file in a separate process, so that a fault affects one. Files that need the whole GPU come first."""
    files = files_of_tests(context)
    if not files:
        raise StageError("no file of tests names a GPU")
    alone = [path for path in files if ALONE.search(path.read_text())]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        soon = time.monotonic() + (end - time.monotonic()) / 3  # limits a file that hangs, so that the others have time
        for path in alone:
            wrong += judged(context, *run_tests(context, path, Path(folder), soon))
        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            runs = [pool.submit(run_tests, context, path, Path(folder), end) for path in files if path not in alone]
            for done in concurrent.futures.as_completed(runs):
                wrong += judged(context, *done.result())
    return wrong


def judged(context: Context, path: Path, counts: Counts, output: str) -> list[str]:
    """Returns the problems of one test file."""
    family = str(path.relative_to(ROOT / "tests"))
    context.record("tests", family=family, passed=not counts.word, **asdict(counts))
    if not counts.word:
        return []
    print(output[-4000:])
    return [f"{family}: {counts.word}"]


def files_of_tests(context: Context) -> list[Path]:
    if context.is_dry:
        return [ROOT / "tests" / "backend" / "test_ops.py"]
    texts = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    return [path for path, text in texts.items() if USES_GPUS.search(text) and not TRIES_THE_CHECK.search(text)]


def run_tests(context: Context, path: Path, folder: Path, end: float) -> tuple[Path, Counts, str]:
    seconds = max(1.0, end - time.monotonic())
    report = folder / f"{path.parent.name}_{path.stem}.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--all",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        str(path),
    ]
    command += ["-W", "default"]  # warnings of packages in other versions than the project's tests use
    command += ["-k", "emulated and rms_norm"] if context.is_dry else []
    environment = context.environment() | ({} if context.is_dry else {"IMP_REQUIRE_GPU": "1"})
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
                              timeout=seconds)  # fmt: skip
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return path, Counts(1, 1, 0), f"{path.name}: no end in {seconds:.0f} s"
    return path, counts_of(report.read_text()) if report.exists() else Counts(0, 1, 0), output


def counts_of(junit: str) -> Counts:
    """Returns the counts in a JUnit report. Counts skips for want of a GPU and of a package separately."""
    root = ElementTree.fromstring(junit)
    suites = list(root.iter("testsuite"))
    reasons = [skip.get("message", "") for skip in root.iter("skipped")]
    return Counts(
        tests=sum(int(suite.get("tests", 0)) for suite in suites) - len(reasons),
        failures=sum(int(suite.get("failures", 0)) + int(suite.get("errors", 0)) for suite in suites),
        skipped_for_the_gpu=sum(bool(FOR_THE_GPU.search(A_PATH.sub("", reason))) for reason in reasons),
        skipped_for_a_package=sum("is not installed" in reason for reason in reasons),
        seconds=sum(float(suite.get("time", 0)) for suite in suites),
    )
