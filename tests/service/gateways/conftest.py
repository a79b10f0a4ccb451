"""Pairs of servers that answer HTTP, and SMG in front of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.http_calls import HttpClient
from support.smg_gateway import Pair, pair_behind


@pytest.fixture(scope="session")
def smg() -> None:
    """SMG can be started."""
    pytest.importorskip("smg", reason="SMG is not installed here: pip install smg")


@pytest.fixture(scope="module")
def pair(smg: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two servers behind SMG, which takes turns."""
    with pair_behind(tmp_path_factory.mktemp("pair"), "--policy", "round_robin") as it:
        yield it


@pytest.fixture(scope="module")
def alone(pair: Pair) -> HttpClient:
    """A client of one of the servers, past SMG."""
    return pair.doors[0]
