"""imp serve: serves a model over gRPC until it is told to stop."""

import asyncio
import gc
import json
import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once
from imp_service.cli.failure import CommandError, describe, report
from imp_service.cli.model_options import add_model_options, load_model_settings
from imp_service.cli.stop_signals import StopSignals

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.core.early_load import EarlyLoad


def configure(parser: ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument(
        "--listen", metavar="ADDRESS", action="append", help="serve on host:port or unix:///path; may be given again"
    )
    parser.add_argument(
        "--ready-file", metavar="FILE", action=Once, help="write the addresses as JSON to FILE once requests are served"
    )


def run(arguments: Namespace) -> int:
    from imp_service.cli.library_switches import quiet_grpc, rest_openblas
    from imp_service.cli.thread_room import require_threads
    from imp_service.config.host import resolve_threads
    from imp_service.config.sources import of_option
    from imp_service.core.early_load import EarlyLoad
    from imp_service.serving.no_core import leave_no_core

    leave_no_core()
    # What a start makes is here to stay: looks for garbage among it, again and again, took a quarter of the time.
    gc.disable()
    signals = StopSignals()
    listen = [] if arguments.listen is None else [of_option("--listen", "listen.grpc", json.dumps(arguments.listen))]
    config = resolve_threads(load_model_settings(arguments, listen))
    require_threads(config.settings)
    quiet_grpc()
    rest_openblas()
    ready_file = None if arguments.ready_file is None else Path(arguments.ready_file)
    # What a server is made of takes as long to import as weights to read: both at once.
    early = EarlyLoad(config)
    try:
        return asyncio.run(_serve(config, early, ready_file, signals))
    except Exception as error:
        if not early.end():
            os._exit(report(*describe(error)))
        raise


async def _serve(config: "Config", early: "EarlyLoad", ready_file: Path | None, signals: StopSignals) -> int:
    from imp_service.cli.loading import LoadingLine
    from imp_service.rpc.service import Service
    from imp_service.serving.loading import make_model_of
    from imp_service.telemetry.log_capture import capture

    line = LoadingLine()
    service = Service(config, line, make_model_of(early))
    signals.call(asyncio.get_running_loop(), service.stop)

    def on_serving() -> None:
        from imp_service.cli.serving_lines import facts, tell

        line.clear()
        gc.freeze()
        gc.enable()
        if ready_file is not None:
            write_ready_file(ready_file, facts(service))
        tell(service)

    give_back = capture(service.host.telemetry.log)
    try:
        await service.run(on_serving)
    finally:
        line.clear()
        give_back()
    if service.is_abandoned or not early.end():
        sys.stderr.flush()
        os._exit(0)
    return 0


def write_ready_file(path: Path, facts: dict[str, object]) -> None:
    """Whole or not at all: whoever waits for the file may read it at once."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(json.dumps(facts) + "\n")
        partial.replace(path)
    except OSError as error:
        raise CommandError("CANNOT_CREATE", f"{path}: {error.strerror}") from None
