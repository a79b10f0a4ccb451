"""A server for the suites of other projects' clients, which reach it directly, or through a front."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from imp_service.config.address import Address
from support.llama_cpp_suite.llama_server import THROUGH_FRONT
from support.servers.front_served import front_served, ready
from support.servers.http_served import HttpServed, serve_http
from support.servers.loop_thread import loop_thread
from support.servers.served import Served


class BehindFront(HttpServed):
    """A server whose clients connect to a front."""

    def __init__(self, served: Served, port: int) -> None:
        self._front = Address(f"127.0.0.1:{port}")
        super().__init__(served, None, None)

    @property
    def address(self) -> Address:
        """The address of the front."""
        return self._front


@contextmanager
def serve_for_clients(*settings: str, **how: Any) -> Iterator[HttpServed]:
    """Serves as serve_http() does."""
    with serve_http(*settings, **how) as direct:
        if os.environ.get(THROUGH_FRONT) != "1":
            yield direct
            return
        loop = loop_thread()
        fronted = front_served([direct.address.text])
        front = loop.run(fronted.__aenter__())
        loop.run(ready(front))
        try:
            yield BehindFront(direct.served, front.port)
            # Otherwise nothing was shown.
            assert front.front.admission._n_tickets > 0
        finally:
            loop.run(fronted.__aexit__(None, None, None))
