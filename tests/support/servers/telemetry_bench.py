"""A server's telemetry with a clock that the test sets, and a reader of its series."""

from __future__ import annotations

from dataclasses import dataclass

from imp_service.config import Settings
from imp_service.telemetry import CallRecord, Method, Telemetry
from imp_service.telemetry.log import STDERR
from imp_service.telemetry.tracing import Tracer
from support.servers.scraped import series_of

GENERATE = Method("imp.v1.InferenceService", "Generate", "server_stream", is_request=True)
GET_LOAD = Method("imp.v1.ModelService", "GetLoad", "unary")


@dataclass
class Spent:
    queue: float = 0.25
    prefill: float = 0.5
    decode: float = 1.0
    encode: float = 0.0


@dataclass
class Used:
    prompt_tokens: int
    cached_prompt_tokens: int
    output_tokens: int
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0


@dataclass
class Sparse:
    is_sparse: bool = True
    reason: str = ""
    scored_tokens: int = 0
    selected_tokens: int = 0


class TelemetryBench:
    """A Telemetry object and the clock that it reads."""

    def __init__(self, log_to: int = STDERR, tracer: Tracer | None = None) -> None:
        self.now = 100.0
        self.telemetry = Telemetry(
            Settings(), [GENERATE, GET_LOAD], clock=lambda: self.now, log_to=log_to, tracer=tracer
        )

    def call(self, method: Method = GENERATE, tenant: str = "", request_id: str = "r") -> CallRecord:
        return self.telemetry.call(method.path, request_id, tenant, "ipv4:127.0.0.1:1")

    def series(self) -> dict[str, float]:
        """Returns every sample by its name and labels, as a scraper reads them."""
        return series_of(self.telemetry.metrics.render().decode())
