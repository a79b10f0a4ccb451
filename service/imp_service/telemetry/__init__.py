"""Metrics, structured log lines and trace spans of a server. Independent of gRPC; of the core it imports only types."""

from imp_service.telemetry.call_record import CallFacts, CallRecord
from imp_service.telemetry.engine_numbers import kv_usage
from imp_service.telemetry.log import Log
from imp_service.telemetry.log_capture import capture
from imp_service.telemetry.method import Method
from imp_service.telemetry.metrics import Metrics
from imp_service.telemetry.telemetry import Telemetry

__all__ = [
    "CallFacts",
    "CallRecord",
    "Log",
    "Method",
    "Metrics",
    "Telemetry",
    "capture",
    "kv_usage",
]
