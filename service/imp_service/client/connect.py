"""Connects to a server that the caller or its environment names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict, Unpack

from ..api.errors import invalid
from ..api.rules import range_text
from .environment import TARGET_VARIABLE, read_variable
from .read_address import DEFAULT_ADDRESS, read_address

# gRPC takes longer to import than all else: the first connection imports it.
if TYPE_CHECKING:
    from .model.async_client import AsyncClient
    from .model.client import Client
    from .target import Target


class ConnectOptions(TypedDict, total=False):
    """How a server is called."""

    model: str
    tls: bool
    ca: str
    cert: str
    key: str
    token: str
    metadata: Mapping[str, str]
    timeout: float
    attempts: int
    resume: bool


def connect(target: str | None = None, **options: Unpack[ConnectOptions]) -> Client:
    """A model behind a server. The first call opens the connection.

    `target` is host:port, unix:///path or dns:///host:port; None is $IMP_TARGET, else 127.0.0.1:50051. The options:

    - `model`: the name of the model that must be served;
    - `tls=True`; `ca`: a PEM file of the authorities to trust, else gRPC's own; `cert` and `key`: PEM files of the
      caller, for mutual TLS. The files imply `tls`;
    - `token`: a bearer token; `metadata`: what else goes with each call;
    - `timeout`: seconds for each call;
    - `attempts`: how often a call is made, at most and by default 5 times, if the server refuses it for a while;
    - `resume=False`: a generation or a session fails if the server goes away. Otherwise it goes on where it was, with
      the same tokens, when the server is back. Of a name or a list of several servers (dns:///name:50051,
      ipv4:a:1,b:2), another one goes on.
    """
    from .connection import Connection
    from .model.client import Client

    return Client(Connection(target_of(target, options), options.get("timeout")), options.get("model", ""))


def connect_async(target: str | None = None, **options: Unpack[ConnectOptions]) -> AsyncClient:
    """The same for tasks of an event loop, with the options of `connect`."""
    from .async_connection import AsyncConnection
    from .model.async_client import AsyncClient

    return AsyncClient(AsyncConnection(target_of(target, options), options.get("timeout")), options.get("model", ""))


def target_of(address: str | None, options: ConnectOptions) -> Target:
    """The server and how to call it.

    Raises FIELD_INVALID for invalid arguments, and OSError if a file cannot be read.
    """
    from .target import MOST_ATTEMPTS, Target, TlsFiles

    attempts, token = options.get("attempts", MOST_ATTEMPTS), options.get("token")
    ca, cert, key = options.get("ca"), options.get("cert"), options.get("key")
    if (cert is None) != (key is None):
        raise invalid("cert", "cert and key: expected both or neither")
    if not 1 <= attempts <= MOST_ATTEMPTS:
        raise invalid("attempts", f"{attempts}, expected {range_text(1, MOST_ATTEMPTS)}")
    if token is not None and not is_header(token):
        raise invalid("token", "expected one line of printable ASCII")
    pairs = dict(options.get("metadata") or {})
    for name, value in pairs.items():
        if not (is_header(name) and name == name.lower() and is_header(value)):
            raise invalid(f"metadata[{name!r}]", "expected a key in lower case and a value, in printable ASCII")
    files = TlsFiles(ca, cert, key) if options.get("tls") or ca or cert else None
    if files is not None:
        try:
            files.credentials()  # raises for an unusable file before any call
        except ValueError as error:
            raise invalid("tls", str(error)) from None
    named = address or read_variable(TARGET_VARIABLE) or DEFAULT_ADDRESS
    try:
        found = read_address(named)
    except ValueError as error:
        raise invalid("target", f"{named}: {error}") from None
    return Target(
        found, files, token, tuple(pairs.items()), attempts, is_typed=False, resumes=options.get("resume", True)
    )


def is_header(text: str) -> bool:
    """Whether gRPC's metadata can hold the text."""
    return bool(text) and text.isascii() and text.isprintable()
