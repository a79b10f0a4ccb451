"""imp serve: serves a model over gRPC until a signal stops it."""

import asyncio
import gc
import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once
from imp_service.cli.failure import CommandError, describe, report
from imp_service.cli.options.settings import (
    add_model_options,
    add_projector_option,
    add_speculation_options,
    load_model_settings,
    read_model_settings,
)
from imp_service.cli.serve.notifier import READY, STOPPING, Notifier
from imp_service.cli.serve.signals import StopSignals

if TYPE_CHECKING:
    from imp_service.cli.progress import LoadingLine
    from imp_service.cli.serve.ready_file import ReadyFile
    from imp_service.config import Config
    from imp_service.core.background_load import WeightsLoad
    from imp_service.server.service import Service
    from imp_service.serving.security.tokens import Token


EXAMPLES = (
    "imp serve",
    "imp serve model.gguf --listen 0.0.0.0:50051 --listen unix:///tmp/imp.sock",
)


SWITCH_SECONDS = 0.0005


def configure(parser: ArgumentParser) -> None:
    add_model_options(parser, as_word=True)
    add_projector_option(parser)
    add_speculation_options(parser)
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        action="append",
        help="serve gRPC on host:port, a port of 127.0.0.1, or unix:///path; may be given again",
    )
    parser.add_argument(
        "--http",
        metavar="ADDRESS",
        action="append",
        help="serve OpenAI's API on host:port, a port of 127.0.0.1, or unix:///path, or `off`; may be given again "
        "(default: 127.0.0.1:8000, and off if --listen is given)",
    )
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument(
        "--api-key",
        metavar="KEY",
        action=Once,
        help="callers need this bearer token; other users of this machine can see it in the list of processes",
    )
    keys.add_argument(
        "--api-key-env", metavar="NAME", action=Once, help="callers need the token in the environment variable NAME"
    )
    keys.add_argument(
        "--api-key-file", metavar="FILE", action=Once, help="callers need one of the tokens in FILE, a line each"
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse to serve a model whose chat template does not compile"
    )
    parser.add_argument(
        "--ready-file",
        metavar="FILE",
        action=Once,
        help="write the addresses as JSON to FILE once requests are served; the file is removed at start and at exit",
    )


def run(arguments: Namespace) -> int:
    from imp_service.cli.preflight import require_threads, silence_grpc
    from imp_service.cli.serve.ready_file import ReadyFile
    from imp_service.config.machine import resolve_threads
    from imp_service.config.sources import of_option, of_text_option
    from imp_service.core.background_load import WeightsLoad
    from imp_service.generation.draft_vocabulary import match_vocabularies
    from imp_service.serving.process_memory import leave_no_core, limit_retained_memory

    leave_no_core()
    limit_retained_memory()
    # The longest time that the event loop waits for the GIL while another thread processes text.
    sys.setswitchinterval(SWITCH_SECONDS)
    # No garbage collection during the start: its objects stay, and collecting took a quarter of the start time.
    gc.disable()
    # First, so that a failed start does not leave the file of an earlier server.
    ready = None if arguments.ready_file is None else ReadyFile(Path(arguments.ready_file))
    signals = StopSignals(_ignore if ready is None else ready.remove)
    typed = []
    if arguments.listen is not None:
        typed.append(of_option("--listen", "listen.grpc", _addresses("--listen", arguments.listen)))
    if arguments.http is not None:
        http = [] if arguments.http == ["off"] else arguments.http
        typed.append(of_option("--http", "listen.http", _addresses("--http", http)))
    if arguments.api_key_file is not None:
        typed.append(of_text_option("--api-key-file", "auth.api_key_file", arguments.api_key_file))
    keys = _keys(arguments)
    if arguments.strict:
        typed.append(of_option("--strict", "model.strict", "true"))
    config = resolve_threads(load_model_settings(arguments, typed))
    reread = partial(read_model_settings, arguments, typed)
    require_threads(config.settings)
    silence_grpc()
    # Importing the server takes as long as reading weights: both run at the same time.
    weights = WeightsLoad(config, match=match_vocabularies)
    return asyncio.run(_serve(config, reread, weights, ready, signals, keys=keys))


def _keys(arguments: Namespace) -> "list[Token]":
    """The key of the command line or of the variable that it names. Raises CommandError."""
    from imp_service.client.environment import read_variable
    from imp_service.serving.security.tokens import EXPECTED_KEY, key_token

    if arguments.api_key is None and arguments.api_key_env is None:
        return []
    origin, key = "--api-key", arguments.api_key
    if key is None:
        origin, key = f"${arguments.api_key_env}", read_variable(arguments.api_key_env)
    if key is None:
        raise CommandError("USAGE", f"{origin}: no key there")
    if (token := key_token(key)) is None:
        raise CommandError("USAGE", f"{origin}: {EXPECTED_KEY}")
    return [token]


def _addresses(option: str, words: list[str]) -> str:
    """The list of addresses as TOML. A port alone is one of this machine. Raises ConfigError."""
    from imp_service.config.errors import ConfigError
    from imp_service.config.kinds import UnfitError
    from imp_service.config.server_settings import ADDRESS
    from imp_service.config.toml import excerpt

    addresses = [f"127.0.0.1:{word}" if word.isascii() and word.isdigit() else word for word in words]
    for word, address in zip(words, addresses, strict=True):
        try:
            ADDRESS.read(address)
        except UnfitError:
            raise ConfigError(option, f"found {excerpt(word, 80)}, expected a port, {ADDRESS.what}") from None
    return json.dumps(addresses)


async def _serve(
    config: "Config",
    reread: "Callable[[], Config]",
    weights: "WeightsLoad",
    ready: "ReadyFile | None",
    signals: StopSignals,
    *,
    keys: "Sequence[Token]",
) -> int:
    from imp_service.cli.progress import LoadingLine
    from imp_service.core.background_load import STOP_SECONDS
    from imp_service.server.service import Service
    from imp_service.serving.make_model import make_model_of

    line = LoadingLine()
    service, failure = None, None
    try:
        service = Service(config, line, make_model_of(weights), reread=reread, keys=keys)
        await _until_stopped(service, line, ready, signals)
    except Exception as error:
        failure = error
    if not weights.stop(STOP_SECONDS) or (service is not None and service.is_abandoned):
        # A normal exit would wait for a thread that may hang in a disk read.
        status = 0 if failure is None else report(*describe(failure))
        sys.stderr.flush()
        os._exit(status)
    if failure is not None:
        raise failure
    return 0


async def _until_stopped(
    service: "Service", line: "LoadingLine", ready: "ReadyFile | None", signals: StopSignals
) -> None:
    from imp_service.telemetry.log_capture import capture

    log, watchdog = service.state.telemetry.log, service.state.watchdog
    notifier = Notifier(lambda message: log.warning("notify", message=message))

    def on_stop(name: str) -> None:
        log.info("signal", name=name)
        service.stop()
        notifier.send(STOPPING, "draining")

    signals.call(asyncio.get_running_loop(), on_stop, service.state.reload.begin)

    def on_serving() -> None:
        from imp_service.cli.serve.startup_message import announce, facts

        line.clear()
        gc.freeze()
        gc.enable()
        if ready is not None:
            ready.write(facts(service))
        announce(service)
        notifier.send(READY, f"serving {service.state.model.name}")

    restore_logging = capture(log)
    try:
        with notifier.keep_alive(lambda: watchdog.is_alive):
            await service.run(on_serving, _ignore if ready is None else ready.remove)
    finally:
        line.clear()
        restore_logging()


def _ignore() -> None:
    """There is no ready file to remove."""
