"""imp serve with odd clocks: a process that was stopped for a while, and a wall clock that jumps."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from support.calls.session_calls import prefill
from support.calls.wire import ask, tokens_of
from support.machine.shim import Shim
from support.run.patience import HANGS_AFTER
from support.servers.server_process import server_process

HOUR, YEAR = 3600, 365 * 86400


def test_y13_a_process_that_was_stopped_ends_what_is_overdue_and_goes_on_with_the_rest(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        with server.inference() as stub, server.canary() as canary:
            expected = tokens_of(list(stub.Generate(ask("Once upon a time", 40))))
            session = stub.Prefill(prefill("Once upon a time")).session_id
            server.signal(signal.SIGSTOP)
            late = [stub.Generate(ask("Once upon a time", 40), timeout=0.3) for _ in range(4)]
            patient = [stub.Generate(ask("Once upon a time", 40), timeout=HANGS_AFTER) for _ in range(4)]
            for stream in late:
                with pytest.raises(grpc.RpcError) as overdue:
                    next(stream)
                assert overdue.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            server.signal(signal.SIGCONT)
            assert [tokens_of(list(stream)) for stream in patient] == [expected] * 4
            canary.wait_for(1)
            drawn = stub.DecodeStep(pb.DecodeStepRequest(steps=[pb.SessionStep(session_id=session)]))
            assert drawn.results[0].WhichOneof("result") == "output"
        assert server.terminate() == 0


def test_y14_a_wall_clock_that_jumps_ends_nothing_and_hangs_nothing(tmp_path: Path) -> None:
    shim = Shim(tmp_path)
    settings = ("sessions.ttl=60s", "limits.request_time=60s", "slow_client.timeout=60s", "watchdog.engine_stall=60s")
    with server_process(tmp_path, environment=shim.environment, settings=settings) as server:
        with server.inference() as stub, server.canary() as canary:
            session = stub.Prefill(prefill("Once upon a time")).session_id
            there_and_back = [HOUR, -HOUR, 10 * YEAR, -10 * YEAR, *(-60 * n for n in range(1, 20)), 0]
            for ahead in there_and_back:
                shim.set_wall_clock_ahead(ahead)
                step = pb.DecodeStepRequest(steps=[pb.SessionStep(session_id=session)])
                (result,) = stub.DecodeStep(step, timeout=HANGS_AFTER).results
                assert result.WhichOneof("result") == "output", result
            canary.wait_for(1)
            shim.set_wall_clock_ahead(10 * YEAR)
            canary.wait_for(1)
        assert server.terminate() == 0
        # The jumps reached the server: its log has both years.
        years = {json.loads(line)["time"][:4] for line in server.stderr.splitlines() if line.startswith("{")}
        now = time.gmtime().tm_year
        assert {str(now), str(now + 10)} & years and len(years) >= 2, years
