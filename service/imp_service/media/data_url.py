"""Reads the bytes of an image from base64, alone or in a `data:` URL. No other address is ever fetched."""

from __future__ import annotations

import binascii

from imp_service.text.errors import FieldInvalid

_SCHEME = "data:"
_WITHOUT_BREAKS = {ord("\r"): None, ord("\n"): None}


def read_data_url(url: str, path: str) -> bytes:
    """Raises `FieldInvalid` at `path` for any other URL, and for base64 that is not exact; it may have line breaks.

    The type that the URL states decides nothing: the bytes say what they are.
    """
    if url[: len(_SCHEME)].lower() != _SCHEME:
        raise FieldInvalid(path, "is no data: URL, and no other is fetched; send data:image/png;base64,…")
    head, comma, text = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise FieldInvalid(path, "is a data: URL without ;base64, before its bytes; send data:image/png;base64,…")
    return read_base64(text, path)


def read_base64(text: str, path: str) -> bytes:
    """The bytes of a base64 text, which may have line breaks. Raises `FieldInvalid` at `path` if it is not exact."""
    try:
        return binascii.a2b_base64(text.translate(_WITHOUT_BREAKS), strict_mode=True)
    except ValueError:
        raise FieldInvalid(path, "has bytes that are not base64 of RFC 4648 with padding") from None
