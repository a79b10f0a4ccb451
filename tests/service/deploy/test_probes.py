"""The manifests' probes as a kubelet makes them: one plain-text connection each, about a second, under any load."""

from __future__ import annotations

import contextlib
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from support.deploy.manifests import base_documents
from support.deploy.pods import imp_of, of_kind
from support.machine.process_numbers import ProcessNumbers
from support.run.patience import HANGS_AFTER
from support.servers.served import ask
from support.servers.server_process import ServerProcess, server_process

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
# A kubelet's defaults: seconds, and failures in a row before it acts.
PROBE_SECONDS, PROBE_FAILURES = 1.0, 3
ROUNDS = 10
# A scrape takes some milliseconds.
PATIENCE = 2_000


def probe(server: ServerProcess, kind: str) -> int:
    """Returns the status of a probe of the standalone base. Fails where a kubelet would act.

    A kubelet limits the seconds of a clock. Here the limit is on the server's processor time, which other programs do
    not change.
    """
    address = server.wait_until_ready()["health"]
    described = imp_of(base_documents("standalone"))[f"{kind}Probe"]
    request = health_pb2.HealthCheckRequest(service=described["grpc"]["service"])
    seconds = described.get("timeoutSeconds", PROBE_SECONDS)
    for _ in range(described.get("failureThreshold", PROBE_FAILURES)):
        before = ProcessNumbers.of(server.pid).cpu_seconds
        with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check(request, timeout=HANGS_AFTER, wait_for_ready=True)
        if ProcessNumbers.of(server.pid).cpu_seconds - before < seconds:
            return int(check.status)
    raise AssertionError(f"{kind}: each probe took {seconds} s of processor time")


@contextlib.contextmanager
def overload(server: ServerProcess, n_streams: int) -> Iterator[None]:
    """Runs `n_streams` streams that nobody reads, ten times as many as there are places."""
    with server.inference() as stub:
        streams = [stub.Generate(ask("Once", 400)) for _ in range(n_streams)]
        yield
        for stream in streams:
            stream.cancel()


def test_lif_13_l14_probes_tell_the_truth_and_pass_under_overload(tmp_path: Path) -> None:
    places = ("scheduler.max_running=2", "scheduler.max_waiting=4")
    settings = (*places, "listen.health=127.0.0.1:0", "drain.delay=1h", "kv.bytes=4MiB")
    with server_process(tmp_path, settings=settings) as server:
        assert (probe(server, "startup"), probe(server, "liveness")) == (SERVING, SERVING)
        for _ in range(ROUNDS):
            with overload(server, 60):
                assert (probe(server, "readiness"), probe(server, "liveness")) == (SERVING, SERVING)
        server.signal(signal.SIGTERM)
        with overload(server, 60):
            # The server handles the signal after some time, and then never serves again.
            give_up = time.monotonic() + HANGS_AFTER
            while probe(server, "readiness") == SERVING:
                assert time.monotonic() < give_up, "it goes on serving"
            assert [probe(server, "readiness") for _ in range(ROUNDS)] == [NOT_SERVING] * ROUNDS
            assert probe(server, "liveness") == SERVING


@pytest.mark.long
def test_lif_14_the_metric_that_autoscaling_follows_counts_who_waits(tmp_path: Path) -> None:
    (metric,) = of_kind(base_documents("standalone"), "HorizontalPodAutoscaler")["spec"]["metrics"]
    line = re.compile(rf"^{metric['pods']['metric']['name']} ([0-9.]+)$", re.MULTILINE)
    settings = ("scheduler.max_running=2", "listen.metrics=127.0.0.1:0", "kv.bytes=4MiB")
    with server_process(tmp_path, settings=settings) as server:
        address = server.wait_until_ready()["metrics"]

        def waiting() -> float:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=HANGS_AFTER) as page:
                (value,) = line.findall(page.read().decode())
            return float(value)

        assert waiting() == 0
        with overload(server, 20):
            assert any(waiting() > 0 for _ in range(PATIENCE))
        assert any(waiting() == 0 for _ in range(PATIENCE))
