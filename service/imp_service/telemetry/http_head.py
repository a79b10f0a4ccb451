"""Parses the head of an HTTP request for the metrics page: method, path and host."""

import re
from http import HTTPStatus
from ipaddress import ip_address

PATH = "/metrics"
MAX_PATH = 256

_REQUEST = re.compile(rb"([A-Z]+) ([!-~]+) HTTP/1\.[01]")
_HOST = re.compile(rb"host[ \t]*:[ \t]*(.*?)[ \t]*", re.IGNORECASE)
_NAME = re.compile(r"\[(?P<six>[0-9A-Fa-f:.]+)\](?::\d+)?|(?P<name>[A-Za-z0-9._-]+)(?::\d+)?")
# Protection against DNS rebinding: an attacker can own other names, but none of these.
_INTERNAL = (".svc", ".cluster.local", ".local", ".internal")


class BadRequest(Exception):
    """A request that is not served, with its HTTP status."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


def read_head(head: bytes) -> bool:
    """True for HEAD, False for GET of the metrics; anything else raises BadRequest."""
    first, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    request = _REQUEST.fullmatch(first)
    if request is None:
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    hosts = [match.group(1).decode("latin-1") for field in fields if (match := _HOST.fullmatch(field))]
    if len(hosts) > 1:
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    if hosts and not is_local_host(hosts[0]):
        raise BadRequest(HTTPStatus.MISDIRECTED_REQUEST)
    if len(request.group(2)) > MAX_PATH:
        raise BadRequest(HTTPStatus.REQUEST_URI_TOO_LONG)
    if request.group(2).decode() != PATH:
        raise BadRequest(HTTPStatus.NOT_FOUND)
    if request.group(1) not in (b"GET", b"HEAD"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED)
    return request.group(1) == b"HEAD"


def is_local_host(host: str) -> bool:
    """Whether a Host header may name this listener: an IP address, a single word or an internal name."""
    match = _NAME.fullmatch(host)
    if match is None:
        return False
    name = match["six"] or match["name"].lower()
    try:
        ip_address(name)
    except ValueError:
        return match["six"] is None and ("." not in name or name.endswith(_INTERNAL))
    return True
