"""imp beside its peers on one file: `python tests/bench/compare_peers FILE [--quick] [--json FILE] [--svg FILE] …`.

Peers are llama.cpp, OpenVINO GenAI and transformers, each where it is installed and reads the file. Every engine has a
process of its own, pinned to as many CPUs as it has threads; they take turns, and nothing else should run: rounds in
which others had the CPUs are taken again. `make_model.py` beside this folder writes files to compare on.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from contextlib import ExitStack
from pathlib import Path

# In the place of this folder.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.compare_peers.engine_process import EngineProcess, engine_process  # noqa: E402
from bench.compare_peers.engines.protocol import RefusedError, Task  # noqa: E402
from bench.compare_peers.goals import scaling  # noqa: E402
from bench.compare_peers.outcome import IMP  # noqa: E402
from bench.compare_peers.report import Report  # noqa: E402
from bench.compare_peers.rounds import Tell, compare  # noqa: E402
from bench.compare_peers.scenarios import QUICK, Scenarios  # noqa: E402
from bench.compare_peers.serve_engine import ENGINES  # noqa: E402
from bench.compare_peers.starts import compare_starts  # noqa: E402
from bench.compare_peers.table import HEADING, outcome_lines, start_lines  # noqa: E402
from bench.front_end.__main__ import processor  # noqa: E402
from imp_service import _core  # noqa: E402
from imp_service.cli.arguments import integers, positive_integer, positive_integers  # noqa: E402
from imp_service.cli.progress import Progress  # noqa: E402

ROOM = 256  # what a sequence's tokens are rounded up to in a cache


def main() -> None:
    """Compares, tells each row as it comes, and writes all of them where asked to, those before a failure too."""
    arguments = parsed()
    scenarios = scenarios_of(arguments)
    names = [IMP, *(name for name in arguments.engines.split(",") if name != IMP)]
    if not set(names) <= set(ENGINES):
        raise SystemExit(f"--engines: {arguments.engines}, expected names of {', '.join(ENGINES)}")
    print(f"{arguments.model.name} on {processor()}, load average {os.getloadavg()[0]:.2f}\n{HEADING}", flush=True)
    progress = Progress()
    report = Report(arguments.model)
    try:
        for threads in arguments.threads:
            compare_at(report, threads, scenarios, names, progress)
        report.is_complete = True
    finally:
        report.write(arguments.json, arguments.svg)
    for verdict in scaling(report.outcomes):
        print(verdict.words)
    for name, why in report.left_out.items():
        print(f"{name}: left out: {why}")


def parsed() -> argparse.Namespace:
    """The command line."""
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement to FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the fractions of the ceilings into FILE")
    return parser.parse_args()


def scenarios_of(arguments: argparse.Namespace) -> Scenarios:
    """What is asked for, in the place of the sizes that are there without asking."""
    asked = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(Scenarios)}
    base = QUICK if arguments.quick else Scenarios()
    found = dataclasses.replace(base, **{name: value for name, value in asked.items() if value is not None})
    return dataclasses.replace(found, prefill=[tokens for tokens in found.prefill if tokens > 0])


def compare_at(report: Report, threads: int, scenarios: Scenarios, names: list[str], progress: Progress) -> None:
    """Everything at one number of threads, each into the report as it comes: starts, cases, and engines left out.

    Cases that are longer than the model's context are not the model's.
    """
    path = report.model
    metadata = _core.open_model_file(path).metadata
    vocab_size = len(metadata["tokenizer.ggml.tokens"])
    context = metadata[f"{metadata['general.architecture']}.context_length"]
    cases = [case for case in scenarios.cases(threads) if case.context <= context]
    kv_tokens = max(case.batch * -(-(case.context + 1) // ROOM) * ROOM for case in cases)
    task = Task(path.resolve(), threads, kv_tokens, vocab_size)
    starts, refusals = compare_starts(task, names, scenarios.reps, progress.show)
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


def opened(held: ExitStack, task: Task, names: list[str], tell: Tell) -> list[EngineProcess]:
    """All of them loaded, until `held` closes."""
    engines = []
    for name in names:
        tell(f"loading {name}")
        engines.append(held.enter_context(engine_process(name, task)))
    return engines


if __name__ == "__main__":
    try:
        main()
    except RefusedError as refusal:
        raise SystemExit(f"imp: {refusal}") from None
