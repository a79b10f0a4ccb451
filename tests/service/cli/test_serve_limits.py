"""imp serve when the kernel refuses memory, threads or descriptors: a start fails with one line, a server goes on."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from support.command_line import clean_environment
from support.confined import confined
from support.limited import MIB, limit_growth, limited
from support.patience import HANGS_AFTER
from support.process_numbers import ProcessNumbers
from support.server_process import ServerProcess, server_process
from support.sparse_models import sparse_model
from support.status_details import read_details
from support.tiny_models import TinyModel
from support.wire import ask

LARGE = {"n_heads": 64, "n_kv_heads": 8, "head_dim": 128}


def refused_start(server: ServerProcess) -> str:
    """Returns the error line of a start that fails with NO_MEMORY."""
    assert server.wait_for_end() == 71, server.stderr
    (line,) = [line for line in server.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("imp: error: NO_MEMORY: ") and not server.ready_file.exists()
    return line


def written(folder: Path, model: TinyModel) -> Path:
    path = folder / "large.gguf"
    try:
        sparse_model(path, model)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        pytest.skip(f"no file of this size here: {error.strerror}")
    return path


def test_m48_a_terabyte_of_weights_is_refused_before_a_byte_is_allocated(tmp_path: Path) -> None:
    path = written(tmp_path, TinyModel(n_layers=11, hidden_size=1 << 15, ffn_size=1 << 18, **LARGE))
    with server_process(tmp_path, "-m", str(path)) as server:
        need = re.search(r"weights 1\.\d TiB, kv .*; in all 1\.\d TiB of [\d.]+ [GT]iB$", refused_start(server))
    assert need


def test_y03_a_limit_below_the_weights_is_reported_with_need_and_available(tmp_path: Path) -> None:
    path = written(tmp_path, TinyModel(n_layers=4, hidden_size=1 << 13, ffn_size=1 << 15, **LARGE))
    limit = limited(**{"as": 4096 * MIB})
    with server_process(tmp_path, "-m", str(path), inside=limit) as server:
        line = refused_start(server)
    found = re.search(r"weights ([\d.]+) GiB, .*; in all ([\d.]+) GiB of ([\d.]+) GiB$", line)
    assert found, line
    weights, needed, available = (float(number) for number in found.groups())
    assert available < 4 < weights < needed


@pytest.mark.long
def test_y03_a_cache_beyond_the_memory_is_reported_with_need_and_available(tmp_path: Path) -> None:
    with server_process(tmp_path, settings=("kv.bytes=60TiB",)) as server:
        assert re.search(r"kv 60\.0 TiB, .*; in all 60\.\d TiB of [\d.]+ [GT]iB$", refused_start(server))


@pytest.mark.long
def test_y02_load_to_the_edge_of_a_limit_is_refused_and_nothing_dies(tmp_path: Path) -> None:
    settings = ("kv.bytes=1MiB", "scheduler.max_waiting=8", "limits.request_time=20s")
    with server_process(tmp_path, settings=settings) as server:
        server.wait_until_ready()
        with server.inference() as stub:

            def outcome(number: int) -> str:
                try:
                    list(stub.Generate(ask([300 + number, *range(400, 600)], 200)))
                except grpc.RpcError as error:
                    return f"{error.code().name} {read_details(error.trailing_metadata()).reason}"
                return "OK"

            limit_growth(server.pid, 128 * MIB)
            with ThreadPoolExecutor(32) as callers:
                outcomes = Counter(callers.map(outcome, range(160)))
        assert outcomes.keys() <= {"OK", *(f"RESOURCE_EXHAUSTED {r}" for r in ("QUEUE_FULL", "KV_FULL", "NO_MEMORY"))}
        assert outcomes["OK"] and len(outcomes) > 1, outcomes
        with server.canary() as canary:
            canary.wait_for(1)
        assert server.terminate() == 0
        serving = next(json.loads(line) for line in server.stderr.splitlines() if '"event": "serving"' in line)
        assert re.match(r"weights .*, kv 1\.0 MiB, .*; in all .* of .*", serving["memory"])


def test_y05_descriptors_filled_by_connections_are_had_again_and_streams_go_on(tmp_path: Path) -> None:
    with server_process(tmp_path, inside=limited(nofile=64)) as server:
        host, _, port = server.address.rpartition(":")
        with server.canary() as canary, contextlib.ExitStack() as connections:
            for _ in range(80):
                connections.enter_context(socket.create_connection((host, int(port)), HANGS_AFTER))
            give_up = time.monotonic() + HANGS_AFTER
            while ProcessNumbers.of(server.pid).n_descriptors < 64:
                assert time.monotonic() < give_up, "never full"
            canary.wait_for(3)
        with server.inference() as stub:
            stream = stub.Generate(ask("Once", 3), wait_for_ready=True, timeout=HANGS_AFTER)
            assert list(stream)[-1].finished.usage.output_tokens == 3
        assert server.terminate() == 0


@pytest.mark.long
@pytest.mark.parametrize("n_threads", [1, 4, 12, 34])
def test_y06_threads_that_are_refused_are_no_start(tmp_path: Path, n_threads: int) -> None:
    """The server runs as another user, since root has no such limit."""
    inside = [*confined(tmp_path), *limited(nproc=n_threads)]
    with server_process(tmp_path, inside=inside) as server:
        found = re.search(r"threads: (\d+) needed, (\d+) available", refused_start(server))
    assert found
    needed, available = (int(number) for number in found.groups())
    assert available <= n_threads < needed


@pytest.mark.long
def test_y06_threads_that_the_memory_is_too_small_for_are_no_start(tmp_path: Path) -> None:
    limit = limited(**{"as": 4096 * MIB})
    with server_process(tmp_path, settings=("device.threads=1000",), inside=limit) as server:
        assert "threads: 1034 needed, " in refused_start(server)


ENGINE = """
from imp_service import _core, _testing
try:
    _testing.ThreadedEngine(_testing.Script("counter"), _core.EngineOptions(n_blocks=8, max_context=128, max_running=8))
except _core.ResourceExhausted as error:
    print(error.reason, error.details["needed"], error.details["available"])
"""


def test_y06_an_engine_whose_thread_is_refused_is_none(tmp_path: Path) -> None:
    """The stack size equals the whole address space, so no thread fits in it."""
    command = [*limited(stack=1 << 30, **{"as": 1 << 30}), sys.executable, "-P", "-c", ENGINE]
    environment = {**clean_environment(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER, check=False)
    assert (ran.returncode, ran.stdout) == (0, "NO_MEMORY 1 0\n"), ran.stderr
