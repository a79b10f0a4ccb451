"""An address that cannot be listened on: which, why, and by what exit status a supervisor can tell."""

from __future__ import annotations

import errno

_IN_USE = frozenset((errno.EADDRINUSE,))
_NOT_ALLOWED = frozenset((errno.EACCES, errno.EPERM))


class ListenError(Exception):
    """Has the two attributes by which a command tells any failure."""

    def __init__(self, reason: str, where: str, message: str) -> None:
        self.reason = reason
        self.message = f"{where}: {message}"
        super().__init__(f"{reason}: {self.message}")

    @classmethod
    def from_os(cls, where: str, error: OSError) -> ListenError:
        """What the system said, as one of our reasons."""
        if error.errno in _IN_USE:
            return cls("ADDRESS_IN_USE", where, "a live process listens there")
        if error.errno in _NOT_ALLOWED:
            return cls("ADDRESS_PERMISSION", where, "not allowed to this user")
        return cls("CANNOT_CREATE", where, str(error.strerror or error))
