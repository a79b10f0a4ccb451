"""Measures the cost of the front end: `python tools/compare front_end [--json FILE] [--only WORD]… [--quick]`.

The server runs on one core and its client on another. Nothing else should run. gRPC and HTTP take turns within one run.
A row "HTTP in gRPC" is the ratio of HTTP to gRPC in each turn. Every figure is a median, with the least and the most.
The parts tokens, requests, memory, sessions and relay need imp with the extension for its tests, whose engine always
has a token ready. The part gateway needs smg.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from compare.front_end.behind_smg import behind_smg
from compare.front_end.figure import Figure
from compare.front_end.memory import memory, resident_memory
from compare.front_end.model_and_sessions import abandoned_sessions, model_share
from compare.front_end.relay_costs import relay_costs, relay_first_token
from compare.front_end.request_costs import request_costs
from compare.front_end.start_and_idle import idle, start_time
from compare.front_end.token_costs import token_costs
from compare.options import parser_of
from compare.report import Report
from compare.table import SPREAD, Table, numbers
from support.run.needed import EXTENSION, TESTING, absent, missing_of

TABLE = Table([("", -74), *SPREAD])
# The parts that need the extension for tests.
SCRIPTED = ("tokens", "requests", "memory", "sessions", "relay")

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
        "relay": [
            lambda: relay_costs("0.6b", "q8_0", 16, n(100), reps),
            lambda: relay_first_token(n(300), reps),
        ],
        "model": [
            lambda: model_share("0.6b", "q8_0", 1, n(100), reps=reps, target=3.0),
            lambda: model_share("0.6b", "q8_0", 64, n(16), reps=reps, target=10.0),
        ],
    }


def main(words: Sequence[str]) -> None:
    """Measures, prints each figure, and writes the JSON file."""
    parser = parser_of("front_end", __doc__)
    known = parts(1, 1.0)
    parser.add_argument("--only", action="append", choices=known, help="one part; may be given again")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the work, to see that it runs")
    arguments = parser.parse_args(words)
    chosen = parts(1 if arguments.quick else 5, 0.01 if arguments.quick else 1.0)
    print(TABLE.heading, flush=True)
    with Report("front_end", arguments) as report:
        for word in measurable(arguments.only, known):
            for part in chosen[word]:
                for figure in part():
                    target = f"  (target: {figure.target})" if figure.target else ""
                    print(f"{TABLE.row(figure.name, *numbers(figure.spread))} {figure.unit}{target}", flush=True)
                    report.rows["figures"].append(figure.as_json())


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
