"""Servers that speak VllmEngine next to imp.v1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.calls.vllm_calls import COMPAT
from support.run.always_on import nothing_left
from support.servers.served import Served, serve
from support.servers.served_models import ENDLESS, scripted

__all__ = ["nothing_left"]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(COMPAT) as server:
        yield server


@pytest.fixture(scope="module")
def counting() -> Iterator[Served]:
    """A server whose model counts up from the last token, and never ends during a test."""
    with serve(COMPAT, model=scripted(**ENDLESS)) as server:
        yield server
