"""Finds the end of a JSON object in a stream of bytes."""

from __future__ import annotations

import re

_IN_STRING = re.compile(rb'["\\]')
_OUTSIDE = re.compile(rb'["{}\[\]<]')


class ObjectScanner:
    """Counts brackets outside of strings. It does not check other rules of JSON.

    A '<' outside of a string is not JSON: a marker begins there, and the object is incomplete.
    """

    __slots__ = ("_depth", "_escapes", "_in_string")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        # The next byte of the string is escaped.
        self._escapes = False

    def feed(self, data: bytes) -> int | None:
        """The end of the object in `data`; None if it does not end there."""
        at = 0
        while at < len(data):
            if self._escapes:
                self._escapes, at = False, at + 1
                continue
            found = (_IN_STRING if self._in_string else _OUTSIDE).search(data, at)
            if found is None:
                return None
            byte, at = found.group(), found.end()
            if byte == b"\\":
                self._escapes = True
            elif byte == b'"':
                self._in_string = not self._in_string
            elif byte == b"<":
                return at - 1
            else:
                self._depth += 1 if byte in b"{[" else -1
                if self._depth <= 0:
                    return at
        return None
