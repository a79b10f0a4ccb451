"""Metrics, log and tracing of one server, created from its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING

from imp_service.config import Settings
from imp_service.config.server_settings import TracingSettings
from imp_service.telemetry.access_log import AccessLog
from imp_service.telemetry.call_record import CallFacts, CallRecord, Ending
from imp_service.telemetry.log import STDERR, Log
from imp_service.telemetry.method import Method, Methods
from imp_service.telemetry.metrics import Metrics
from imp_service.telemetry.progress import ProgressReports

if TYPE_CHECKING:
    from imp_service.telemetry.tracing import Tracer


class Telemetry:
    """Used on the thread of the event loop, except the log, which any thread may write."""

    def __init__(
        self,
        settings: Settings,
        methods: Iterable[Method] = (),
        *,
        clock: Callable[[], float] = monotonic,
        log_to: int = STDERR,
        tracer: Tracer | None = None,
    ) -> None:
        """`log_to` is a descriptor. Without a `tracer`, the settings decide. Raises ConfigError."""
        self._clock = clock
        self._methods = Methods()
        self.metrics = Metrics()
        self.progress = ProgressReports(clock)
        for method in methods:
            self.add_method(method)
        self.log = Log(settings.log, log_to, clock=clock)
        self.metrics.watch_log(lambda: self.log.n_dropped)
        self._access = AccessLog(self.log, settings.model.name or "")
        self._tracer = make_tracer(settings.tracing) if tracer is None else tracer

    def add_method(self, method: Method) -> None:
        """Registers a method. Calls of other methods count as unknown."""
        self._methods.add(method)
        self.metrics.add_method(method)

    def set_model(self, name: str, **facts: str) -> None:
        """Sets the name and the facts of the served model."""
        self._access.model = name
        self.metrics.set_model({"model": name, **facts})

    def call(
        self, method: str, request_id: str, tenant: str, peer: str, traceparent: str = "", *, tracestate: str = ""
    ) -> CallRecord:
        """The record of a call that begins now; `method` is its path, /package.Service/Name."""
        facts = CallFacts(self._methods.find(method), request_id, tenant, peer, self._clock())
        endings: tuple[Ending, ...] = (self._access, self.progress)
        if self._tracer is not None:
            endings = (*endings, self._tracer.begin(method, traceparent, tracestate))
        return CallRecord(facts, self.metrics, self._clock, endings)

    def close(self) -> None:
        """Writes and sends what is queued; drops what comes later."""
        if self._tracer is not None:
            self._tracer.close()
        self.log.close()


def make_tracer(settings: TracingSettings) -> Tracer | None:
    """None if tracing is off: OpenTelemetry is not imported then. Raises ConfigError."""
    if settings.endpoint is None:
        return None
    from imp_service.telemetry.tracing import Tracer

    return Tracer(settings)
