"""A server and a model of the tests' process, and checks after every test that every call was valid."""

from collections.abc import Iterator

import pytest

import imp_service
from imp_service import LanguageModel
from support.run.always_on import always_on
from support.servers.served import Served, serve

__all__ = ["always_on"]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server with the built-in model."""
    with serve() as it:
        yield it


@pytest.fixture(scope="module")
def library() -> Iterator[LanguageModel]:
    """The built-in model without a server."""
    with imp_service.load(None, "device.threads=1") as it:
        yield it
