"""A client for threads or one for tasks, and the errors of its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

import imp_service
from imp_service import Error
from support.calls.waiting_client import WaitingClient
from support.servers.loop_thread import loop_thread


@contextmanager
def client_of(address: str, kind: str = "threads", **options: Any) -> Iterator[Any]:
    """Yields a client for threads, or one for tasks which waits."""
    if kind == "threads":
        with imp_service.connect(address, **options) as client:
            yield client
    else:
        with closing(WaitingClient(imp_service.connect_async(address, **options), loop_thread().run)) as waiting:
            yield waiting


def refused(session: Any, act: Callable[[Any], object] = lambda session: session.decode_step()) -> Error:
    """Returns the error of a call on a session."""
    with pytest.raises(Error) as caught:
        act(session)
    return caught.value
