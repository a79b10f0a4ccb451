"""Server-sent events out of the bytes of a body, however they are cut."""

from collections.abc import Iterator


class EventReader:
    """Takes bytes as they come; returns the data of the events that are whole."""

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
