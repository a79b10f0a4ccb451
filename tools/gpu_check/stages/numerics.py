"""Whether every kernel is right: each row of the list beside float64, and the tests that run on GPUs."""

from __future__ import annotations

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from gpu_check.context import ROOT, Context, StageError
from gpu_check.rows import ListedKernel, listed_kernels, tests_support

# Rows of x, by the phase that they are of.
CLASSES = {"decode": (1, 2, 4), "batch": (5, 8, 17, 33), "prefill": (64, 129, 513)}
DRY_CLASSES = {"decode": (1,), "batch": (5,)}
# n and k: whole tiles; ends of strips and of tiles.
SHAPES = ((256, 1024), (136, 1280), (1000, 512))
DRY_SHAPES = ((40, 256),)
# Whose tests run on GPUs.
USES_GPUS = re.compile(r"\b(GPU_KINDS|GPUS|each_device|each_family)\b")
PARALLEL = 6


def run(context: Context, seconds: float) -> None:
    wrong = check_rows(context)
    wrong += check_tests(context, seconds)
    if wrong:
        raise StageError(f"wrong: {', '.join(wrong)}")


# Rows of the list.


def check_rows(context: Context) -> list[str]:
    wrong = []
    for kernel in listed_kernels(context.kind):
        if not context.chosen(kernel.name):
            continue
        try:
            worst = worst_errors(context, kernel)
        except Exception as error:  # one row's failure is no other's
            context.record("row", kernel=kernel.name, passed=False, error=f"{type(error).__name__}: {error}")
            wrong.append(kernel.name)
            continue
        passed = all(error <= 1 for error in worst.values())
        context.record("row", kernel=kernel.name, passed=passed, bound=kernel.bound, worst=worst)
        wrong += [] if passed else [kernel.name]
    return wrong


def worst_errors(context: Context, kernel: ListedKernel) -> dict[str, float]:
    """By class of rows: ‖out − ref‖ / ‖ref‖ of the worst output row, as a part of what is allowed."""
    classes, shapes = (DRY_CLASSES, DRY_SHAPES) if context.is_dry else (CLASSES, SHAPES)
    worst = {}
    for name, sizes in classes.items():
        errors = [error_of(context, kernel, n, k, m) for n, k in shapes for m in sizes if m <= kernel.max_rows]
        if errors:
            worst[name] = max(errors) / kernel.bound
    return worst


def error_of(context: Context, kernel: ListedKernel, n: int, k: int, m: int) -> float:
    """Fresh numbers each time; twice, for equal bits. What was not written is not a number, and never passes."""
    from imp_service import _testing as core

    weights = tests_support("weights")
    seed = int.from_bytes(os.urandom(4))
    weight, x = weights.random_weight(kernel.tested_weight, n, k, seed), weights.random_rows(m, k, seed)
    outputs = [
        core.multiply_on_gpu(context.kind, kernel.name, weight.dtype, n, rows=weight.file, x=x) for _ in range(2)
    ]
    if outputs[0].tobytes() != outputs[1].tobytes():
        raise StageError(f"other bits in a second run: n {n}, k {k}, m {m}, seed {seed}")
    reference = x.astype(np.float64) @ weight.values.astype(np.float64).T
    errors = np.linalg.norm(outputs[0] - reference, axis=1) / np.linalg.norm(reference, axis=1)
    return float(np.nan_to_num(errors, nan=np.inf).max())


# The tests.


@dataclass(frozen=True)
class Counts:
    """Of one file of tests."""

    tests: int
    failures: int
    skipped_for_the_gpu: int
    seconds: float = 0.0

    @property
    def word(self) -> str:
        """What is wrong; empty: nothing."""
        if self.failures:
            return f"{self.failures} of {self.tests} failed"
        if self.skipped_for_the_gpu:
            return f"{self.skipped_for_the_gpu} of {self.tests} skipped"
        return "" if self.tests else "no test ran"


def check_tests(context: Context, seconds: float) -> list[str]:
    """Each file in a process of its own: what breaks one breaks no other."""
    files = files_of_tests(context)
    if not files:
        raise StageError("no file of tests names a GPU")
    wrong = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        runs = {pool.submit(run_tests, context, path, Path(folder), seconds): path for path in files}
        for done in concurrent.futures.as_completed(runs):
            family = str(runs[done].relative_to(ROOT / "tests"))
            counts, output = done.result()
            context.record("tests", family=family, passed=not counts.word, **asdict(counts))
            if counts.word:
                print(output[-4000:])
                wrong.append(f"{family}: {counts.word}")
    return wrong


def files_of_tests(context: Context) -> list[Path]:
    if context.is_dry:
        return [ROOT / "tests" / "backend" / "test_ops.py"]
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in found if USES_GPUS.search(path.read_text())]


def run_tests(context: Context, path: Path, folder: Path, seconds: float) -> tuple[Counts, str]:
    report = folder / f"{path.stem}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", str(path)]
    command += ["-k", "emulated and rms_norm"] if context.is_dry else []
    environment = context.environment() | ({} if context.is_dry else {"IMP_REQUIRE_GPU": "1"})
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
                              timeout=0.9 * seconds)  # fmt: skip
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return Counts(1, 1, 0), f"{path.name}: no end in {0.9 * seconds:.0f} s"
    return (counts_of(report.read_text()), output) if report.exists() else (Counts(0, 1, 0), output)


def counts_of(junit: str) -> Counts:
    """Skips for another reason than the GPU's absence are the CPU's affair."""
    root = ElementTree.fromstring(junit)
    suites = list(root.iter("testsuite"))
    reasons = [skip.get("message", "") for skip in root.iter("skipped")]
    return Counts(
        tests=sum(int(suite.get("tests", 0)) for suite in suites) - len(reasons),
        failures=sum(int(suite.get("failures", 0)) + int(suite.get("errors", 0)) for suite in suites),
        skipped_for_the_gpu=sum("GPU" in reason or "CUDA" in reason or "cuda" in reason for reason in reasons),
        seconds=sum(float(suite.get("time", 0)) for suite in suites),
    )
