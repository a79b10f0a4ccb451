"""A Unix socket's path before it is bound: nothing is ever removed but a socket of ours that nobody answers on."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imp_service.rpc.listening.listen_error import ListenError

# sun_path holds 108 bytes, the ending NUL among them.
MAX_PATH_BYTES = 107
# Owner and group, whatever umask the process was started with.
WITHOUT_OTHERS = 0o117


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Within, a socket may be bound at the path: what stood there was checked, and is gone.

    Two that start at once come one after the other, and the second finds the first alive.
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
    """Raises what speaks against binding at the path; True where a socket is in the way that may be removed."""
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
        raise ListenError("CANNOT_CREATE", where, f"found {_kind(found.st_mode)}, expected nothing or an old socket")
    if _is_answered(where, path):
        raise ListenError("ADDRESS_IN_USE", where, "a live process answers there")
    if found.st_uid != os.geteuid():
        raise ListenError("ADDRESS_PERMISSION", where, f"found an old socket of user {found.st_uid}")
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
        # A backlog that is full is a live process too.
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
