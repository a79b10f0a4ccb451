"""imp serve: serves a model over gRPC until a signal stops it."""

import asyncio
import gc
import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once
from imp_service.cli.failure import CommandError, describe, report
from imp_service.cli.options.addresses import address_list
from imp_service.cli.options.settings import (
    add_model_options,
    add_projector_option,
    add_speculation_options,
    load_model_settings,
    read_model_settings,
)
from imp_service.cli.serve.front_link import PARENT_OPTION, FrontLink, Inherited
from imp_service.cli.serve.notifier import READY, STOPPING, Notifier
from imp_service.cli.serve.signals import StopSignals

if TYPE_CHECKING:
    from imp_service.cli.progress import LoadingLine
    from imp_service.cli.serve.parent import Forked
    from imp_service.cli.serve.ready_file import ReadyFile
    from imp_service.config import Config
    from imp_service.config.sources import Assignment
    from imp_service.server.service import Service
    from imp_service.serving.make_model import MakeModel
    from imp_service.serving.security.tokens import Token


EXAMPLES = (
    "imp serve",
    "imp serve model.gguf --listen 0.0.0.0:50051 --listen unix:///tmp/imp.sock",
    "imp serve model.gguf --survive",
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
        "--survive",
        action="store_true",
        help="run the engine as a process of its own: when it ends, it is started again, and streams of HTTP go on",
    )
    # Only --survive uses these.
    parser.add_argument("--engine-of", type=Inherited.read, help=SUPPRESS)
    parser.add_argument(PARENT_OPTION, type=int, help=SUPPRESS)
    parser.add_argument(
        "--ready-file",
        metavar="FILE",
        action=Once,
        help="write the addresses as JSON to FILE once requests are served; the file is removed at start and at exit",
    )


def run(arguments: Namespace) -> int:
    from imp_service.cli.serve.ready_file import ReadyFile
    from imp_service.serving.process_memory import leave_no_core, limit_retained_memory

    leave_no_core()
    limit_retained_memory()
    # The longest time that the event loop waits for the GIL while another thread processes text.
    sys.setswitchinterval(SWITCH_SECONDS)
    # No garbage collection during the start: its objects stay, and collecting took a quarter of the start time.
    gc.disable()
    forked = None
    if arguments.parent_of is not None:
        from imp_service.cli.serve.parent import run_parent

        # Returns in each engine process.
        forked = run_parent(arguments.parent_of, _read_config(arguments), arguments.own_words[2:])
    inherited = arguments.engine_of if forked is None else forked.inherited
    link = None if inherited is None else FrontLink(inherited)
    # First, so that a failed start does not leave the file of an earlier server. A front writes that of its engine.
    is_told = arguments.ready_file is not None and link is None
    ready = ReadyFile(Path(arguments.ready_file)) if is_told else None
    signals = StopSignals(_ignore if ready is None else ready.remove, has_front=link is not None)
    keys = _keys(arguments)
    config = _read_config(arguments) if forked is None else forked.config
    reread = partial(read_model_settings, arguments, _typed(arguments))
    if config.settings.front.survive and link is None:
        from imp_service.cli.serve.survive import run_front

        return run_front(arguments.own_words, config, reread, ready, signals)
    if link is not None:
        config = link.engine_config(config)
        if forked is None:  # the model of a parent has the settings of the command line, which a reload compares with
            reread = partial(_reread_engine, link, reread)
    return _run_server(config, reread, ready, signals, keys=keys, link=link, forked=forked)


def _read_config(arguments: Namespace) -> "Config":
    """The settings of the command line, the environment and the files."""
    from imp_service.config.machine import resolve_threads

    return resolve_threads(load_model_settings(arguments, _typed(arguments)))


def _reread_engine(link: FrontLink, reread: "Callable[[], Config]") -> "Config":
    return link.engine_config(reread())


