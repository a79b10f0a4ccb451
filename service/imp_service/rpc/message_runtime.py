"""The protobuf runtime that messages of strangers are parsed by."""

from __future__ import annotations

from google.protobuf.internal import api_implementation


def require_native_runtime() -> None:
    """Raises where protobuf has fallen back to Python: there, nested groups of a request recurse on our own stack."""
    found = api_implementation.Type()
    if found != "upb":
        raise RuntimeError(f"protobuf runs on {found!r}, expected its C runtime 'upb'; reinstall protobuf")
