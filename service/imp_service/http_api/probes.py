"""Probes: whether the server is ready and alive, and its metrics."""

from __future__ import annotations

from http import HTTPStatus

from imp_service.http_api.http_call import HttpCall
from imp_service.http_api.json_text import dumps
from imp_service.serving.server_state import ServerState
from imp_service.telemetry.metrics_page import CONTENT_TYPE, MetricsPage


class Probes:
    """Answers load balancers, kubelets and Prometheus."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._page = MetricsPage(state.telemetry.metrics.render, state.clock)
        self._is_alive = True
        state.watchdog.watch(self._set_alive)

    async def ready(self, call: HttpCall) -> None:
        """200 while the server takes new work, else 503 with the phase."""
        phase = self._state.lifecycle.phase
        self._answer(call, {"status": phase.value}, is_good=self._state.lifecycle.is_ready)

    async def alive(self, call: HttpCall) -> None:
        """503 if the process should be restarted."""
        self._answer(call, {"status": "alive" if self._is_alive else "stuck"}, is_good=self._is_alive)

    async def metrics(self, call: HttpCall) -> None:
        """The metrics of Prometheus."""
        call.answer_with(self._page.get(), CONTENT_TYPE)

    def _set_alive(self, is_alive: bool) -> None:
        self._is_alive = is_alive

    def _answer(self, call: HttpCall, value: object, *, is_good: bool) -> None:
        call.answer_with(dumps(value).encode(), status=HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE)