def _typed(arguments: Namespace) -> "list[Assignment]":
    """The settings that the options of this command set."""
    from imp_service.config.sources import of_option, of_text_option

    typed = []
    if arguments.listen is not None:
        typed.append(of_option("--listen", "listen.grpc", address_list("--listen", arguments.listen)))
    if arguments.http is not None:
        http = [] if arguments.http == ["off"] else arguments.http
        typed.append(of_option("--http", "listen.http", address_list("--http", http)))
    if arguments.api_key_file is not None:
        typed.append(of_text_option("--api-key-file", "auth.api_key_file", arguments.api_key_file))
    if arguments.strict:
        typed.append(of_option("--strict", "model.strict", "true"))
    if arguments.survive:
        typed.append(of_option("--survive", "front.survive", "true"))
    return typed


def _run_server(
    config: "Config",
    reread: "Callable[[], Config]",
    ready: "ReadyFile | None",
    signals: StopSignals,
    *,
    keys: "Sequence[Token]",
    link: FrontLink | None,
    forked: "Forked | None",
) -> int:
    """Serves in this process, which may be the engine process of a front."""
    from imp_service.cli.preflight import require_threads, silence_grpc

    require_threads(config.settings)
    silence_grpc()
    make, stop_loading = _load_in_background(config) if forked is None else (forked.make_model, lambda: True)
    return asyncio.run(_serve(config, reread, make, ready, signals, stop_loading=stop_loading, keys=keys, link=link))


def _load_in_background(config: "Config") -> "tuple[MakeModel, Callable[[], bool]]":
    """What makes the model, and what stops its load: see WeightsLoad.stop()."""
    from imp_service.core.background_load import STOP_SECONDS, WeightsLoad
    from imp_service.generation.draft_vocabulary import match_vocabularies

    # Importing the server takes as long as reading weights: both run at the same time.
    weights = WeightsLoad(config, match=match_vocabularies)
    from imp_service.serving.make_model import make_model_of

    return make_model_of(weights), partial(weights.stop, STOP_SECONDS)


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


async def _serve(
    config: "Config",
    reread: "Callable[[], Config]",
    make: "MakeModel",
    ready: "ReadyFile | None",
    signals: StopSignals,
    *,
    stop_loading: "Callable[[], bool]",
    keys: "Sequence[Token]",
    link: FrontLink | None,
) -> int:
    from imp_service.cli.progress import LoadingLine
    from imp_service.server.service import Service

    line = LoadingLine()
    service, failure = None, None
    try:
        service = Service(
            config,
            line,
            make,
            reread=reread,
            keys=keys,
            has_front=link is not None,
            has_public_front=link is not None and link.is_public,
        )
        await _until_stopped(service, line, ready, signals, link)
    except Exception as error:
        failure = error
    if not stop_loading() or (service is not None and service.is_abandoned):
        # A normal exit would wait for a thread that may hang in a disk read.
        status = 0 if failure is None else report(*describe(failure))
        sys.stderr.flush()
        os._exit(status)
    if failure is not None:
        raise failure
    return 0


async def _until_stopped(
    service: "Service",
    line: "LoadingLine",
    ready: "ReadyFile | None",
    signals: StopSignals,
    link: FrontLink | None,
) -> None:
    from imp_service.telemetry.log_capture import capture

    log, watchdog = service.state.telemetry.log, service.state.watchdog
    # A service manager knows the front only.
    environment = os.environ if link is None else {}
    notifier = Notifier(lambda message: log.warning("notify", message=message), environment)

    def on_stop(name: str) -> None:
        if link is None:  # with --survive the front logs it
            log.info("signal", name=name)
        service.stop()
        notifier.send(STOPPING, "draining")

    signals.call(asyncio.get_running_loop(), on_stop, service.state.reload.begin)

    if link is not None:
        service.state.telemetry.progress.send_by(link.report)
    tasks = []

    def on_serving() -> None:
        from imp_service.cli.serve.startup_message import announce, announce_to_front, facts

        line.clear()
        gc.freeze()
        gc.enable()
        if ready is not None:
            ready.write(facts(service))
        if link is None:
            announce(service)
        else:
            tasks.append(asyncio.create_task(announce_to_front(service, link)))
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
