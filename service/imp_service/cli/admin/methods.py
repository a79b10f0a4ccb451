"""The methods of imp admin: one function for each method of AdminService."""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imp_service.cli.failure import CommandError

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

    from imp_service.client.connection import Connection
    from imp_service.pb.admin_pb2 import ListRequestsResponse, ListSessionsResponse, SessionState


DEFAULT_PROFILE = "profile.json"
_SESSION_HEADINGS = ("session", "tokens", "unused for", "ends in")


def drain(arguments: Namespace) -> int:
    """Prints a line at every change. Ctrl-C ends the command, and the drain goes on."""
    from imp_service.cli.output import write_message
    from imp_service.pb.admin_pb2 import DrainRequest

    request = DrainRequest()
    if arguments.timeout is not None:
        request.timeout.FromMicroseconds(round(arguments.timeout * 1_000_000))
    shown, response = "", None
    with _connect(arguments) as connection:
        for response in connection.stream(_stub(connection).Drain, request):
            load = response.load
            line = f"draining: running {load.running}, waiting {load.waiting}, sessions {load.sessions}"
            if arguments.json:
                write_message(response)
            elif line != shown and not response.drained:
                print(line, flush=True)
            shown = line
    if response is None or not response.drained:
        raise CommandError("NOT_DRAINED", "the server ended the stream before it was drained")
    if not arguments.json:
        print("drained")
    return 0


def resume(arguments: Namespace) -> int:
    from imp_service.pb.admin_pb2 import ResumeRequest

    with _connect(arguments) as connection:
        _write(
            arguments, connection.unary(_stub(connection).Resume, ResumeRequest()), "the server accepts new calls again"
        )
    return 0


def abort(arguments: Namespace) -> int:
    """Exit status 66 if one of the ids is neither running nor waiting; the others are ended."""
    from imp_service.pb.admin_pb2 import AbortRequest

    if bool(arguments.ids) == arguments.all:
        raise CommandError("USAGE", "ID: expected one or several, or --all")
    with _connect(arguments) as connection:
        request = AbortRequest(request_ids=arguments.ids, all=arguments.all)
        response = connection.unary(_stub(connection).Abort, request)
    ended = set(response.aborted_request_ids)
    _write(arguments, response, "".join(f"{each}\n" for each in response.aborted_request_ids).removesuffix("\n"))
    if missing := [each for each in arguments.ids if each not in ended]:
        raise CommandError("REQUEST_NOT_FOUND", f"{', '.join(missing)}: neither running nor waiting")
    return 0


def requests(arguments: Namespace) -> int:
    from imp_service.cli.utilization_text import REQUEST_HEADINGS, request_row
    from imp_service.pb.admin_pb2 import ListRequestsRequest

    with _connect(arguments) as connection:
        response = connection.unary(_stub(connection).ListRequests, ListRequestsRequest())
    return _write_list(arguments, response, "requests", REQUEST_HEADINGS, request_row)


def sessions(arguments: Namespace) -> int:
    from imp_service.pb.admin_pb2 import ListSessionsRequest

    with _connect(arguments) as connection:
        response = connection.unary(_stub(connection).ListSessions, ListSessionsRequest())
    return _write_list(arguments, response, "sessions", _SESSION_HEADINGS, _session_row)


def profile(arguments: Namespace) -> int:
    from imp_service.cli.atomic_file import write_atomically
    from imp_service.pb.admin_pb2 import ProfileRequest

    if not 0 <= arguments.steps < 2**32:
        raise CommandError("FIELD_INVALID", f"--steps: {arguments.steps}, expected 1 to 1000")
    if arguments.json:
        raise CommandError("USAGE", "--json: a profile is always JSON")
    request = ProfileRequest(steps=arguments.steps)
    if arguments.time_limit is not None:
        request.time_limit.FromMicroseconds(round(arguments.time_limit * 1_000_000))
    with _connect(arguments) as connection:
        pieces = [response.data for response in connection.stream(_stub(connection).Profile, request)]
    trace = b"".join(pieces).decode()
    path = arguments.output or DEFAULT_PROFILE
    if path == "-":
        sys.stdout.write(trace)
    else:
        write_atomically(Path(path), trace)
        print(f"{path}: open it in https://ui.perfetto.dev or chrome://tracing", file=sys.stderr)
    return 0


def flush_cache(arguments: Namespace) -> int:
    from imp_service.pb.admin_pb2 import FlushCacheRequest

    with _connect(arguments) as connection:
        response = connection.unary(_stub(connection).FlushCache, FlushCacheRequest())
    _write(arguments, response, f"{response.freed_blocks} blocks freed")
    return 0


def reload(arguments: Namespace) -> int:
    from imp_service.pb.admin_pb2 import ReloadRequest

    with _connect(arguments) as connection:
        response = connection.unary(_stub(connection).Reload, ReloadRequest())
    lists = (
        ("changed", response.changed_keys),
        ("needs a restart", response.restart_keys),
        ("read again", response.file_keys),
    )
    lines = [f"{what}: {', '.join(keys)}" for what, keys in lists if keys]
    _write(arguments, response, "\n".join(lines) or "nothing has changed")
    return 0


def _connect(arguments: Namespace) -> "Connection":
    from imp_service.cli.options.connection import admin_target_of
    from imp_service.client.connection import Connection

    return Connection(admin_target_of(arguments, arguments.target, arguments.target_origin), arguments.deadline)


def _stub(connection: "Connection") -> Any:
    from imp_service.pb.admin_pb2_grpc import AdminServiceStub

    return AdminServiceStub(connection.channel)


def _write(arguments: Namespace, response: "Message", text: str) -> None:
    from imp_service.cli.output import write_message

    if arguments.json:
        write_message(response)
    elif text:
        print(text)


def _write_list(
    arguments: Namespace,
    response: "ListRequestsResponse | ListSessionsResponse",
    field: str,
    headings: Sequence[str],
    row: Callable[[Any, "Timestamp"], Sequence[str]],
) -> int:
    """Prints the messages of one field as JSON lines or as a table; `row` makes a table's row."""
    from imp_service.cli.output import write_message, write_table

    messages = getattr(response, field)
    if arguments.json:
        for message in messages:
            write_message(message)
    elif messages:
        now = _server_time(response)
        write_table(sys.stdout, headings, [row(message, now) for message in messages])
    else:
        print(f"no {field}")
    return 0


def _server_time(response: "ListRequestsResponse | ListSessionsResponse") -> "Timestamp":
    """The server's clock; this machine's if an older server does not send it."""
    if not response.HasField("time"):
        response.time.GetCurrentTime()
    return response.time


def _session_row(session: "SessionState", now: "Timestamp") -> tuple[str, ...]:
    unused = (now.ToNanoseconds() - session.last_use_time.ToNanoseconds()) / 1e9
    left = (session.expire_time.ToNanoseconds() - now.ToNanoseconds()) / 1e9
    # While a call uses the session, the server does not say when it ends.
    ends = f"{max(0.0, left):.1f} s" if session.HasField("expire_time") else "in use"
    return session.session_id, str(session.position), f"{max(0.0, unused):.1f} s", ends
