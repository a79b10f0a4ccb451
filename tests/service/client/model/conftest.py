"""The same model in this process, behind a server, and behind a server with TLS and a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

import imp_service
from imp_service import Client, LanguageModel
from support.calls.waiting_client import WaitingClient
from support.run.always_on import nothing_left
from support.servers.secured import TOKEN, secured

__all__ = ["nothing_left"]

THREADED = ("load", "connect", "connect over TLS")
Model = LanguageModel | Client | WaitingClient


@contextmanager
def made(way: str, request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Makes the model. A program of the library moves to a server by changing only this line."""
    with ExitStack() as ends:
        if way == "load":
            yield request.getfixturevalue("library")
        elif way == "connect":
            yield ends.enter_context(imp_service.connect(request.getfixturevalue("served").address))
        elif way == "connect_async":
            served = request.getfixturevalue("served")
            yield ends.enter_context(closing(WaitingClient(imp_service.connect_async(served.address), served.run)))
        else:
            folder = factory.mktemp("secured")
            server = ends.enter_context(secured(folder))
            yield ends.enter_context(imp_service.connect(server.address, ca=f"{folder}/ca.pem", token=TOKEN))


@pytest.fixture(scope="module", params=[*THREADED, "connect_async"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with made(request.param, request, tmp_path_factory) as found:
        yield found


@pytest.fixture(scope="module", params=THREADED)
def threaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """The model without the asyncio client, for tests of what that client does differently."""
    with made(request.param, request, tmp_path_factory) as found:
        yield found
