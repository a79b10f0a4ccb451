"""The command line and the order of the stages. Each stage is a separate process with its own time limit."""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path

from gpu_check import sources
from gpu_check.context import ROOT, Context, StageError
from gpu_check.packages import gather
from gpu_check.report import summary, write_report

DOOR = ROOT / "tools" / "gpu_check.py"
# The size limit of one file of the output folder.
MOST_BYTES = 15 << 20


@dataclass(frozen=True)
class Stage:
    """A module of `stages` with `run(context, seconds)`, and its time limits on a GPU machine and in a dry run."""

    name: str
    seconds: int
    dry_seconds: int
    is_required: bool = True
    least: int = 0  # reserved for it on a GPU machine, however long earlier stages take


# The stages in order. Comparators come last, because their time may run out.
STAGES = (
    Stage("probe", 20, 20),
    Stage("build", 240, 20, least=60),
    Stage("ceilings", 60, 20, least=15),
    Stage("numerics", 110, 60, least=80),
    Stage("sanitizer", 60, 30, is_required=False, least=30),  # without it no kernel is proven
    Stage("kernels", 80, 30, least=20),
    Stage("engine", 80, 30, least=40),
    Stage("service", 40, 40, least=25),
    Stage("ledger", 10, 20, least=10),
    Stage("comparators", 60, 30, is_required=False),
)
# The time limit of a whole run.
SECONDS = 530
DRY_SECONDS = 115
# A stage that --stages names has more time.
NAMED_FACTOR = 3


@dataclass(frozen=True)
class Outcome:
    """How a stage ended."""

    stage: str
    status: str  # "passed", "failed", "timed out" or "not reached"
    seconds: float
    is_required: bool
    message: str = ""

    @property
    def is_fatal(self) -> bool:
        return self.is_required and self.status != "passed"


def arguments_of(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__ or __doc__, epilog=plan_text(),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    names = [stage.name for stage in STAGES]
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="of the results (default: $OUT, else build/gpu_check)"
    )
    parser.add_argument("--only", type=comma_list, default=(), metavar="NAME,…", help="kernels (default: all)")
    parser.add_argument("--stages", type=comma_list, default=(), metavar="NAME,…", help=", ".join(names))
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="packages that the machine lacks")
    parser.add_argument("--gather", nargs=2, metavar=("FOLDER", "VERSION"),
                        help="do nothing but download what a machine with such a Python could lack (3.12)")  # fmt: skip
    parser.add_argument("--dry", action="store_true", help="all stages in small on the emulated device")
    parser.add_argument("--worker", choices=names, help=argparse.SUPPRESS)
    found = parser.parse_args(words)
    if unknown := sorted(set(found.stages) - set(names)):
        parser.error(f"--stages: {', '.join(unknown)}, expected some of {', '.join(names)}")
    # If imp is not installed yet, the stage that builds it checks this.
    if (kernels := sources.listed()) and (problem := sources.unknown(found.only, kernels)):
        parser.error(problem)
    if found.wheels is not None and not found.wheels.is_dir():
        parser.error(f"--wheels: {found.wheels} is no folder")
    if found.gather and Path(found.gather[0]).is_file():
        parser.error(f"--gather: {found.gather[0]} is a file, expected a folder")
    return found


def plan_text() -> str:
    """Returns the order of the stages and their time limits."""
    lines = [f"stages in their order, with the most seconds of each; at most {SECONDS} s in all:"]
    for stage in STAGES:
        kept = f"{stage.least} s are kept for it" if stage.least else "runs while there is time"
        lines += [f"  {stage.name:11} {stage.seconds:4}   {about(stage)}", f"{'':21}({kept})"]
    return "\n".join(lines)


def about(stage: Stage) -> str:
    """Returns the first line of the stage's module, without importing the module."""
    text = (Path(__file__).parent / "stages" / f"{stage.name}.py").read_text()
    return (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]


