"""Pairs of servers with HTTP listeners, and SMG in front of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.calls.http_calls import HttpClient
from support.servers.smg_gateway import Pair, pair_behind


@pytest.fixture(scope="session")
def smg() -> None:
    """Skips unless SMG is installed."""
    pytest.importorskip("smg", reason="SMG is not installed here: pip install smg")


@pytest.fixture(scope="module")
def pair(smg: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two servers behind SMG, which alternates between them."""
    with pair_behind(tmp_path_factory.mktemp("pair"), "--policy", "round_robin") as it:
        yield it


@pytest.fixture(scope="module")
def alone(pair: Pair) -> HttpClient:
    """A client of one of the servers, without SMG."""
    return pair.http_clients[0]
