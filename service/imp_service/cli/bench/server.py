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
    from imp_service.client.bench import LadderPlan, LadderReport, ServerFacts, VectorReport
    from imp_service.client.bench.vector_server import VectorServer

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
        ("--streams", positive_integers, "N,…", "1,4,16,64; for vectors 1", "concurrent streams"),
        (
            *("--prompt-tokens", positive_integer, "N", "128; for vectors 32"),
            "tokens of a prompt, or of a text that becomes a vector; no two prompts share a prefix",
        ),
        ("--tokens", positive_integer, "N", "64", "tokens of an answer"),
        ("--requests", positive_integer, "N", "2; for vectors 8", "requests of each stream in a repetition"),
    ):
        group.add_argument(option, metavar=metavar, type=kind, action=Once, help=f"{text} (default: {default})")
    group.add_argument("--html", metavar="FILE", action=Once, help="write a page with charts to FILE")
    add_connection_options(group)


def run_server(arguments: Namespace) -> int:
    import asyncio

    from imp_service.cli.preflight import silence_grpc

    silence_grpc()  # before its import
    from imp_service.client.bench import LadderPlan, LadderReport, page

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
    if arguments.html is not None and isinstance(report, LadderReport):  # of vectors it was refused
        Path(arguments.html).write_text(page(report), encoding="utf-8")
    if arguments.json:
        sys.stdout.write(json.dumps(report.as_json(), indent=1) + "\n")
    elif isinstance(report, LadderReport):
        _write_table(report)
    else:
        _write_vectors(report)
    _require_success(report)
    return 0


async def _run_ladder(arguments: Namespace, plan: "LadderPlan", progress: Progress) -> "LadderReport | VectorReport":
    from imp_service.client.bench import open_imp_server, run_ladder
    from imp_service.client.bench.imp_vectors import ImpVectors

    if URL.match(arguments.server):
        from imp_service.client.bench.openai_server import open_openai_model, openai_server
        from imp_service.client.bench.openai_vectors import OpenAiVectors

        headers, tls = http_caller_of(arguments, arguments.server, "--server")
        async with open_openai_model(arguments.server, headers, tls, arguments.served_model) as model:
            if model.dialect is None:
                return await _run_vectors(arguments, OpenAiVectors(model), progress)
            return await run_ladder(await openai_server(model, model.dialect, plan), plan, progress.show)
    if arguments.served_model is not None:
        raise CommandError("USAGE", "--served-model: has no effect with an imp.v1 server, which serves one model")
    # No retries: a refusal is a result of the measurement. So is the pause of a stream that goes on.
    target = target_of(arguments, arguments.server, attempts=1, option="--server", resumes=True)
    async with open_imp_server(target, plan) as imp_server:
        if imp_server.only_makes_vectors:
            return await _run_vectors(arguments, ImpVectors(imp_server), progress)
        return await run_ladder(imp_server, plan, progress.show)


async def _run_vectors(arguments: Namespace, server: "VectorServer", progress: Progress) -> "VectorReport":
    from imp_service.client.bench import VectorPlan, run_vectors

    for name in ("tokens", "html"):
        if getattr(arguments, name) is not None:
            raise CommandError("NOT_SUPPORTED_BY_MODEL", f"--{name}: this server's model generates no text")
    default, most = VectorPlan(), server.most_tokens
    plan = VectorPlan(
        levels=arguments.streams or default.levels,
        text_tokens=arguments.prompt_tokens or min(default.text_tokens, most or default.text_tokens),
        requests=arguments.requests or default.requests,
        reps=arguments.reps or default.reps,
    )
    return await run_vectors(server, plan, progress.show)


def _write_table(report: "LadderReport") -> None:
    from imp_service.cli.output import write_table
    from imp_service.client.bench import HEADINGS, level_row

    _write_head(report.title, report)
    sys.stdout.write(f"{report.lengths}\n")
    write_table(sys.stdout, HEADINGS, [level_row(level) for level in report.levels])


def _write_vectors(report: "VectorReport") -> None:
    from imp_service.cli.output import write_table
    from imp_service.client.bench.vectors import HEADINGS

    _write_head(report.facts.title, report.facts)
    write_table(sys.stdout, HEADINGS, [level.row for level in report.levels])


def _write_head(title: str, facts: "LadderReport | ServerFacts") -> None:
    server = " at ".join(filter(None, (facts.server, facts.address)))
    sys.stdout.write(f"{title}\n{', '.join(filter(None, (server, facts.device)))}\n")


def _require_success(report: "LadderReport | VectorReport") -> None:
    """Raises an error if every request failed."""
    if all(sum(level.failures.values()) == level.requests for level in report.levels):
        reason, times = next(iter(report.levels[0].failures.items()))
        raise CommandError(reason, f"every request failed, {times} of the first level for this reason")
