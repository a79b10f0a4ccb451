"""Compares imp with its peers: `python tools/compare peers FILE [--quick] [--json FILE] [--svg FILE] …`.

The peers are llama.cpp, OpenVINO GenAI and transformers, if they are installed (extra `peers`) and read the file, and
with --llama-bench any build of llama.cpp or of a fork, such as ik_llama.cpp. Each engine runs in its own process,
pinned to as many CPUs as it has threads. The engines take turns. Nothing else should run: a round in which other
processes used the CPUs is repeated. `python tools/make_model.py` writes model files. --also adds imp once more, with
other settings: `--also kv.dtype=rot8`, or several, separated by spaces.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from compare.caches import room_of
from compare.ceiling import Ceiling, LeastWork
from compare.options import add_round_options, parser_of
from compare.outcome import IMP, SECONDS, SPEED, Outcome
from compare.peers.engine_process import EngineProcess, engine_process
from compare.peers.engines.protocol import ENGINES, Task
from compare.peers.goals import scaling, verdicts
from compare.peers.scenarios import QUICK, Scenarios
from compare.peers.starts import Start, StartedEngine
from compare.report import Report, processor
from compare.rounds import Engine, Rules, ShowProgress, compare
from compare.table import OutcomeTable
from imp_service import _core
from imp_service.cli.arguments import integers, positive_integer, positive_integers
from imp_service.cli.progress import Progress
from imp_service.core.bench.cases import Case

MIB = 1024**2


def remark(outcome: Outcome, name: str) -> str:
    """Returns the last cell of an engine: the memory of a start, or that it is the best peer."""
    if outcome.case.kind != "start":
        return "the best peer" if name == outcome.best_peer else ""
    peak, size = (outcome.spread(name, figure).median for figure in ("peak_bytes", "file_bytes"))
    return f"peak {peak / MIB:.0f} MiB ({peak / size:.2f} × the file)"


TABLE = OutcomeTable((("", 0), remark))


@dataclass(frozen=True)
class Asked:
    """What the command line asks for. imp is the first of `engines`."""

    model: Path
    scenarios: Scenarios
    rules: Rules
    engines: list[str]  # names, and the variants of imp
    llama_bench: str | None  # a binary


def main(words: Sequence[str]) -> None:
    """Runs the comparison, prints each row, and writes the JSON and SVG files, also after a failure."""
    arguments = parsed(words)
    asked = asked_of(arguments)
    print(f"{asked.model.name} on {processor()}, load average {os.getloadavg()[0]:.2f}\n{TABLE.heading}", flush=True)
    with Report("peers", arguments, model=asked.model.name) as report:
        for threads in arguments.threads:
            compare_at(report, threads, asked, Progress())
            report.facts["scaling"] = [verdict.as_json() for verdict in scaling(report.outcomes)]
    for verdict in scaling(report.outcomes):
        print(verdict.words)
    for name, why in report.left_out.items():
        print(f"{name}: left out: {why}")
    for name, note in report.notes.items():
        print(f"{name}: {note}")


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of("peers", __doc__)
    parser.add_argument("model", type=Path, metavar="FILE", help="a GGUF file")
    parser.add_argument("--engines", default=",".join(ENGINES), metavar="NAME,…", help="default: %(default)s")
    parser.add_argument("--also", action="append", default=[], metavar="KEY=VALUE", help="imp with these settings too")
    parser.add_argument("--threads", type=positive_integers, default=(1, 2), metavar="N,…", help="default: 1,2")
    for option, kind, text in (
        ("--prefill", integers, "lengths of prompts; 0: none"),
        ("--depths", integers, "tokens held before generating alone"),
        ("--batches", positive_integers, "sequences that generate together from nothing"),
        ("--decode", positive_integer, "tokens that each generates"),
    ):
        parser.add_argument(option, type=kind, metavar="N", help=text)
    add_round_options(parser, Scenarios.reps)
    parser.add_argument("--llama-bench", type=Path, metavar="PATH", help="the binary of the engine llama-bench")
    return parser.parse_args(words)


def asked_of(arguments: argparse.Namespace) -> Asked:
    """Returns the default scenarios with the sizes of the command line."""
    names = [IMP, *(name for name in arguments.engines.split(",") if name != IMP)]
    if not set(names) <= set(ENGINES):
        raise SystemExit(f"--engines: {arguments.engines}, expected names of {', '.join(ENGINES)}")
    sizes = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(Scenarios)}
    base = QUICK if arguments.quick else Scenarios()
    found = dataclasses.replace(base, **{name: value for name, value in sizes.items() if value is not None})
    found = dataclasses.replace(found, prefill=[tokens for tokens in found.prefill if tokens > 0])
    llama_bench = None if arguments.llama_bench is None else str(arguments.llama_bench.resolve())
    variants = [f"{IMP} {settings}" for settings in arguments.also]
    return Asked(arguments.model, found, Rules(found.reps, arguments.others), [*names, *variants], llama_bench)


def compare_at(report: Report, threads: int, asked: Asked, progress: Progress) -> None:
    """Measures starts and cases at one number of threads, and adds them and the skipped engines to the report.

    Cases longer than the model's context are left out.
    """
    path = asked.model.resolve()
    metadata = _core.open_model_file(path).metadata
    context = metadata[f"{metadata['general.architecture']}.context_length"]
    cases = [case for case in asked.scenarios.cases(threads) if case.context <= context]
    kv_tokens = max(case.batch * room_of(case.context + 1) for case in cases)
    task = Task(path, threads, kv_tokens, len(metadata["tokenizer.ggml.tokens"]), asked.llama_bench)
    ceiling = Ceiling.of(path, sorted(os.sched_getaffinity(0))[:threads])

    def measure(case: Case | Start, engines: Sequence[Engine]) -> Outcome:
        outcome = compare(case, engines, work_of(case, ceiling), asked.rules, progress.show)
        progress.clear()
        found = verdicts(outcome)
        print("\n".join(TABLE.lines(outcome, found, SECONDS if case.kind == "start" else SPEED)), flush=True)
        report.add(outcome, found)
        return outcome

    started = [StartedEngine(name, task) for name in asked.engines]
    start = measure(Start(threads), started)
    report.left_out |= start.refusals
    report.notes |= {engine.name: engine.note for engine in started if engine.note is not None}
    with ExitStack() as held:
        engines = opened(held, task, start.engines, progress.show)
        for case in cases:
            measure(case, engines)


def work_of(case: Case | Start, ceiling: Ceiling) -> LeastWork:
    """Returns the least that a case reads and computes."""
    if case.kind == "decode":
        work = ceiling.model.decode(case.batch, case.depth, case.tokens)
    else:
        work = ceiling.prefill(1 if case.kind == "start" else case.tokens)
    return ceiling.work(work.tokens, [work])


def opened(held: ExitStack, task: Task, names: list[str], show: ShowProgress) -> list[EngineProcess]:
    """Loads all engines. They run until `held` closes."""
    engines = []
    for name in names:
        show(f"loading {name}")
        engines.append(held.enter_context(engine_process(name, task)))
    return engines
