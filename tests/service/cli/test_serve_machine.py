"""imp serve on odd machines: no home, shared memory or IPv6; as process 1, on one CPU, with fewer instructions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from imp_service import _testing
from imp_service.cli.failure import error_line, exit_status
from imp_service.core import Error
from support.machine import without_ipv6
from support.machine.command_line import FOUND_IN
from support.machine.name_spaces import name_space
from support.run.patience import HANGS_AFTER
from support.servers.server_process import ServerProcess, server_process


def serving_line(server: ServerProcess) -> dict[str, str]:
    """Returns the log line of the start, after the server's end."""
    lines = [json.loads(line) for line in server.stderr.splitlines() if line.startswith("{")]
    (found,) = [line for line in lines if line["event"] == "serving"]
    return found


BARE = ("env", "-i", f"PYTHONPATH={FOUND_IN}", "TMPDIR=/proc")
CD_NOWHERE = 'mkdir gone; cd gone; rmdir "$PWD"; exec "$@"'
READ_ONLY_MEMORY = 'mount -t tmpfs -o ro none /dev/shm && exec "$@"'


@pytest.mark.long
def test_y09_without_variables_home_or_directory_it_works(tmp_path: Path) -> None:
    """`test_l17_…` tests a root file system, /tmp included, that cannot be written to."""
    with server_process(tmp_path, inside=("sh", "-c", CD_NOWHERE, "sh", *BARE)) as server:
        server.run_canary()
        assert server.terminate() == 0


def test_y09_without_shared_memory_it_works(tmp_path: Path) -> None:
    with server_process(tmp_path, inside=(*name_space("--mount"), "sh", "-c", READ_ONLY_MEMORY, "sh")) as server:
        server.run_canary()
        assert server.terminate() == 0


AS_PROCESS_1 = ("--pid", "--fork", "--kill-child", "--mount-proc")
ORPHAN = ["sh", "-c", "sh -c 'exec true' & exit"]


def child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@pytest.mark.long
def test_y16_as_process_1_signals_work_and_orphans_leave_nothing(tmp_path: Path) -> None:
    with server_process(tmp_path, inside=name_space(*AS_PROCESS_1)) as server:
        assert server.wait_until_ready()["pid"] == 1
        inner = child_of(server.pid)
        with server.canary() as canary:
            for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE, signal.SIGWINCH):
                os.kill(inner, number)
            if shutil.which("nsenter") is not None and os.geteuid() == 0:
                for _ in range(5):
                    subprocess.run(["nsenter", "-t", str(inner), "-p", *ORPHAN], check=True)
            canary.wait_for(2)
            give_up = time.monotonic() + HANGS_AFTER
            while left := Path(f"/proc/{inner}/task/{inner}/children").read_text().split():
                assert time.monotonic() < give_up, f"not reaped: {left}"
        os.kill(inner, signal.SIGTERM)
        assert server.wait_for_end() == 0


def test_y16_a_parent_that_ignores_its_children_changes_nothing(tmp_path: Path) -> None:
    with server_process(tmp_path, inside=["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh"]) as server:
        server.run_canary()
        assert server.terminate() == 0


ONE_CPU = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("taskset") is None, reason="taskset is not installed")
@pytest.mark.parametrize(("threads", "told"), [("auto", "1 thread (affinity: 1 CPU)"), ("4", "4 threads (--set)")])
def test_y17_threads_follow_the_cpus_and_more_of_them_do_not_deadlock(tmp_path: Path, threads: str, told: str) -> None:
    with server_process(tmp_path, inside=ONE_CPU, settings=(f"device.threads={threads}",)) as server:
        server.run_canary()
        assert server.terminate() == 0
        assert serving_line(server)["threads"] == told


@pytest.mark.long
@pytest.mark.parametrize("isa", [_testing.known_isas()[0], _testing.known_isas()[-1]])
def test_y18_an_instruction_set_runs_or_is_refused_and_never_faults(tmp_path: Path, isa: str) -> None:
    has_it = isa in _testing.isas_here()
    with server_process(tmp_path, settings=(f"device.isa={isa}",)) as server:
        if has_it:
            server.run_canary()
            assert server.terminate() == 0
        else:
            assert server.wait_for_end() == 69
            assert f", which {isa} means; it has: generic" in server.stderr


def test_y18_a_cpu_without_avx2_has_the_portable_kernels_and_says_so_of_others() -> None:
    assert _testing.resolve_isa("auto", "generic") == "generic"
    for isa in _testing.known_isas()[1:]:
        with pytest.raises(Error) as lacking:
            _testing.resolve_isa(isa, "generic")
        reason, message = lacking.value.reason, lacking.value.message
        assert exit_status(reason) == 69
        line = error_line(reason, message)
        assert line.startswith("imp: error: DEVICE_MISSING: isa: this CPU lacks ")
        assert line.endswith(f", which {isa} means; it has: generic")


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
