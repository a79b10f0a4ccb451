"""One server under mixed load with a fault at every interval: no wrong token, no leak, no status outside the table."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from imp_service.pb import model_pb2
from imp_service.pb.model_pb2_grpc import ModelServiceStub
from soak.faults import Faults
from soak.load import Load, Route
from soak.watch import Watch
from support.calls.checked_channel import checked
from support.calls.endings import Connect
from support.calls.known_outputs import known_outputs
from support.calls.status_checker import leaks_in
from support.run.findings import FINDINGS
from support.run.patience import HANGS_AFTER
from support.servers.cutting_proxy import CuttingProxy, cutting_proxy
from support.servers.served_models import built_in
from support.servers.server_checks import CanaryLoop
from support.servers.server_process import ServerProcess, server_process

SETTINGS = (
    "slow_client.bytes=1KiB",
    "slow_client.timeout=200ms",
    "sessions.max=4096",
    "kv.bytes=64MiB",
    "log.format=json",
)


@dataclass(frozen=True)
class Plan:
    """The duration, the load, and the intervals of faults."""

    seconds: float
    fault_seconds: float = 30.0
    stopped_seconds: float = 3.0
    requests_per_second: float = 4.0
    n_clients: int = 6
    sample_seconds: float = 5.0
    canary_rest_seconds: float = 1.0
    lease_seconds: int = 10  # lease of abandoned sessions
    # A busy machine may not make these in the given time; the soak then goes on.
    least_requests: int = 0
    least_canary_runs: int = 0


def run_soak(folder: Path, plan: Plan) -> dict[str, Any]:
    """Runs the soak. Returns the verdict as data: `ok`, the problems, and counts of faults and requests."""
    known = known_outputs(24, 7)
    FINDINGS.take()
    settings = (*SETTINGS, f"sessions.ttl={plan.lease_seconds}s")
    with server_process(folder, settings=settings) as server, cutting_proxy(server.address) as proxy:
        watch = Watch(server.pid, plan.sample_seconds)
        with raw_channel(server.address) as channel:
            canary = CanaryLoop(built_in(), checked(channel), rest_seconds=plan.canary_rest_seconds)
            load = Load(
                [
                    Route(connect_to(server.address), is_cut=False, lease_seconds=plan.lease_seconds),
                    Route(connect_to(proxy.address), is_cut=True, lease_seconds=plan.lease_seconds),
                ],
                known,
                n_clients=plan.n_clients,
                per_second=plan.requests_per_second,
            )
            faults, fault_problems = break_things(server, proxy, plan)
            problems = fault_problems or too_little_load(load, canary, plan)
            problems += load.stop()
            canary.stop()
            problems += canary.problems
            problems += rest_problems(channel, plan.lease_seconds)
        growth = watch.stop()
        problems += [*growth.problems(), *FINDINGS.take(), *end_problems(server)]
    return {
        "ok": not problems,
        "problems": problems[:100],
        "n_problems": len(problems),
        "seconds": plan.seconds,
        "canary_runs": canary.n_runs,
        "faults": faults.n_done,
        "endings": dict(sorted(load.seen.items())),
        "n_requests": sum(load.seen.values()),
        "growth": growth.as_json(),
    }


def break_things(server: ServerProcess, proxy: CuttingProxy, plan: Plan) -> tuple[Faults, list[str]]:
    """Causes a fault at every interval until the time is over and each kind has run; the server must survive."""
    stop = threading.Event()
    faults = Faults(server, proxy, plan.stopped_seconds)
    problems: list[str] = []
    over = time.monotonic() + plan.seconds
    while (left := over - time.monotonic()) > 0 or (faults.is_one_left and not problems):
        stop.wait(min(plan.fault_seconds, max(left, 0.0)))
        if server.process.poll() is not None:
            problems.append(f"the server ended with {server.process.returncode}: {server.stderr[-2000:]}")
            break
        if faults.is_one_left or over - time.monotonic() > plan.stopped_seconds:
            try:
                faults.next()
            except (AssertionError, grpc.RpcError, OSError) as error:
                problems.append(f"unexpected effect of a fault: {error}")
    return faults, problems


def too_little_load(load: Load, canary: CanaryLoop, plan: Plan) -> list[str]:
    """Waits until there were as many requests as the plan demands; returns a problem if there never are."""
    try:
        load.wait_for(plan.least_requests)
        canary.wait_for(plan.least_canary_runs - canary.n_runs)
    except AssertionError as error:
        return [f"too little load: {error}"]
    return []


def rest_problems(channel: grpc.Channel, lease_seconds: int) -> list[str]:
    """Returns a problem if something runs, waits or holds blocks after all clients are gone and all leases over."""
    stub = ModelServiceStub(channel)
    give_up = time.monotonic() + lease_seconds + HANGS_AFTER
    rest = threading.Event()
    while time.monotonic() < give_up:
        load = stub.GetLoad(model_pb2.GetLoadRequest()).load
        left = {name: getattr(load, name) for name in ("running", "waiting", "waiting_tokens", "sessions", "kv_usage")}
        if not any(left.values()):
            return []
        rest.wait(0.1)
    return [f"left behind: {left}"]


def end_problems(server: ServerProcess) -> list[str]:
    """Stops the server; returns problems with its exit status and forbidden texts in its log."""
    found = []
    code = server.terminate()
    if code != 0:
        found.append(f"SIGTERM: exit status {code}")
    for line in server.stderr.splitlines():
        if '"level": "error"' in line or leaks_in(line):
            found.append(f"log: {line[:500]}")
    return found


@contextlib.contextmanager
def raw_channel(address: str, *options: tuple[str, Any]) -> Iterator[grpc.Channel]:
    """Yields a new connection."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1), *options]) as channel:
        yield channel


def connect_to(address: str) -> Connect:
    """Opens connections to an address, with every call checked."""

    @contextlib.contextmanager
    def connect(*options: tuple[str, Any]) -> Iterator[grpc.Channel]:
        with raw_channel(address, *options) as channel:
            yield checked(channel)

    return connect