def comma_list(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def main(words: Sequence[str] | None = None) -> int:
    arguments = arguments_of(words)
    if arguments.gather:
        folder, version = arguments.gather
        return gather(Path(folder), version)
    out = arguments.out or Path(os.environ.get("OUT") or ROOT / "build" / "gpu_check")
    wheels = arguments.wheels.resolve() if arguments.wheels else None
    context = Context(out.resolve(), arguments.dry, arguments.only, wheels)
    if arguments.worker:
        return work(replace(context, stage=arguments.worker))
    # Findings do not count without the machine's description, so the probe, which is fast, always runs.
    chosen = [stage for stage in STAGES if not arguments.stages or stage.name in ("probe", *arguments.stages)]
    prepare(context, chosen)
    outcomes = run_stages(context, chosen, NAMED_FACTOR if arguments.stages else 1)
    print("\n".join(["", *summary(context, outcomes)]))
    return 1 if any(outcome.is_fatal for outcome in outcomes) else 0


def prepare(context: Context, stages: Sequence[Stage]) -> None:
    """Makes the output folder and removes what these stages write; findings of other stages still count."""
    context.out.mkdir(parents=True, exist_ok=True)
    names = {stage.name for stage in stages}
    context.forget(names)
    written = ["results.json", "report.md", "log.txt", *(["ledger.json"] if "ledger" in names else [])]
    for path in [context.out / name for name in written]:
        path.unlink(missing_ok=True)
    if "build" in names and not context.is_dry:
        context.python_path_file.unlink(missing_ok=True)


def run_stages(context: Context, stages: Sequence[Stage], factor: float = 1) -> list[Outcome]:
    """Runs the stages; each may take `factor` times its limit."""
    total = DRY_SECONDS if context.is_dry else SECONDS
    begin = time.monotonic()
    outcomes: list[Outcome] = []
    for stage in stages:
        kept = 0 if context.is_dry else sum(later.least for later in stages[stages.index(stage) + 1 :])
        left = total - (time.monotonic() - begin)
        limit = min(factor * seconds_for(stage, context.is_dry), left - kept)
        outcomes.append(run_stage(context, stage, limit))
        last = outcomes[-1]
        print(f"== {stage.name}: {last.status}, {last.seconds:.1f} s {last.message}", flush=True)
        write_results(context, outcomes)
        write_report(context, outcomes)
        if stage.name == "build" and last.is_fatal:
            left = stages[stages.index(stage) + 1 :]
            outcomes += [Outcome(s.name, "not reached", 0.0, s.is_required, "nothing was built") for s in left]
            break
    write_results(context, outcomes)
    write_report(context, outcomes)
    return outcomes


def seconds_for(stage: Stage, is_dry: bool) -> float:
    return stage.dry_seconds if is_dry else stage.seconds


def run_stage(context: Context, stage: Stage, limit: float) -> Outcome:
    if limit < 1:
        return Outcome(stage.name, "not reached", 0.0, stage.is_required, "no time was left")
    options = ["--only", ",".join(context.only)] if context.only else []
    options += ["--wheels", str(context.wheels)] if context.wheels else []
    options += ["--dry"] if context.is_dry else []
    begin = time.monotonic()
    log = context.out / "log.txt"
    with log.open("a") as file:
        file.write(f"\n==== {stage.name}, at most {limit:.0f} s\n")
        file.flush()
        at = file.tell()
        process = subprocess.Popen(
            [sys.executable, str(DOOR), "--out", str(context.out), "--worker", stage.name, *options],
            cwd=ROOT, env={**context.environment(), "GPU_CHECK_SECONDS": str(int(limit))}, stdin=subprocess.DEVNULL,
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        status, message = wait_for(process, limit)
    if status == "failed":
        message = last_line(log, at)
    shorten(log)
    return Outcome(stage.name, status, time.monotonic() - begin, stage.is_required, message)


def wait_for(process: subprocess.Popen[bytes], limit: float) -> tuple[str, str]:
    """Waits for a stage; at its limit kills it and all processes that it started."""
    try:
        return ("passed", "") if process.wait(timeout=limit) == 0 else ("failed", "")
    except subprocess.TimeoutExpired:
        return "timed out", f"after {limit:.0f} s; what it had found by then counts"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_line(log: Path, at: int) -> str:
    lines = [line for line in log.read_bytes()[at:].decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:1000] if lines else "nothing was said"


def shorten(log: Path) -> None:
    """Keeps only the end of a log that is too long."""
    if log.stat().st_size > MOST_BYTES:
        log.write_bytes(b"...\n" + log.read_bytes()[-MOST_BYTES // 2 :])


def write_results(context: Context, outcomes: Sequence[Outcome]) -> None:
    document = {"stages": [asdict(outcome) for outcome in outcomes], "findings": list(context.rows())}
    beside = context.out / "results.json.part"
    beside.write_text(json.dumps(document, indent=0))
    beside.replace(context.out / "results.json")


def work(context: Context) -> int:
    """Runs a stage; its own process calls this."""
    sys.path[:] = [path for path in sys.path if path]
    module = import_module(f"gpu_check.stages.{context.stage}")
    try:
        module.run(context, float(os.environ.get("GPU_CHECK_SECONDS", "60")))
    except StageError as error:
        print(f"{context.stage}: {error}", flush=True)
        return 1
    except Exception:
        traceback.print_exc(file=sys.stdout)
        return 1
    return 0
