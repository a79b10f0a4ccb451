"""imp front: holds the connections of HTTP clients, whose streams go on when a server behind it ends."""

import asyncio
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from imp_service.cli.failure import CommandError
from imp_service.cli.options.addresses import address_list
from imp_service.cli.options.settings import add_settings_options, load_settings
from imp_service.cli.serve.notifier import READY, STOPPING, Notifier
from imp_service.cli.serve.signals import StopSignals

if TYPE_CHECKING:
    from imp_service.config import Settings

EXAMPLES = (
    "imp front --to 10.0.0.1:8000 10.0.0.2:8000 --http 0.0.0.0:8080",
    "imp front --to imp.default.svc:8000 --http 0.0.0.0:8080",
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--to",
        metavar="ADDRESS",
        nargs="+",
        action="extend",
        help="a server: [https://]host:port, a port of 127.0.0.1, or unix:///path; a name is all of its addresses",
    )
    parser.add_argument(
        "--http",
        metavar="ADDRESS",
        action="append",
        help="answer on host:port, a port of 127.0.0.1, or unix:///path; may be given again (default: 127.0.0.1:8000)",
    )
    add_settings_options(parser)


def run(arguments: Namespace) -> int:
    from imp_service.config.sources import of_option
    from imp_service.serving.process_memory import leave_no_core, limit_retained_memory

    leave_no_core()
    limit_retained_memory()
    signals = StopSignals(lambda: None)
    typed = []
    if arguments.to is not None:
        typed.append(of_option("--to", "front.to", address_list("--to", arguments.to)))
    if arguments.http is not None:
        typed.append(of_option("--http", "listen.http", address_list("--http", arguments.http)))
    settings = load_settings(arguments, typed).settings
    if not settings.front.to:
        raise CommandError("USAGE", "no server to relay to, expected --to ADDRESS")
    if not settings.listen.http:
        raise CommandError("USAGE", "no address to answer on, expected --http ADDRESS")
    return asyncio.run(_relay(settings, signals))


async def _relay(settings: "Settings", signals: StopSignals) -> int:
    """Until a signal, and until the open requests have ended or the grace of the drain is over."""
    from imp_service.cli.serve.shown_lines import END_LINE, http_lines, is_for_people, print_message
    from imp_service.front.relay.front import Front
    from imp_service.front.relay.server import FrontServer, until_drained
    from imp_service.front.relay.state import front_options
    from imp_service.front.relay.upstreams import Upstreams
    from imp_service.telemetry.log import Log
    from imp_service.telemetry.log_capture import capture

    log = Log(settings.log)
    restore_logging = capture(log)
    notifier = Notifier(lambda message: log.warning("notify", message=message))
    try:
        server = FrontServer(settings, log, has_metrics=True)
        upstreams = Upstreams(settings.front.to, log=log, trust=server.trust)
        front = Front(upstreams, front_options(settings, has_metrics=True), log)
        stopping = asyncio.Event()

        def on_stop(name: str) -> None:
            log.info("signal", name=name)
            front.leave()
            stopping.set()
            notifier.send(STOPPING, "draining")

        signals.call(asyncio.get_running_loop(), on_stop, lambda: None)
        await upstreams.start()
        await server.start(front)
        try:
            if is_for_people(settings):
                http = http_lines(settings, server.addresses, requires_tokens=False)
                print_message([], [f"relaying to {' and '.join(settings.front.to)}", *http, END_LINE])
            else:
                metrics = {} if server.metrics_address is None else {"metrics": server.metrics_address}
                log.info("front serving", http=tuple(server.addresses), to=settings.front.to, **metrics)
            notifier.send(READY, "relaying")
            with notifier.keep_alive(lambda: True):
                await stopping.wait()
                await until_drained(front, settings.drain)
        finally:
            await server.stop()
            await upstreams.stop()
        return 0
    finally:
        restore_logging()
        log.close()
