"""Addresses to listen on: checked all of them before any is bound, then bound with what was chosen told."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import nullcontext

import grpc

from imp_service.config.address import Address
from imp_service.rpc.listening.listen_error import ListenError
from imp_service.rpc.listening.unix_socket import check, claimed


def has_ipv6() -> bool:
    """Whether this kernel takes connections over IPv6; it may have been built or started without."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


def check_all(addresses: Iterable[Address]) -> None:
    """Raises ListenError for the first that cannot be bound. Binds nothing for longer than it takes to find out."""
    for address in addresses:
        if (path := address.socket_path) is not None:
            check(path)
        else:
            _check_port(address)


def bind(server: grpc.aio.Server, address: Address, credentials: grpc.ServerCredentials | None = None) -> str:
    """Binds a checked address; returns it with the port that was chosen."""
    path = address.socket_path
    # After `unix:` gRPC takes every slash for the path's own.
    text = address.text if path is None else f"unix:{path}"
    with nullcontext() if path is None else claimed(path):
        try:
            port = server.add_secure_port(text, credentials) if credentials else server.add_insecure_port(text)
        except RuntimeError:
            # Someone took it since it was checked; grpc does not say what the system said.
            check_all((address,))
            raise ListenError("ADDRESS_IN_USE", address.text, "cannot be bound") from None
    return address.text if path is not None else address.with_port(port)


def bind_socket(address: Address) -> tuple[socket.socket, str]:
    """The same for a listener that is not gRPC's."""
    path = address.socket_path
    try:
        if path is not None:
            with claimed(path):
                listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                listening.bind(str(path))
            return listening, address.text
        family, _, _, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(
            place[:2], family=family, dualstack_ipv6=address.host == "::" and socket.has_dualstack_ipv6()
        )
    except OSError as error:
        raise ListenError.from_os(address.text, error) from None
    return listening, address.with_port(listening.getsockname()[1])


def _check_port(address: Address) -> None:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ListenError("CANNOT_CREATE", address.text, f"the host is not known: {error.strerror}") from None
    refusal: OSError | None = None
    n_good = 0
    for family, kind, protocol, _, place in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                # As grpc does: a port in the last phase of its connections is free, one that is listened on is not.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address.host != "::"))
                probe.bind(place)
                n_good += 1
        except OSError as error:
            failure = ListenError.from_os(address.text, error)
            if failure.reason == "ADDRESS_IN_USE":
                raise failure from None
            refusal = error
    # Of a name's addresses, such as those of localhost, one is enough.
    if refusal is not None and not n_good:
        raise ListenError.from_os(address.text, refusal)
