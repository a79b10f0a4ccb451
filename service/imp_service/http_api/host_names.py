"""The host that a request names, and which names can be this server's own."""

from __future__ import annotations

import re
from ipaddress import ip_address

_NAME = re.compile(r"\[(?P<six>[0-9A-Fa-f:.]+)\](?::\d+)?|(?P<name>[A-Za-z0-9._-]+)(?::\d+)?")
# A target as clients send it to proxies, and may send it to any server.
_ABSOLUTE = re.compile(r"(?i:https?)://([^/]*)(/.*)?", re.DOTALL)
# Protection against DNS rebinding: an attacker can own other names, but none of these. Names that end in .local are not
# among them, except those of a cluster: on a network with mDNS any machine answers for any of them.
_INTERNAL = (".svc", ".cluster.local", ".internal")


def split_target(target: str) -> tuple[str | None, str]:
    """The host and the path of a request's target: `http://HOST/PATH`, or a path alone, which has no host."""
    found = _ABSOLUTE.fullmatch(target)
    return (None, target) if found is None else (found[1], found[2] or "/")


def name_of(host: str) -> str:
    """The name without its port, in lower case. Empty if the header is no valid host."""
    match = _NAME.fullmatch(host)
    if match is None or (match["six"] and not _is_address(match["six"])):
        return ""
    return match["six"] or match["name"].lower()


def is_local_host(host: str) -> bool:
    """Whether a Host header may name this listener: an IP address, a single word or an internal name."""
    name = name_of(host)
    if not name:
        return False
    return _is_address(name) or "." not in name or name.endswith(_INTERNAL)


def is_loopback_host(name: str) -> bool:
    """Whether a name without port means this machine."""
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
