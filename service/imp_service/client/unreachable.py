"""Explains why a server cannot be reached: gRPC's message names only sockets and library routines."""

import re
from collections.abc import Callable

from .target import Target

# How the messages of gRPC about a missing connection begin.
_NO_CONNECTION = ("failed to connect to all addresses", "connections to all backends failing", "errors resolving ")


def is_unreachable(details: str) -> bool:
    """Whether gRPC's message says that there was no connection."""
    return details.startswith(_NO_CONNECTION)


def explain(details: str, target: Target) -> str:
    """Explains a missing connection to `target`, and what to do. Returns other `details` unchanged."""
    if not is_unreachable(details):
        return details
    for pattern, say in _ROWS:
        if re.search(pattern, details):
            return f"{target.address}: {say(target)}"
    _, _, last = details.rpartition("last error: ")
    return f"{target.address}: no connection: {last}"


def _not_listening(target: Target) -> str:
    return f"nothing listens there; imp serve starts a server, {_named(target, 'target')} names another"


def _other_protocol(_: Target) -> str:
    return "the server speaks HTTP/1 and no gRPC, expected the address of listen.grpc"


def _no_tls(target: Target) -> str:
    given = ("tls",) if target.tls is None or target.tls.is_empty else ("tls", "ca", "cert", "key")
    *most, last = (_named(target, each) for each in given)
    named = " and ".join([", ".join(most), last] if most else [last])
    return f"the server does not use TLS, expected a call without {named}"


def _not_trusted(target: Target) -> str:
    ca = _named(target, "ca")
    if target.tls is None or target.tls.ca is None:
        who = "the server's certificate is not signed by a well-known authority"
        return f"{who}, expected {ca} FILE with the certificate of its authority"
    return f"the server's certificate is not signed by the authority in {ca} {target.tls.ca}"


def _other_name(target: Target) -> str:
    return "the server's certificate is for another name than this one"


def _closed(target: Target) -> str:
    if target.tls is None:
        wanted = f"TLS: {_named(target, 'tls')}, {_named(target, 'ca')} FILE"
        return f"the server closed the connection; it may expect {wanted}"
    cert = _named(target, "cert")
    if target.tls.cert is None:
        wanted = f"a client certificate: {cert} and {_named(target, 'key')}"
        return f"the server closed the connection; it may expect {wanted}"
    return f"the server closed the connection; it may not trust {cert} {target.tls.cert}"


def _unusable_files(target: Target) -> str:
    ca = _named(target, "ca")
    if target.tls is None or target.tls.cert is None:
        return f"the certificates of {ca} cannot be used"
    cert, key = f"{_named(target, 'cert')} {target.tls.cert}", f"{_named(target, 'key')} {target.tls.key}"
    return f"{cert} and {key} do not belong together, or {ca} cannot be used"


def _named(target: Target, option: str) -> str:
    """An option as the caller wrote it: on the command line, or as a keyword of connect()."""
    return f"--{option}" if target.is_typed else f"{option}="


def _unknown_host(_: Target) -> str:
    return "the name of the host is not known"


_ROWS: tuple[tuple[str, Callable[[Target], str]], ...] = (
    (r"Connection refused|error: No such file or directory", _not_listening),
    (r"http1\.x server", _other_protocol),
    (r"WRONG_VERSION_NUMBER", _no_tls),
    (r"CERTIFICATE_VERIFY_FAILED", _not_trusted),
    (r"(?i)hostname verification|peer name .* is not in peer certificate", _other_name),
    (r"Failed to create security handshaker", _unusable_files),
    (r"Socket closed|CERTIFICATE_REQUIRED|Connection reset", _closed),
    (r"Domain name not found|address lookup failed", _unknown_host),
)
