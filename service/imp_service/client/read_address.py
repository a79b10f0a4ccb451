"""Converts a typed address into one for gRPC."""

import ipaddress
import re

DEFAULT_PORT = 50051
DEFAULT_ADDRESS = f"127.0.0.1:{DEFAULT_PORT}"
# gRPC's own schemes: the rest of the address stays as it is, except that a missing port is added.
_SCHEMES = ("unix:", "unix-abstract:", "vsock:", "dns:", "ipv4:", "ipv6:", "xds:")
_WITH_PORT = ("dns:", "ipv4:", "ipv6:")
_URL = re.compile(r"(?i)([a-z][a-z0-9+.-]*)://(.*)")


def read_address(text: str) -> str:
    """Adds the default port if there is none. Raises ValueError with what is expected."""
    if not text:
        raise ValueError("is empty, expected host:port or unix:///path")
    scheme = next((scheme for scheme in _SCHEMES if text.startswith(scheme)), "")
    if scheme not in ("", *_WITH_PORT):
        return text
    url = _URL.fullmatch(text)
    if not scheme and url is not None:
        secure = ", with --tls" if url[1].lower() in ("https", "grpcs") else ""
        raise ValueError(f"is a URL, expected host:port without {url[1]}://{secure}")
    # dns: may name a resolver before the host: dns://server/name.
    n_head = text.rfind("/") + 1 if scheme == "dns:" and "/" in text else len(scheme)
    head, last = text[:n_head], text[n_head:]
    if scheme in ("ipv4:", "ipv6:") and "," in last:
        return text  # several addresses, each with its port
    return head + _with_port(last)


def _with_port(text: str) -> str:
    try:  # an IPv6 address without brackets has colons, and no port
        return f"[{ipaddress.IPv6Address(text)}]:{DEFAULT_PORT}"
    except ValueError:
        pass
    host, colon, port = ("", "", text) if text.endswith("]") else text.rpartition(":")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    if not host or any(c.isspace() or c == "/" for c in host):
        raise ValueError("expected host:port or unix:///path")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"port {port}, expected 1 to 65535")
    return f"{host}:{port}"
