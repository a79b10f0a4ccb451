"""Compares imp with its peers: `python tests/bench/compare_peers FILE [--quick] [--json FILE] [--svg FILE] …`.

The peers are llama.cpp, OpenVINO GenAI and transformers, if they are installed (extra `peers`) and read the file, and
with --llama-bench any build of llama.cpp or of a fork, such as ik_llama.cpp. Each engine runs in its own process,
pinned to as many CPUs as it has threads. The engines take turns. Nothing else should run: a round in which other
processes used the CPUs is repeated. `make_model.py` in the parent folder writes model files.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

# In the place of this folder.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.compare_peers.engine_process import EngineProcess, engine_process  # noqa: E402
from bench.compare_peers.engines.protocol import RefusedError, Task  # noqa: E402
from bench.compare_peers.goals import scaling  # noqa: E402
from bench.compare_peers.outcome import IMP  # noqa: E402
from bench.compare_peers.report import Report  # noqa: E402
from bench.compare_peers.rounds import ShowProgress, compare  # noqa: E402
from bench.compare_peers.scenarios import QUICK, Scenarios  # noqa: E402
from bench.compare_peers.serve_engine import ENGINES  # noqa: E402
from bench.compare_peers.starts import compare_starts  # noqa: E402
from bench.compare_peers.table import HEADING, outcome_lines, start_lines  # noqa: E402
from bench.machine import processor  # noqa: E402
from imp_service import _core  # noqa: E402
from imp_service.cli.arguments import integers, positive_integer, positive_integers  # noqa: E402
from imp_service.cli.progress import Progress  # noqa: E402

ROOM = 256  # a cache rounds the tokens of a sequence up to a multiple of this


@dataclass(frozen=True)
class EnginesAsked:
    """The engines of the command line, imp first, and the binary of llama-bench."""

    names: list[str]
    llama_bench: str | None


def main() -> None:
    """Runs the comparison, prints each row, and writes the JSON and SVG files, also after a failure."""
    arguments = parsed()
    scenarios = scenarios_of(arguments)
    names = [IMP, *(name for name in arguments.engines.split(",") if name != IMP)]
    engines = EnginesAsked(names, None if arguments.llama_bench is None else str(arguments.llama_bench.resolve()))
    if not set(names) <= set(ENGINES):
        raise SystemExit(f"--engines: {arguments.engines}, expected names of {', '.join(ENGINES)}")
    print(f"{arguments.model.name} on {processor()}, load average {os.getloadavg()[0]:.2f}\n{HEADING}", flush=True)
    progress = Progress()
    report = Report(arguments.model)
    try:
        for threads in arguments.threads:
            compare_at(report, threads, scenarios, engines, progress)
        report.is_complete = True
    finally:
        report.write(arguments.json, arguments.svg)
    for verdict in scaling(report.outcomes):
        print(verdict.words)
    for name, why in report.left_out.items():
        print(f"{name}: left out: {why}")


def parsed() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="FILE", help="a GGUF file")
    parser.add_argument("--engines", default=",".join(ENGINES), metavar="NAME,…", help="default: %(default)s")
    parser.add_argument("--threads", type=positive_integers, default=(1, 2), metavar="N,…", help="default: 1,2")
    for option, kind, text in (
        ("--prefill", integers, "lengths of prompts; 0: none"),
        ("--depths", integers, "tokens held before generating alone"),
        ("--batches", positive_integers, "sequences that generate together from nothing"),
        ("--decode", positive_integer, "tokens that each generates"),
        ("--reps", positive_integer, "rounds"),
        ("--others", float, "CPUs that other processes may have in a round that counts"),
    ):
        parser.add_argument(option, type=kind, metavar="N", help=text)
    parser.add_argument("--quick", action="store_true", help="small sizes and two rounds, to see that it runs")
    parser.add_argument("--llama-bench", type=Path, metavar="PATH", help="the binary of the engine llama-bench")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement to FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the fractions of the ceilings into FILE")
    return parser.parse_args()


def scenarios_of(arguments: argparse.Namespace) -> Scenarios:
    """Returns the default scenarios with the sizes of the command line."""
    asked = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(Scenarios)}
    base = QUICK if arguments.quick else Scenarios()
    found = dataclasses.replace(base, **{name: value for name, value in asked.items() if value is not None})
    return dataclasses.replace(found, prefill=[tokens for tokens in found.prefill if tokens > 0])


def compare_at(report: Report, threads: int, scenarios: Scenarios, asked: EnginesAsked, progress: Progress) -> None:
    """Measures starts and cases at one number of threads, and adds them and the skipped engines to the report.

    Cases longer than the model's context are left out.
    """
    path = report.model
    metadata = _core.open_model_file(path).metadata
    vocab_size = len(metadata["tokenizer.ggml.tokens"])
    context = metadata[f"{metadata['general.architecture']}.context_length"]
    cases = [case for case in scenarios.cases(threads) if case.context <= context]
    kv_tokens = max(case.batch * -(-(case.context + 1) // ROOM) * ROOM for case in cases)
    task = Task(path.resolve(), threads, kv_tokens, vocab_size, asked.llama_bench)
    starts, refusals = compare_starts(task, asked.names, scenarios.reps, progress.show)
    progress.clear()
    report.starts += starts
    report.left_out |= refusals
    for start in starts:
        print("\n".join(start_lines(start, starts)), flush=True)
    with ExitStack() as held:
        engines = opened(held, task, [start.engine for start in starts], progress.show)
        for case in cases:
            outcome = compare(case, engines, scenarios, progress.show)
            progress.clear()
            print("\n".join(outcome_lines(outcome)), flush=True)
            report.outcomes.append(outcome)


def opened(held: ExitStack, task: Task, names: list[str], show: ShowProgress) -> list[EngineProcess]:
    """Loads all engines. They run until `held` closes."""
    engines = []
    for name in names:
        show(f"loading {name}")
        engines.append(held.enter_context(engine_process(name, task)))
    return engines


if __name__ == "__main__":
    try:
        main()
    except RefusedError as refusal:
        raise SystemExit(f"imp: {refusal}") from None
