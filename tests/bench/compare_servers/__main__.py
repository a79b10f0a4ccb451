"""Compares `imp serve` with llama-server: `python tests/bench/compare_servers FILE --llama-server PATH [--quick] …`.

Both servers load the same GGUF file, run on the same CPUs and have a slot for every client. The comparison measures
each server over its own API (imp over gRPC, llama-server over HTTP), and then both over the OpenAI API. The servers
take turns within one run. Each client sends its next request as soon as it has an answer, so prompts arrive while
other clients generate. Prompts are random tokens; answers are greedy and have a fixed length. All clients run in one
thread of this process. The thread has a CPU of its own if the machine has one more than the servers use. Otherwise it
shares the servers' CPUs, and the table shows its share. No package but imp is needed.

Build llama-server from the source distribution of llama-cpp-python, with the same native options as compare_peers:

    pip download --no-binary llama-cpp-python --no-deps llama-cpp-python && tar xf llama_cpp_python-*.tar.gz
    cmake -S llama_cpp_python-*/vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \\
        -DBUILD_SHARED_LIBS=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF
    cmake --build build --target llama-server      # build/bin/llama-server
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

# Import the test packages, not the modules of this folder.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.compare_peers.chart import chart  # noqa: E402
from bench.compare_servers.goals import verdicts  # noqa: E402
from bench.compare_servers.limit import Limit  # noqa: E402
from bench.compare_servers.load import NATIVE, OPENAI, Load  # noqa: E402
from bench.compare_servers.outcome import Outcome  # noqa: E402
from bench.compare_servers.rounds import compare  # noqa: E402
from bench.compare_servers.servers import imp_server, llama_server  # noqa: E402
from bench.compare_servers.table import HEADING, lines  # noqa: E402
from bench.machine import processor  # noqa: E402
from imp_service.cli.arguments import positive_integer, positive_integers  # noqa: E402
from imp_service.cli.progress import Progress  # noqa: E402


def main() -> None:
    """Runs every load, prints each result, and writes the JSON and SVG files."""
    arguments = parsed()
    path: Path = arguments.model.resolve()
    all_cpus = sorted(os.sched_getaffinity(0))
    server_cpus, spare = all_cpus[: arguments.threads], all_cpus[arguments.threads :]
    limit = Limit.of(path, server_cpus)
    where = f"CPU {spare[0]}" if spare else "the servers' CPUs"
    print(f"{path.name} on {processor()}: servers on CPUs {server_cpus}, clients on {where}\n{HEADING}", flush=True)
    progress = Progress()
    outcomes: list[Outcome] = []
    try:
        for load in loads(arguments):
            with ExitStack() as held:
                # Child processes and threads inherit the affinity.
                os.sched_setaffinity(0, server_cpus)
                servers = [held.enter_context(imp_server(path, arguments.threads, load))]
                if arguments.llama_server is not None:
                    peer = llama_server(arguments.llama_server.resolve(), path, arguments.threads, load)
                    servers.append(held.enter_context(peer))
                os.sched_setaffinity(0, spare[:1] or server_cpus)
                for api in arguments.api or (NATIVE, OPENAI):
                    asked = replace(load, api=api)
                    outcomes.append(compare(asked, servers, limit, arguments.reps, progress.show))
                    progress.clear()
                    print("\n".join(lines(outcomes[-1])), flush=True)
    finally:
        progress.clear()
        write(path, outcomes, arguments)


def parsed() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="FILE", help="a GGUF file, with a tokenizer")
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="without it imp is measured alone")
    parser.add_argument("--api", action="append", choices=(NATIVE, OPENAI), help="only this one; default: both")
    for option, kind, default, text in (
        ("--clients", positive_integers, (1, 4, 16, 64), "how many ask at once"),
        ("--prompt", positive_integer, 256, "tokens of a prompt"),
        ("--tokens", positive_integer, 64, "tokens of an answer"),
        ("--requests", positive_integer, 2, "requests of each client in a round"),
        ("--reps", positive_integer, 3, "rounds"),
        ("--threads", positive_integer, 2, "threads of each server"),
    ):
        parser.add_argument(option, type=kind, metavar="N", default=default, help=f"{text}; default: %(default)s")
    parser.add_argument(
        "--quick", action="store_true", help="short answers, few clients, one round: to see that it runs"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement to FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the fractions of the limits into FILE")
    return parser.parse_args()


def loads(arguments: argparse.Namespace) -> Sequence[Load]:
    """Returns one load for each API and number of clients."""
    if arguments.quick:
        return [Load(clients, 32, 8, requests=1) for clients in (1, 4)]
    return [Load(clients, arguments.prompt, arguments.tokens, arguments.requests) for clients in arguments.clients]


def write(path: Path, outcomes: Sequence[Outcome], arguments: argparse.Namespace) -> None:
    """Writes the results, also those before a failure. Without results it keeps the existing files."""
    if not outcomes:
        return
    if arguments.json is not None:
        report = {
            "schema": "imp.compare_servers.v2",
            "model": path.name,
            "machine": {"processor": processor(), "load_average": os.getloadavg()},
            "threads": arguments.threads,
            "loads": [
                outcome.as_json() | {"goals": [verdict.as_json() for verdict in verdicts(outcome)]}
                for outcome in outcomes
            ],
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    if arguments.svg is not None:
        arguments.svg.write_text(chart(path.stem, outcomes))


if __name__ == "__main__":
    main()
