"""A model in this process, and the same behind a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import imp_service
from imp_service import Client, LanguageModel
from support.served import Served, serve


@pytest.fixture(scope="module")
def library() -> Iterator[LanguageModel]:
    with imp_service.load(None, "device.threads=1") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve() as server:
        yield server


@pytest.fixture(scope="module", params=["load", "connect"])
def model(request: pytest.FixtureRequest, library: LanguageModel, served: Served) -> Iterator[LanguageModel | Client]:
    if request.param == "load":
        yield library
    else:
        with imp_service.connect(served.address) as client:
            yield client
