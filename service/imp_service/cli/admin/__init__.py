"""imp admin: operates a running server through its admin listener."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NamedTuple

from imp_service.cli.admin import methods
from imp_service.cli.arguments import Once, duration
from imp_service.cli.failure import CommandError
from imp_service.cli.options.connection import add_caller_options, add_deadline_option

# The default of --target: the admin listener has another address than the one in IMP_TARGET.
ADMIN_VARIABLE = "IMP_ADMIN"
EXAMPLES = (
    "imp admin drain --target 127.0.0.1:50053",
    "imp admin requests --target unix:///run/imp/admin.sock --json",
    "imp help admin profile",
)
_AT = "--target 127.0.0.1:50053"


class _Method(NamedTuple):
    text: str
    run: Callable[[Namespace], int]
    examples: tuple[str, ...]


METHODS = {
    "drain": _Method(
        "refuse new requests, and wait until the last one has ended",
        methods.drain,
        (f"imp admin drain {_AT}", f"imp admin drain --timeout 30s {_AT}"),
    ),
    "resume": _Method(
        "accept new requests again", methods.resume, (f"imp admin resume {_AT}", "imp admin resume --deadline 5s")
    ),
    "abort": _Method(
        "end requests", methods.abort, (f"imp admin abort 7f3a 7f3b {_AT}", f"imp admin abort --all {_AT}")
    ),
    "requests": _Method(
        "list running and waiting requests",
        methods.requests,
        (f"imp admin requests {_AT}", "imp admin requests --json"),
    ),
    "sessions": _Method(
        "list open sessions", methods.sessions, (f"imp admin sessions {_AT}", "imp admin sessions --json")
    ),
    "profile": _Method(
        "record the next steps of the engine, for Perfetto or chrome://tracing",
        methods.profile,
        (f"imp admin profile -o trace.json {_AT}", "imp admin profile --steps 500 --time-limit 10s -o -"),
    ),
    "flush-cache": _Method(
        "empty the prefix cache",
        methods.flush_cache,
        (f"imp admin flush-cache {_AT}", "imp admin flush-cache --json"),
    ),
    "reload": _Method(
        "read imp.conf, tokens and certificates again, as SIGHUP does",
        methods.reload,
        (f"imp admin reload {_AT}", "imp admin reload --json"),
    ),
}


def configure(parser: ArgumentParser) -> None:
    parsers = parser.add_subparsers(metavar="METHOD", dest="method", required=True)
    for name, (text, run_method, examples) in METHODS.items():
        method = parsers.add_parser(name, help=text, description=text, examples=examples)
        _OPTIONS.get(name, _no_options)(method)
        method.add_argument("--json", action="store_true", help="print each message of the reply as one JSON object")
        method.add_argument(
            "--target",
            metavar="ADDRESS",
            action=Once,
            help=f"the server's admin listener, listen.admin of its imp.conf (default: ${ADMIN_VARIABLE})",
        )
        add_caller_options(method)
        add_deadline_option(method)
        method.set_defaults(run_method=run_method)


def run(arguments: Namespace) -> int:
    from imp_service.cli.preflight import silence_grpc
    from imp_service.client.environment import read_variable

    arguments.target_origin = "--target"
    if arguments.target is None:
        arguments.target, arguments.target_origin = read_variable(ADMIN_VARIABLE), f"${ADMIN_VARIABLE}"
    if arguments.target is None:
        what = "expected the address of listen.admin, such as 127.0.0.1:50053 or unix:///path"
        raise CommandError("USAGE", f"--target: not given, and ${ADMIN_VARIABLE} is not set; {what}")
    silence_grpc()
    status: int = arguments.run_method(arguments)
    return status


def _no_options(_: ArgumentParser) -> None:
    """The method has only the common options."""


def _drain_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration,
        action=Once,
        help="end the remaining requests after this long (default: drain.grace of the server)",
    )


def _abort_options(parser: ArgumentParser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="*", help="the id of a request, from imp admin requests")
    parser.add_argument("--all", action="store_true", help="end every request")


def _profile_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        action=Once,
        help="write the trace to FILE, - to stdout (default: profile.json)",
    )
    parser.add_argument("--steps", metavar="N", type=int, default=100, help="1 to 1000 (default: 100)")
    parser.add_argument(
        "--time-limit", metavar="TIME", type=duration, action=Once, help="end after this long (default: 1 minute)"
    )


_OPTIONS = {"drain": _drain_options, "abort": _abort_options, "profile": _profile_options}
