"""Checks and binds the addresses that a server listens on: TCP ports and Unix sockets."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from imp_service.config.address import Address
from imp_service.config.server_settings import ListenSettings
from imp_service.telemetry.log import Log

_IN_USE = frozenset((errno.EADDRINUSE,))
_NOT_ALLOWED = frozenset((errno.EACCES, errno.EPERM))


class ListenError(Exception):
    """An address that cannot be listened on. `reason` decides the exit status, as for any failure of a command."""

    def __init__(self, reason: str, where: str, message: str) -> None:
        self.reason = reason
        self.where = where
        self.message = f"{where}: {message}"
        super().__init__(f"{reason}: {self.message}")

    @classmethod
    def from_os(cls, where: str, error: OSError) -> ListenError:
        """The error of the system as a reason of imp."""
        if error.errno in _IN_USE:
            return cls("ADDRESS_IN_USE", where, "another process listens there")
        if error.errno in _NOT_ALLOWED:
            return cls("ADDRESS_PERMISSION", where, "this user may not listen there")
        return cls("CANNOT_CREATE", where, str(error.strerror or error))


OTHER_HTTP = "another address with --http"
# sun_path holds 108 bytes, the ending NUL among them.
MAX_PATH_BYTES = 107
# Owner and group, whatever umask the process was started with.
WITHOUT_OTHERS = 0o117


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Within the `with` block a socket may be bound at the path. A stale socket there was checked and removed.

    A lock on the folder makes two processes that start at once do this one after the other.
    """
    check(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if check(path):
            path.unlink()
        before = os.umask(WITHOUT_OTHERS)
        try:
            yield
        finally:
            os.umask(before)
    except OSError as error:
        raise ListenError.from_os(f"unix://{path}", error) from None
    finally:
        os.close(folder)


def check(path: Path) -> bool:
    """Whether binding must first remove a stale socket at the path. Raises ListenError if binding is impossible."""
    where = f"unix://{path}"
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ListenError("CANNOT_CREATE", where, f"{len(os.fsencode(path))} bytes, at most {MAX_PATH_BYTES} fit")
    try:
        _check_folder(where, path.parent)
        found = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ListenError.from_os(where, error) from None
    if not stat.S_ISSOCK(found.st_mode):
        raise ListenError("CANNOT_CREATE", where, f"found {_kind(found.st_mode)}, expected nothing or a stale socket")
    if _is_answered(where, path):
        raise ListenError("ADDRESS_IN_USE", where, "a live process answers there")
    if found.st_uid != os.geteuid():
        raise ListenError("ADDRESS_PERMISSION", where, f"found a stale socket of user {found.st_uid}")
    return True


def _check_folder(where: str, folder: Path) -> None:
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        raise ListenError("CANNOT_CREATE", where, "its directory does not exist") from None
    if not stat.S_ISDIR(mode):
        raise ListenError("CANNOT_CREATE", where, f"its directory is {_kind(mode)}")
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise ListenError(
            "ADDRESS_PERMISSION",
            where,
            "everyone may write to its directory, and it has no sticky bit: anyone could put another socket there",
        )


def _is_answered(where: str, path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # EAGAIN is a full backlog, so a live process.
        probe.setblocking(False)
        result = probe.connect_ex(str(path))
    if result in (0, errno.EAGAIN):
        return True
    if result == errno.ECONNREFUSED:
        return False
    raise ListenError.from_os(where, OSError(result, os.strerror(result)))


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "a regular file", stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link"}
    return kinds.get(stat.S_IFMT(mode), "a special file")


def has_ipv6() -> bool:
    """Whether this kernel supports IPv6."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


def bindable(text: str, log: Log) -> Address:
    """The address to bind. `[::]` means every address of the machine, so without IPv6 it becomes `0.0.0.0`."""
    address = Address(text)
    if address.without_ipv6 == address or has_ipv6():
        return address
    log.warning("listen", message=f"this kernel has no IPv6: {address.without_ipv6.text} in place of {text}")
    return address.without_ipv6


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses on which a server listens."""

    grpc: tuple[Address, ...]
    http: tuple[Address, ...]
    health: Address | None
    admin: Address | None
    metrics: Address | None


def checked_addresses(listen: ListenSettings, log: Log) -> Addresses:
    """The addresses of every listener, whatever it speaks. Raises ListenError if one of them cannot be bound."""

    def one(text: str | None) -> Address | None:
        return None if text is None else bindable(text, log)

    found = Addresses(
        grpc=tuple(bindable(text, log) for text in listen.grpc),
        http=tuple(bindable(text, log) for text in listen.http),
        health=one(listen.health),
        admin=one(listen.admin),
        metrics=one(listen.metrics),
    )
    _check_free(found.grpc, "other addresses with --listen and --http")
    _check_free(found.http, OTHER_HTTP)
    for key in ("health", "admin", "metrics"):
        if (address := getattr(found, key)) is not None:
            _check_free([address], f"another address with --set listen.{key}")
    return found


def checked_http(listen: ListenSettings, log: Log) -> tuple[Address, ...]:
    """The same for HTTP alone."""
    found = tuple(bindable(text, log) for text in listen.http)
    _check_free(found, OTHER_HTTP)
    return found


def _check_free(addresses: Iterable[Address], advice: str) -> None:
    """As check_all(). The error about an address that is in use says what to choose."""
    try:
        check_all(addresses)
    except ListenError as error:
        if error.reason != "ADDRESS_IN_USE":
            raise
        said = error.message.removeprefix(f"{error.where}: ")
        raise ListenError(error.reason, error.where, f"{said}; stop it, or choose {advice}") from None


def check_all(addresses: Iterable[Address]) -> None:
    """Raises ListenError for the first address that cannot be bound. Leaves none bound."""
    for address in addresses:
        if address.descriptor is not None:
            _inherited(address).close()
        elif (path := address.socket_path) is not None:
            check(path)
        else:
            _check_port(address)


def bind_socket(address: Address) -> tuple[socket.socket, str]:
    """Binds a checked address for a listener without gRPC. Returns the address with the port that was chosen."""
    if address.descriptor is not None:
        listening = _inherited(address)
        os.close(address.descriptor)  # it would keep the address after the listener's end
        is_tcp = listening.family != socket.AF_UNIX
        return listening, _tcp_text(listening.getsockname()) if is_tcp else address.text
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


def is_abstract(listening: socket.socket) -> bool:
    """Whether it is a Unix socket without a file, whose rights would limit who may connect."""
    name = listening.getsockname()
    return listening.family == socket.AF_UNIX and isinstance(name, bytes) and name.startswith(b"\0")


def _inherited(address: Address) -> socket.socket:
    """A copy of the listening socket that this process has inherited."""
    assert address.descriptor is not None  # narrows
    try:
        if not stat.S_ISSOCK(os.fstat(address.descriptor).st_mode):
            raise ListenError("CANNOT_CREATE", address.text, "found no socket, expected one that listens")
        listening = socket.socket(fileno=os.dup(address.descriptor))
    except OSError as error:
        raise ListenError.from_os(address.text, error) from None
    if not listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listening.close()
        raise ListenError("CANNOT_CREATE", address.text, "found another socket, expected one that listens")
    return listening


def _tcp_text(name: tuple[str, int]) -> str:
    """The address of a TCP socket."""
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
                # As gRPC does: a port with connections in TIME_WAIT is free.
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
    # If a host name has several addresses, one is enough.
    if refusal is not None and not n_good:
        raise ListenError.from_os(address.text, refusal)
