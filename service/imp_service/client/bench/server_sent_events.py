"""Parses server-sent events from a body that arrives in arbitrary pieces."""

from collections.abc import Iterator


class EventReader:
    """Takes the next bytes; returns the data of complete events."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def read(self, content: bytes) -> Iterator[bytes]:
        """Comments and other fields than `data` are skipped."""
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in (line.removesuffix(b"\r") for line in lines):
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                yield b"\n".join(self._data)
                self._data = []
