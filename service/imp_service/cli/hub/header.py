"""Finds the end of the header of a weight file: the bytes that describe its tensors, before their data."""

from collections.abc import Callable

# Returns the file's first bytes: at least so many, unless the file is shorter.
Read = Callable[[int], bytes | bytearray]

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
# Bytes of a value of each other type of GGUF.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_MAX_DEPTH = 4
# The longest header: of vocabularies with long tokens it has tens of MiB.
MAX_HEADER_BYTES = 512 * 1024**2


class BrokenHeader(ValueError):
    """The file does not have the format of its name."""


def safetensors_header(read: Read) -> int:
    """The length of the header of a safetensors file."""
    return _checked(8 + int.from_bytes(_taken(read, 0, 8), "little"), read)


def gguf_header(read: Read) -> int:
    """The length of the header of a GGUF file, without the padding after it."""
    if _taken(read, 0, 4) != _MAGIC:
        raise BrokenHeader("not a GGUF file")
    walk = _Walk(read, 8)
    n_tensors, n_keys = walk.number(8), walk.number(8)
    for _ in range(n_keys):
        walk.text()
        walk.value(walk.number(4))
    for _ in range(n_tensors):
        walk.text()
        # The sizes of each dimension; then the type and the offset.
        walk.skip(8 * walk.number(4) + 4 + 8)
    return walk.at


class _Walk:
    """Passes over the fields of a header."""

    def __init__(self, read: Read, at: int) -> None:
        self._read = read
        self.at = at

    def skip(self, n_bytes: int) -> None:
        self.at = _checked(self.at + n_bytes, self._read)

    def number(self, n_bytes: int) -> int:
        start = self.at
        self.skip(n_bytes)
        return int.from_bytes(_taken(self._read, start, n_bytes), "little")

    def text(self) -> None:
        self.skip(self.number(8))

    def value(self, kind: int, depth: int = 0) -> None:
        if kind == _STRING:
            self.text()
        elif kind == _ARRAY and depth < _MAX_DEPTH:
            inner, n = self.number(4), self.number(8)
            if inner in _SIZES:
                self.skip(n * _SIZES[inner])
                return
            for _ in range(n):
                self.value(inner, depth + 1)
        elif kind in _SIZES:
            self.skip(_SIZES[kind])
        else:
            raise BrokenHeader(f"a value of type {kind}")


def _checked(end: int, read: Read) -> int:
    if end > MAX_HEADER_BYTES or len(read(end)) < end:
        raise BrokenHeader("its header does not end")
    return end


def _taken(read: Read, start: int, n_bytes: int) -> bytes:
    found = bytes(memoryview(read(start + n_bytes))[start : start + n_bytes])
    if len(found) < n_bytes:
        raise BrokenHeader("its header does not end")
    return found
