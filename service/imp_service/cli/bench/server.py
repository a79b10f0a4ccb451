"""imp bench --server: measures a server's speed with an increasing number of concurrent streams."""

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once, positive_integer, positive_integers
from imp_service.cli.failure import CommandError
from imp_service.cli.options.connection import add_connection_options, target_of
from imp_service.cli.progress import Progress

if TYPE_CHECKING:
    from imp_service.client.bench import LadderReport


def add_server_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("a running server, as its clients see it")
    group.add_argument(
        "--server", metavar="ADDRESS", action=Once, help="measure this server: host:port or unix:///path"
    )
    for option, kind, metavar, default, text in (
        ("--streams", positive_integers, "N,…", "1,4,16,64", "concurrent streams"),
        ("--prompt-tokens", positive_integer, "N", "128", "tokens of a prompt; no two prompts share a prefix"),
        ("--tokens", positive_integer, "N", "64", "tokens of an answer"),
        ("--requests", positive_integer, "N", "2", "requests of each stream in a repetition"),
    ):
        group.add_argument(option, metavar=metavar, type=kind, action=Once, help=f"{text} (default: {default})")
    group.add_argument("--html", metavar="FILE", action=Once, help="write a page with charts to FILE")
    add_connection_options(group)


def run_server(arguments: Namespace) -> int:
    import asyncio

    from imp_service.cli.preflight import silence_grpc

    silence_grpc()  # before its import
    from imp_service.client.bench import LadderPlan, climb, page

    default = LadderPlan()
    plan = LadderPlan(
        levels=arguments.streams or default.levels,
        prompt_tokens=arguments.prompt_tokens or default.prompt_tokens,
        output_tokens=arguments.tokens or default.output_tokens,
        requests=arguments.requests or default.requests,
        reps=arguments.reps or default.reps,
    )
    # No retries: a refusal is a result of the measurement.
    target = target_of(arguments, arguments.server, attempts=1, option="--server")
    progress = Progress()
    try:
        report = asyncio.run(climb(target, plan, progress.show))
    finally:
        progress.clear()
    if arguments.html is not None:
        Path(arguments.html).write_text(page(report), encoding="utf-8")
    if arguments.json:
        sys.stdout.write(json.dumps(report.as_json(), indent=1) + "\n")
    else:
        _write_table(report)
    _require_success(report)
    return 0


def _write_table(report: "LadderReport") -> None:
    from imp_service.cli.output import write_table
    from imp_service.client.bench import HEADINGS, level_row

    plan = report.plan
    sys.stdout.write(f"{report.model} ({report.weights})\n{report.server} at {report.address}, {report.device}\n")
    sys.stdout.write(f"prompts of {plan.prompt_tokens} tokens, answers of {plan.output_tokens}\n")
    write_table(sys.stdout, HEADINGS, [level_row(level) for level in report.levels])


def _require_success(report: "LadderReport") -> None:
    """Raises an error if every request failed."""
    if all(sum(level.failures.values()) == level.requests for level in report.levels):
        reason, times = next(iter(report.levels[0].failures.items()))
        raise CommandError(reason, f"every request failed, {times} of the first level for this reason")
