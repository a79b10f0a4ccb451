"""What the telemetry tests share."""

import pytest

from support.telemetry_bench import TelemetryBench


@pytest.fixture
def bench() -> TelemetryBench:
    """A server's telemetry whose clock is the test's."""
    return TelemetryBench()
