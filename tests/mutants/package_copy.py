"""A copy of the installed package, of which one file may be changed for a while."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path


class PackageCopy:
    """A copy in a folder of its own. It shares the bytes of files that are not changed."""

    def __init__(self, package: Path, folder: Path) -> None:
        self._folder = folder
        self._original = package
        self.package = folder / package.name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(package, self.package, copy_function=_link)

    def remove(self) -> None:
        """Deletes the copy."""
        shutil.rmtree(self._folder)

    def import_first(self) -> None:
        """Makes this process import the copy, and the processes that it starts."""
        folder = str(self._folder)
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))

    @contextlib.contextmanager
    def changed(self, path: Path, content: bytes) -> Iterator[None]:
        """Gives a file of the package, or a new one, this content during the block."""
        there = self.package / path.relative_to(self._original)
        there.unlink(missing_ok=True)
        there.write_bytes(content)
        # Python takes the bytecode of a cache file if its source had the same time and size.
        changed_at = zlib.crc32(content)
        os.utime(there, (changed_at, changed_at))
        try:
            yield
        finally:
            there.unlink()
            if path.exists():
                _link(str(path), str(there))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
