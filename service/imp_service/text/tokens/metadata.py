"""Reads a model file's metadata with checks of types. The values are plain Python and NumPy values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from imp_service.text.errors import TokenizerInvalid

PREFIX = "tokenizer.ggml."
TEMPLATE_KEY = "tokenizer.chat_template"


class TokenizerMetadata:
    """The `tokenizer.*` keys of a model file. Every error names the key."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self.metadata = metadata

    def fail(self, name: str, message: str) -> TokenizerInvalid:
        return TokenizerInvalid(PREFIX + name, message)

    def text(self, name: str) -> str | None:
        value = self.metadata.get(PREFIX + name)
        if value is None:
            return None
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise self.fail(name, "not UTF-8") from error
        if not isinstance(value, str):
            raise self.fail(name, f"expected a string, found {type(value).__name__}")
        return value

    def flag(self, name: str) -> bool | None:
        value = self.metadata.get(PREFIX + name)
        if value is not None and not isinstance(value, (bool, np.bool_)):
            raise self.fail(name, f"expected true or false, found {type(value).__name__}")
        return None if value is None else bool(value)

    def token_id(self, name: str, vocab_size: int) -> int | None:
        value = self.metadata.get(PREFIX + name)
        if value is None:
            return None
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise self.fail(name, f"expected a token id, found {type(value).__name__}")
        if not 0 <= value < vocab_size:
            raise self.fail(name, f"token id {value}, expected 0 to {vocab_size - 1}")
        return int(value)

    def token_ids(self, name: str, vocab_size: int) -> tuple[int, ...]:
        values = self.integers(name)
        if values is None:
            return ()
        bad = (values < 0) | (values >= vocab_size)
        if bad.any():
            raise self.fail(name, f"token id {values[bad][0]}, expected 0 to {vocab_size - 1}")
        return tuple(values.tolist())

    def integers(self, name: str) -> NDArray[np.int64] | None:
        array = self._array(name)
        if array is None:
            return None
        if array.size and array.dtype.kind not in "iu":
            raise self.fail(name, f"expected integers, found {array.dtype}")
        return array.astype(np.int64)

    def floats(self, name: str) -> NDArray[np.float32] | None:
        array = self._array(name)
        if array is None:
            return None
        if array.size and array.dtype.kind not in "iuf":
            raise self.fail(name, f"expected numbers, found {array.dtype}")
        return array.astype(np.float32)

    def _array(self, name: str) -> NDArray[np.generic] | None:
        value = self.metadata.get(PREFIX + name)
        if value is None:
            return None
        try:
            array: NDArray[np.generic] = np.asarray(value)
        except ValueError as error:
            raise self.fail(name, "expected a list of numbers, found lists of different lengths") from error
        if array.ndim != 1:
            raise self.fail(name, f"expected a list, found {type(value).__name__} of rank {array.ndim}")
        return array

    def byte_strings(self, name: str) -> list[bytes] | None:
        """A list of strings as bytes; a `str` may hold bytes that are not UTF-8 as surrogate escapes."""
        value = self.metadata.get(PREFIX + name)
        if value is None:
            return None
        if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray)):
            raise self.fail(name, f"expected a list of strings, found {type(value).__name__}")
        if set(map(type, value)) <= {bytes}:  # as the core gives them: hundreds of thousands
            return list(value)
        return [self._bytes(name, index, item) for index, item in enumerate(value)]

    def byte_string(self, name: str) -> bytes | None:
        """A blob, as bytes or as a list of small integers."""
        value = self.metadata.get(PREFIX + name)
        if value is None or isinstance(value, bytes):
            return value
        numbers = self.integers(name)
        assert numbers is not None
        return (numbers & 0xFF).astype(np.uint8).tobytes()

    def _bytes(self, name: str, index: int, item: object) -> bytes:
        if isinstance(item, bytes):
            return item
        if not isinstance(item, str):
            raise self.fail(name, f"entry {index}: expected a string, found {type(item).__name__}")
        try:
            return item.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise self.fail(name, f"entry {index}: holds a surrogate") from error
