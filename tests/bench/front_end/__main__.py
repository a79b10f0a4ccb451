"""Measures the cost of the front end: `python tests/bench/front_end [--json FILE] [--only WORD]… [--quick]`.

The server runs on one core and its client on another. Nothing else should run. gRPC and HTTP take turns within one run.
A row "HTTP in gRPC" is the ratio of HTTP to gRPC in each turn. Every figure is a median, with the least and the most.
The parts tokens, requests, memory and sessions need imp with the extension for its tests, whose engine always has a
token ready. The part gateway needs smg.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

# In the place of this folder.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.front_end.behind_smg import behind_smg  # noqa: E402
from bench.front_end.figure import Figure  # noqa: E402
from bench.front_end.memory import memory, resident_memory  # noqa: E402
from bench.front_end.model_and_sessions import abandoned_sessions, model_share  # noqa: E402
from bench.front_end.request_costs import request_costs  # noqa: E402
from bench.front_end.start_and_idle import idle, start_time  # noqa: E402
from bench.front_end.token_costs import token_costs  # noqa: E402
from bench.machine import processor  # noqa: E402
from support.needed import EXTENSION, TESTING, absent, missing_of  # noqa: E402

# The parts that need the extension for tests.
SCRIPTED = ("tokens", "requests", "memory", "sessions")

Part = Callable[[], Iterator[Figure]]


def parts(reps: int, scale: float) -> dict[str, list[Part]]:
    """Returns the parts by the words of --only. `scale` shrinks all of them."""
    n = lambda whole: max(1, int(whole * scale))  # noqa: E731
    return {
        "tokens": [
            lambda: token_costs(1, n(4000), None, reps),
            lambda: token_costs(1, n(4000), 1, reps),
            lambda: token_costs(64, n(2000), None, reps),
            lambda: token_costs(64, n(500), 1, reps),
        ],
        "requests": [lambda: request_costs(n(800), reps)],
        "start": [lambda: start_time(max(2, n(10)))],
        "idle": [lambda: idle(60.0 * scale)],
        "memory": [lambda: memory(n(500), n(2000), max(1, reps - 2)), lambda: resident_memory(max(1, reps - 2))],
        "gateway": [lambda: behind_smg(16, n(480), reps)],
        "sessions": [lambda: abandoned_sessions(n(10000), 10 if scale >= 1 else 4)],
        "model": [
            lambda: model_share("0.6b", "q8_0", 1, n(100), reps=reps, target=3.0),
            lambda: model_share("0.6b", "q8_0", 64, n(16), reps=reps, target=10.0),
        ],
    }


def main() -> None:
    """Measures, prints each figure, and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = parts(1, 1.0)
    parser.add_argument("--only", action="append", choices=known, help="one part; may be given again")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the work, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args()
    chosen = parts(1 if arguments.quick else 5, 0.01 if arguments.quick else 1.0)
    figures = []
    print(f"{'':74} {'median':>10} {'least':>10} {'most':>10}", flush=True)
    for word in measurable(arguments.only, known):
        for part in chosen[word]:
            for figure in part():
                print(line(figure), flush=True)
                figures.append(figure)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report(figures), indent=2) + "\n")


def measurable(only: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """Returns the parts that this installation can measure. Ends the program if one of `only` is not among them."""
    if not missing_of([EXTENSION]):
        return list(only or known)
    why = absent(EXTENSION, TESTING)
    if only is None:
        print(f"not measured: {', '.join(SCRIPTED)}: {why}", flush=True)
        return [word for word in known if word not in SCRIPTED]
    if wanted := [word for word in only if word in SCRIPTED]:
        raise SystemExit(f"--only {wanted[0]}: {why}")
    return list(only)


def line(figure: Figure) -> str:
    """Formats a row of the table."""
    spread = figure.spread
    numbers = " ".join(f"{value:10.4g}" for value in (spread.median, spread.least, spread.most))
    return f"{figure.name:74} {numbers} {figure.unit}{f'  (target: {figure.target})' if figure.target else ''}"


def report(figures: list[Figure]) -> dict[str, object]:
    """Returns the figures as JSON values."""
    rows = [{"name": f.name, "unit": f.unit, "target": f.target, **f.spread.as_json()} for f in figures]
    return {"machine": {"system": platform.platform(), "processor": processor()}, "figures": rows}


if __name__ == "__main__":
    main()
