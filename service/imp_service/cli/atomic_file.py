"""Writes a file atomically. Replaces regular files only, and follows no link."""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

# Readable for everyone, unless the caller says otherwise.
MODE = 0o644
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def write_atomically(path: Path, text: str, *, keep: Callable[[int], None] = os.close, mode: int = MODE) -> None:
    """Raises OSError. `keep` gets the open descriptor before the file has its final name, and must close it."""
    # An unguessable name, and O_EXCL: the write cannot hit another file or a link.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    written = os.open(partial, _CREATE, mode)
    try:
        try:
            with os.fdopen(written, "w", encoding="utf-8", closefd=False) as file:
                file.write(text)
        except BaseException:
            os.close(written)
            raise
        keep(written)
        require_regular(path)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def require_regular(path: Path) -> None:
    """Raises OSError if `path` exists and is not a regular file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a special file")
        raise FileExistsError(errno.EEXIST, f"found {kind}, expected a regular file or none", str(path))
