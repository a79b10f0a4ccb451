"""The head of an HTTP request, as far as a page of metrics needs it: method, path and host, strictly read."""

import re
from http import HTTPStatus
from ipaddress import ip_address

PATH = "/metrics"
MAX_PATH = 256

_REQUEST = re.compile(rb"([A-Z]+) ([!-~]+) HTTP/1\.[01]")
_HOST = re.compile(rb"host[ \t]*:[ \t]*(.*?)[ \t]*", re.IGNORECASE)
_NAME = re.compile(r"\[(?P<six>[0-9A-Fa-f:.]+)\](?::\d+)?|(?P<name>[A-Za-z0-9._-]+)(?::\d+)?")
# A browser that was lured to a name of somebody's own sends that name; these nobody can own.
_INNER = (".svc", ".cluster.local", ".local", ".internal")


class BadRequest(Exception):
    """What is not served, with the status that says so."""

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
    if hosts and not is_ours(hosts[0]):
        raise BadRequest(HTTPStatus.MISDIRECTED_REQUEST)
    if len(request.group(2)) > MAX_PATH:
        raise BadRequest(HTTPStatus.REQUEST_URI_TOO_LONG)
    if request.group(2).decode() != PATH:
        raise BadRequest(HTTPStatus.NOT_FOUND)
    if request.group(1) not in (b"GET", b"HEAD"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED)
    return request.group(1) == b"HEAD"


def is_ours(host: str) -> bool:
    """Whether a Host header may name this listener: an address, or a name that only means something nearby."""
    match = _NAME.fullmatch(host)
    if match is None:
        return False
    name = match["six"] or match["name"].lower()
    try:
        ip_address(name)
    except ValueError:
        return match["six"] is None and ("." not in name or name.endswith(_INNER))
    return True
