"""imp bench --server: measures a server's speed with an increasing number of concurrent streams."""

import json
import re
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once, positive_integer, positive_integers
from imp_service.cli.failure import CommandError
from imp_service.cli.options.connection import KEY_VARIABLE, add_connection_options, http_caller_of, target_of
from imp_service.cli.progress import Progress

if TYPE_CHECKING:
    from imp_service.client.bench import LadderPlan, LadderReport

URL = re.compile(r"(?i)https?://")


def add_server_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("a running server, as its clients see it")
    group.add_argument(
        "--server",
        metavar="ADDRESS",
        action=Once,
        help="measure this server: host:port or unix:///path of an imp.v1 server, http(s)://host:port of any "
        f"OpenAI-compatible server; its bearer token comes from --token-file or --token-env, else ${KEY_VARIABLE}",
    )
    group.add_argument(
        "--served-model", metavar="NAME", action=Once, help="the model to ask for over HTTP (default: the first listed)"
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
    from imp_service.client.bench import LadderPlan, page

    default = LadderPlan()
    plan = LadderPlan(
        levels=arguments.streams or default.levels,
        prompt_tokens=arguments.prompt_tokens or default.prompt_tokens,
        output_tokens=arguments.tokens or default.output_tokens,
        requests=arguments.requests or default.requests,
        reps=arguments.reps or default.reps,
    )
    progress = Progress()
    try:
        report = asyncio.run(_run_ladder(arguments, plan, progress))
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


async def _run_ladder(arguments: Namespace, plan: "LadderPlan", progress: Progress) -> "LadderReport":
    from imp_service.client.bench import open_imp_server, run_ladder

    if URL.match(arguments.server):
        from imp_service.client.bench.openai_server import open_openai_server

        headers, tls = http_caller_of(arguments, arguments.server, "--server")
        async with open_openai_server(arguments.server, plan, headers, tls, arguments.served_model) as openai_server:
            return await run_ladder(openai_server, plan, progress.show)
    if arguments.served_model is not None:
        raise CommandError("USAGE", "--served-model: has no effect with an imp.v1 server, which serves one model")
    # No retries: a refusal is a result of the measurement.
    target = target_of(arguments, arguments.server, attempts=1, option="--server")
    async with open_imp_server(target, plan) as imp_server:
        return await run_ladder(imp_server, plan, progress.show)


def _write_table(report: "LadderReport") -> None:
    from imp_service.cli.output import write_table
    from imp_service.client.bench import HEADINGS, level_row

    server = " at ".join(filter(None, (report.server, report.address)))
    sys.stdout.write(f"{report.title}\n{', '.join(filter(None, (server, report.device)))}\n")
    sys.stdout.write(f"{report.lengths}\n")
    write_table(sys.stdout, HEADINGS, [level_row(level) for level in report.levels])


def _require_success(report: "LadderReport") -> None:
    """Raises an error if every request failed."""
    if all(sum(level.failures.values()) == level.requests for level in report.levels):
        reason, times = next(iter(report.levels[0].failures.items()))
        raise CommandError(reason, f"every request failed, {times} of the first level for this reason")
