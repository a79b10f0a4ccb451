"""Compares `imp serve` with llama-server: `python tools/compare servers FILE --llama-server PATH [--quick] …`.

Both servers load the same GGUF file, run on the same CPUs and have a slot for every client. The comparison measures
each server over its own API (imp over gRPC, llama-server over HTTP), and then both over the OpenAI API. The servers
take turns within one run; a round in which other processes used the CPUs is repeated. Each client sends its next
request as soon as it has an answer, so prompts arrive while other clients generate. Prompts are random tokens; answers
are greedy and have a fixed length. All clients run in one thread of this process. The thread has a CPU of its own if
the machine has one more than the servers use. Otherwise it shares the servers' CPUs, and the table shows its share. No
package but imp is needed.

Build llama-server from the source distribution of llama-cpp-python, with the native options that the engine llama.cpp
of `python tools/compare peers` has:

    pip download --no-binary llama-cpp-python --no-deps llama-cpp-python && tar xf llama_cpp_python-*.tar.gz
    cmake -S llama_cpp_python-*/vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \\
        -DBUILD_SHARED_LIBS=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF
    cmake --build build --target llama-server      # build/bin/llama-server
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from compare.ceiling import Ceiling
from compare.options import add_round_options, parser_of
from compare.outcome import Outcome
from compare.report import Report, processor
from compare.rounds import Rules, compare
from compare.servers.goals import verdicts
from compare.servers.load import NATIVE, OPENAI, Load
from compare.servers.servers import imp_server, llama_server
from compare.table import OutcomeTable
from imp_service.cli.arguments import positive_integer, positive_integers
from imp_service.cli.progress import Progress

REPS = 3


def of_medians(text: Callable[[Callable[[str], float]], str]) -> Callable[[Outcome, str], str]:
    """Returns the cells of a column, from a function of the median of a figure."""
    return lambda outcome, server: text(lambda figure: outcome.spread(server, figure).median)


TABLE = OutcomeTable(
    (
        ("first token p50, p99", 20),
        of_medians(lambda median: f"{median('first_token_p50'):.3f} s {median('first_token_p99'):.3f} s"),
    ),
    (
        ("between p50, p99", 16),
        of_medians(lambda median: f"{1e3 * median('inter_token_p50'):.1f} {1e3 * median('inter_token_p99'):.1f} ms"),
    ),
    (("p99/p50", 7), of_medians(lambda median: f"{median('inter_token_p99_in_p50'):.2f}")),
    (("client CPU", 10), of_medians(lambda median: f"{100 * median('client_cpu_share'):.0f} %")),
)


def main(words: Sequence[str]) -> None:
    """Runs every load, prints each result, and writes the JSON and SVG files, also after a failure."""
    arguments = parsed(words)
    path: Path = arguments.model.resolve()
    all_cpus = sorted(os.sched_getaffinity(0))
    server_cpus, spare = all_cpus[: arguments.threads], all_cpus[arguments.threads :]
    ceiling = Ceiling.of(path, server_cpus)
    where = f"CPU {spare[0]}" if spare else "the servers' CPUs"
    print(f"{path.name} on {processor()}: servers on CPUs {server_cpus}, clients on {where}", flush=True)
    print(TABLE.heading, flush=True)
    rules, progress = Rules(arguments.reps or (1 if arguments.quick else REPS), arguments.others), Progress()
    with Report("servers", arguments, model=path.name, threads=arguments.threads) as report:
        for load in loads(arguments):
            with ExitStack() as held:
                # Child processes and threads inherit the affinity.
                os.sched_setaffinity(0, server_cpus)
                servers = [held.enter_context(imp_server(path, arguments.threads, load, ceiling.vocab_size))]
                if arguments.llama_server is not None:
                    binary = arguments.llama_server.resolve()
                    peer = llama_server(binary, path, arguments.threads, load, ceiling.vocab_size)
                    servers.append(held.enter_context(peer))
                os.sched_setaffinity(0, spare[:1] or server_cpus)
                for api in arguments.api or (NATIVE, OPENAI):
                    asked = replace(load, api=api)
                    outcome = compare(asked, servers, asked.work(ceiling), rules, progress.show)
                    progress.clear()
                    found = verdicts(outcome)
                    print("\n".join(TABLE.lines(outcome, found)), flush=True)
                    report.add(outcome, found)


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of("servers", __doc__)
    parser.add_argument("model", type=Path, metavar="FILE", help="a GGUF file, with a tokenizer")
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="without it imp is measured alone")
    parser.add_argument("--api", action="append", choices=(NATIVE, OPENAI), help="only this one; default: both")
    for option, kind, default, text in (
        ("--clients", positive_integers, (1, 4, 16, 64), "how many ask at once"),
        ("--prompt", positive_integer, 256, "tokens of a prompt"),
        ("--tokens", positive_integer, 64, "tokens of an answer"),
        ("--requests", positive_integer, 2, "requests of each client in a round"),
        ("--threads", positive_integer, 2, "threads of each server"),
    ):
        parser.add_argument(option, type=kind, metavar="N", default=default, help=f"{text}; default: %(default)s")
    add_round_options(parser, REPS)
    return parser.parse_args(words)


def loads(arguments: argparse.Namespace) -> Sequence[Load]:
    """Returns one load for each number of clients."""
    if arguments.quick:
        return [Load(clients, 32, 8, requests=1) for clients in (1, 4)]
    return [Load(clients, arguments.prompt, arguments.tokens, arguments.requests) for clients in arguments.clients]
