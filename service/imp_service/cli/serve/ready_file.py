"""The ready file: it names a server's addresses while the server serves, and is absent before and after."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

from imp_service.cli.atomic_file import require_regular, write_atomically
from imp_service.cli.failure import CommandError


class ReadyFile:
    """Used on the main thread. Two servers need two ready files: each start removes the file that it finds."""

    def __init__(self, path: Path) -> None:
        """Removes the file of an earlier server. Raises CommandError if a new file cannot be written there."""
        self._path = path
        # Descriptor of the written file, kept open so that no other file can get its inode number.
        self._written: int | None = None
        with self._failing():
            require_regular(self._path)
            self._path.unlink(missing_ok=True)
            folder = self._path.parent
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a directory")
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, f"{folder}: not allowed to write there")

    def write(self, facts: dict[str, object]) -> None:
        """Writes the file atomically, so that a waiting program never reads a part of it. Raises CommandError."""
        with self._failing():
            write_atomically(self._path, json.dumps(facts) + "\n", keep=self._keep)

    def remove(self) -> None:
        """Removes the written file, but not a file that another server has put in its place."""
        written, self._written = self._written, None
        if written is None:
            return
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(written), os.lstat(self._path)):
                self._path.unlink()
        os.close(written)

    def _keep(self, descriptor: int) -> None:
        # Set before the file has its name, since a signal may end the process at any moment.
        self._written = descriptor

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CommandError("CANNOT_CREATE", f"--ready-file: {self._path}: {error.strerror}") from None
