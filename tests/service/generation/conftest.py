"""A model in this process, and the same behind a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import imp_service
from imp_service import Client, LanguageModel
from support.servers.served import Served


@pytest.fixture(scope="module", params=["load", "connect"])
def model(request: pytest.FixtureRequest, library: LanguageModel, served: Served) -> Iterator[LanguageModel | Client]:
    if request.param == "load":
        yield library
    else:
        with imp_service.connect(served.address) as client:
            yield client
