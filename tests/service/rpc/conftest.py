"""Session calls to a server, and a check after every test module for descriptors and threads that it left."""

from collections.abc import Iterator

import pytest

from support.calls.session_calls import SessionCalls, calls_at_rest
from support.run.always_on import nothing_left
from support.servers.served import Served

__all__ = ["nothing_left"]


@pytest.fixture
def calls(served: Served) -> Iterator[SessionCalls]:
    yield from calls_at_rest(served)
