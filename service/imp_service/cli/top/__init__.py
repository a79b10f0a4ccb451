"""imp top: shows a server's load: live on a terminal, one line for each change in a pipe."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from imp_service.cli.arguments import duration
from imp_service.cli.options.connection import (
    add_attempts_option,
    add_connection_options,
    add_target_option,
    admin_target_of,
    target_of,
)
from imp_service.cli.utilization_text import Snapshot

if TYPE_CHECKING:
    from imp_service.client.connection import Connection, Replies
    from imp_service.pb.model_pb2 import WatchLoadResponse


# Only for --once: the live view shows how long a server has been silent instead.
SNAPSHOT_DEADLINE_SECONDS = 10.0
EXAMPLES = (
    "imp top",
    "imp top --target imp.example --admin 127.0.0.1:50053",
    "imp top --once --json",
)


def configure(parser: ArgumentParser) -> None:
    add_target_option(parser)
    parser.add_argument("--admin", metavar="ADDRESS", help="the admin listener: shows each request too")
    parser.add_argument(
        "--interval",
        metavar="TIME",
        type=duration,
        default=1.0,
        help="shortest time between two snapshots (default: 1s)",
    )
    parser.add_argument("--once", action="store_true", help="print one snapshot and exit")
    parser.add_argument("--json", action="store_true", help="print each load, and each request, as a line of JSON")
    add_connection_options(parser)
    add_attempts_option(parser)


def run(arguments: Namespace) -> int:
    from contextlib import ExitStack

    from imp_service.cli.preflight import silence_grpc

    silence_grpc()  # before its import
    from imp_service.client.connection import Connection

    with ExitStack() as stack:
        deadline = SNAPSHOT_DEADLINE_SECONDS if arguments.once else None
        target = target_of(arguments, arguments.target, arguments.attempts)
        server = stack.enter_context(Connection(target, deadline))
        admin = None
        if arguments.admin is not None:
            admin_target = admin_target_of(arguments, arguments.admin, "--admin")
            admin = stack.enter_context(Connection(admin_target, SNAPSHOT_DEADLINE_SECONDS))
        loads = _loads(server, arguments.interval)
        snapshots = _snapshots(loads, admin)
        if arguments.once:
            snapshots = islice(snapshots, 1)
        if arguments.json:
            _write_json(snapshots)
        elif arguments.once:
            _write_text(snapshots)
        elif sys.stdout.isatty():
            from imp_service.cli.top.view import watch

            watch(snapshots, target.address, loads.close)
        else:
            _write_lines(snapshots)
    return 0


def _loads(server: "Connection", interval: float) -> "Replies[WatchLoadResponse]":
    """The load now and at every change."""
    from imp_service.pb.model_pb2 import WatchLoadRequest
    from imp_service.pb.model_pb2_grpc import ModelServiceStub

    request = WatchLoadRequest()
    request.min_interval.FromMicroseconds(round(interval * 1_000_000))
    return server.stream(ModelServiceStub(server.channel).WatchLoad, request)


def _snapshots(loads: "Replies[WatchLoadResponse]", admin: "Connection | None") -> Iterator[Snapshot]:
    """Each load with the requests at that time."""
    from imp_service.pb.admin_pb2 import ListRequestsRequest
    from imp_service.pb.admin_pb2_grpc import AdminServiceStub

    for response in loads:
        requests = None
        if admin is not None:
            listed = admin.unary(AdminServiceStub(admin.channel).ListRequests, ListRequestsRequest())
            requests = list(listed.requests)
        yield response.load, requests


def _write_json(snapshots: Iterator[Snapshot]) -> None:
    from imp_service.cli.output import write_message

    for load, requests in snapshots:
        write_message(load)
        for request in requests or ():
            write_message(request)


def _write_text(snapshots: Iterator[Snapshot]) -> None:
    from imp_service.cli.output import write_table
    from imp_service.cli.utilization_text import REQUEST_HEADINGS, load_rows, request_row

    for load, requests in snapshots:
        write_table(sys.stdout, (), load_rows(load))
        if requests:
            sys.stdout.write("\n")
            write_table(sys.stdout, REQUEST_HEADINGS, [request_row(request, load.time) for request in requests])


def _write_lines(snapshots: Iterator[Snapshot]) -> None:
    from imp_service.cli.utilization_text import load_line

    for load, _ in snapshots:
        sys.stdout.write(load_line(load) + "\n")
        sys.stdout.flush()
