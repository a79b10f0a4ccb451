"""Reads the key-values of a GGUF file, independently of imp and a hundred times faster than the gguf package."""

from __future__ import annotations

import struct
from pathlib import Path

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 4

    def scalars(self, code: str, n: int = 1) -> list[object]:
        form = f"<{n}{code}"
        values = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return list(values)

    def count(self, code: str = "Q") -> int:
        return int(self.scalars(code)[0])  # type: ignore[call-overload]

    def string(self) -> str:
        n = self.count()
        self.position += n
        return self.data[self.position - n : self.position].decode("utf-8", "surrogateescape")

    def value(self, kind: int) -> object:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalars(_SCALARS[kind])[0]
        kind, n = self.count("I"), self.count()
        return [self.string() for _ in range(n)] if kind == _STRING else self.scalars(_SCALARS[kind], n)


def read_key_values(path: Path) -> dict[str, object]:
    """Returns all key-values; strings with bytes that are not UTF-8 hold surrogate escapes."""
    reader = _Reader(path.read_bytes())
    assert reader.data[:4] == b"GGUF"
    reader.count("I")
    reader.count()
    n_keys = reader.count()
    return {reader.string(): reader.value(reader.count("I")) for _ in range(n_keys)}
