"""The ready file: it names a server's addresses while the server serves, and is absent before and after."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

from imp_service.cli.atomic_file import require_regular, write_whole
from imp_service.cli.failure import CommandError


class ReadyFile:
    """On the main thread. Two servers need two ready files: each start removes the file that it finds."""

    def __init__(self, path: Path) -> None:
        """Removes what an earlier server left. Raises CommandError where the file could not be written later."""
        self._path = path
        # Of the file that was written, kept open: no other file can get its inode number meanwhile.
        self._written: int | None = None
        with self._failing():
            require_regular(self._path)
            self._path.unlink(missing_ok=True)
            folder = self._path.parent
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, f"{folder} is no directory")
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, f"{folder}: not allowed to write there")

    def write(self, facts: dict[str, object]) -> None:
        """Writes it completely or not at all: a program that waits for it may read it at once. Raises CommandError."""
        with self._failing():
            write_whole(self._path, json.dumps(facts) + "\n", keep=self._keep)

    def remove(self) -> None:
        """Removes the file that was written, and not one that another server has put in its place."""
        written, self._written = self._written, None
        if written is None:
            return
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(written), os.lstat(self._path)):
                self._path.unlink()
        os.close(written)

    def _keep(self, descriptor: int) -> None:
        # Known before the file has its name: a signal may end the process at any moment.
        self._written = descriptor

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CommandError("CANNOT_CREATE", f"--ready-file: {self._path}: {error.strerror}") from None
