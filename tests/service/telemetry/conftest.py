"""Fixtures of the telemetry tests."""

import pytest

from support.servers.telemetry_bench import TelemetryBench


@pytest.fixture
def bench() -> TelemetryBench:
    """A server's telemetry with the test's clock."""
    return TelemetryBench()
