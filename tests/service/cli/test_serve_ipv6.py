"""imp serve on a kernel without IPv6: `[::]` then means every address that the machine has."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from support import without_ipv6
from support.patience import HANGS_AFTER
from support.server_process import server_process

LISTEN = ("--listen", "[::]:0")
OTHERS = ("listen.health=[::]:0", "listen.metrics=[::]:0")


@pytest.mark.long
def test_rpc_26_l21_every_listener_falls_back_to_ipv4(tmp_path: Path) -> None:
    inside = [sys.executable, without_ipv6.__file__]
    with server_process(tmp_path, *LISTEN, settings=OTHERS, inside=inside, is_traced=False) as server:
        facts = server.wait_until_ready()
        addresses = [*facts["grpc"], facts["health"], facts["metrics"]]
        assert [address.rpartition(":")[0] for address in addresses] == ["0.0.0.0"] * 3
        ports = [address.rpartition(":")[2] for address in addresses]
        for port in ports[:2]:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=HANGS_AFTER)
                assert reply.status == health_pb2.HealthCheckResponse.SERVING
        with urllib.request.urlopen(f"http://127.0.0.1:{ports[2]}/metrics", timeout=HANGS_AFTER) as page:
            assert b"imp_requests_waiting" in page.read()
        told = [line["message"] for line in server.log_lines("listen")]
        assert told == ["this kernel has no IPv6: 0.0.0.0:0 in place of [::]:0"] * 3
        assert server.terminate() == 0


def test_rpc_26_l21_one_ipv6_address_is_not_another_one(tmp_path: Path) -> None:
    """An explicit address is never replaced by another."""
    inside = [sys.executable, without_ipv6.__file__]
    with server_process(tmp_path, "--listen", "[::1]:0", inside=inside, is_traced=False) as server:
        assert server.wait_for_end() == 73
        assert "[::1]:0" in server.stderr
