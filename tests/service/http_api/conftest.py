"""A server with HTTP, and a check after every test module for descriptors and threads that it left."""

from collections.abc import Iterator

import pytest

from support.run.always_on import nothing_left
from support.servers.http_served import HttpServed, serve_http

__all__ = ["nothing_left"]


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    """A server with the built-in model."""
    with serve_http() as it:
        yield it
