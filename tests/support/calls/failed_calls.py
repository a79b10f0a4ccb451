"""Runs a call that must fail, and returns its status and details."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from support.calls.status_details import Details, read_details


class FailedCall:
    """The status of a failed call with its details."""

    def __init__(self, error: Any) -> None:
        self.error = error
        self.code: str = error.code().name
        self.message: str = error.details()
        self.details: Details = read_details(error.trailing_metadata() or ())
        self.trailing = dict(error.trailing_metadata() or ())
        self.initial = dict(error.initial_metadata() or ())

    @property
    def reason(self) -> str:
        """The reason in ErrorInfo."""
        return self.details.reason

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata in ErrorInfo."""
        return self.details.metadata

    @property
    def paths(self) -> list[str]:
        """The fields that are wrong."""
        return self.details.paths


def failed(call: Callable[[], Any]) -> FailedCall:
    """Returns the failure of a call; fails the test if the call succeeds."""
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return FailedCall(raised.value)
