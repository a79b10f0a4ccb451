"""imp serve: serves a model over gRPC until it is told to stop."""

import asyncio
import json
import os
import signal
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once
from imp_service.cli.model_options import add_model_options, load_model_settings

if TYPE_CHECKING:
    from imp_service.config import Config


def configure(parser: ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument(
        "--listen", metavar="ADDRESS", action="append", help="serve on host:port or unix:///path; may be given again"
    )
    parser.add_argument(
        "--ready-file", metavar="FILE", action=Once, help="write the addresses as JSON to FILE once requests are served"
    )


def run(arguments: Namespace) -> int:
    listen = [] if arguments.listen is None else [f"listen.grpc={json.dumps(arguments.listen)}"]
    return asyncio.run(_serve(load_model_settings(arguments, listen), arguments.ready_file))


async def _serve(config: "Config", ready_file: str | None) -> int:
    from imp_service.core import load
    from imp_service.generation import LanguageModel
    from imp_service.rpc.server import Server
    from imp_service.serving.host import Host

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    host = Host(config)
    server = Server(host)
    await server.start()
    host.adopt(await asyncio.to_thread(lambda: LanguageModel(load(config))))
    await server.tell_health()
    if ready_file is not None:
        write_ready_file(Path(ready_file), {"grpc": server.addresses, "pid": os.getpid(), "model": host.model.name})
    await stopped.wait()
    await server.stop(config.settings.drain.grace.total_seconds())
    host.close()
    return 0


def write_ready_file(path: Path, facts: dict[str, object]) -> None:
    """Whole or not at all: whoever waits for the file may read it at once."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(facts) + "\n")
    partial.replace(path)
