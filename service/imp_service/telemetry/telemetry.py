"""What one server tells of itself: metrics, log lines and spans, built from its settings."""

from collections.abc import Callable, Iterable
from time import monotonic

from imp_service.config import Settings
from imp_service.telemetry.call_record import CallFacts, CallRecord
from imp_service.telemetry.method import Method, Methods
from imp_service.telemetry.metrics import Metrics


class Telemetry:
    """Used on the event loop's thread."""

    def __init__(
        self, settings: Settings, methods: Iterable[Method] = (), clock: Callable[[], float] = monotonic
    ) -> None:
        self._clock = clock
        self._methods = Methods()
        self.metrics = Metrics()
        for method in methods:
            self.add_method(method)

    def add_method(self, method: Method) -> None:
        """Makes a method known: calls of any other are counted as unknown."""
        self._methods.add(method)
        self.metrics.add_method(method)

    def call(self, method: str, request_id: str, tenant: str, peer: str, traceparent: str = "") -> CallRecord:
        """The record of a call that begins now; `method` is its path, /package.Service/Name."""
        facts = CallFacts(self._methods.find(method), request_id, tenant, peer, self._clock())
        return CallRecord(facts, self.metrics, self._clock)
