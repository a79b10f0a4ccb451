"""What a start of imp serve chooses and reports: device, kernels, weights. Every start and stop ends."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import imp_service
from imp_service.models import demo_model_path
from imp_service.pb import model_pb2, model_pb2_grpc
from imp_service.serving.kernel_plans import kernel_plans
from support.calls.wire import ask
from support.files.gguf_writer import F32, I32, Key
from support.machine.command_line import clean_environment, demo_with_keys
from support.run.patience import HANGS_AFTER
from support.run.release_run import repetitions
from support.servers.served import serve
from support.servers.server_process import ServerProcess, server_process, start_to_its_end


@pytest.mark.long
def test_lif_3_a_start_fails_without_the_device(tmp_path: Path) -> None:
    """In a build with CUDA the test needs a machine without a GPU."""
    ran = start_to_its_end(tmp_path, "--set", "device.kind=cuda")
    assert ran.returncode == 69, ran.stderr
    assert ran.stderr.startswith("imp: error: DEVICE_MISSING: device cuda: ")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["cpu", "auto"])
def test_lif_3_the_cpu_is_taken_where_it_is_named_and_where_nothing_is(tmp_path: Path, kind: str) -> None:
    with server_process(tmp_path, settings=(f"device.kind={kind}",)) as server, server.connection() as channel:
        info = model_pb2_grpc.ModelServiceStub(channel).GetServerInfo(model_pb2.GetServerInfoRequest())
        assert (info.device, info.config["device.kind"]) == ("cpu", "cpu")


def logged(text: str, event: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def test_gemm_13_a_start_names_the_kernels_that_run(tmp_path: Path) -> None:
    with imp_service.load(None, "device.threads=1") as model:
        # A prompt with more rows than any kernel for few rows takes, then single rows.
        list(model.generate(list(range(1, 33))))
        counted = {name for name, n in model._runtime.core.launches.items() if n}
        planned = kernel_plans(model._runtime)
    kernels = {name for plan in planned for name in plan.kernels}
    # The counts include the ops.
    assert kernels == counted & {*kernels, "reference", "dequant_avx2", "dequant_avx512", "q8_0_avx2"}
    assert sum(plan.n_tensors for plan in planned) == 29
    with server_process(tmp_path) as server:
        server.wait_until_ready()
        server.terminate()
        told = logged(server.stderr, "kernels")
    assert [(line["weights"], line["tensors"], line["kernels"]) for line in told] == [
        (plan.dtype, plan.n_tensors, " ".join(plan.kernels)) for plan in planned
    ]


@pytest.mark.long
def test_mod_14_weights_are_those_whose_digest_is_reported(tmp_path: Path) -> None:
    """A pinned digest is known from the first call on. If a byte differs, the server does not start."""
    content = bytearray(demo_model_path().read_bytes())
    digest = hashlib.sha256(content).hexdigest()
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    for _ in range(2):
        with server_process(tmp_path, "-m", str(path), settings=(f"model.sha256={digest}",)) as server:
            with server.connection() as channel:
                info = model_pb2_grpc.ModelServiceStub(channel).GetModelInfo(model_pb2.GetModelInfoRequest())
            assert info.weights_sha256 == digest
    content[-100] ^= 1
    path.write_bytes(content)
    ran = start_to_its_end(tmp_path, "-m", str(path), "--set", f"model.sha256={digest}")
    assert ran.returncode == 65, ran.stderr
    assert ran.stderr.startswith("imp: error: WEIGHTS_CORRUPT: model.gguf: ")


def packed_lines(server: ServerProcess, *, until: str) -> list[str]:
    """Waits until a log line about packed weights begins with `until`. Returns all such lines."""
    give_up = time.monotonic() + HANGS_AFTER
    while True:
        whole_lines = server.stderr[: server.stderr.rfind("\n") + 1]
        told = [str(line["message"]) for line in logged(whole_lines, "packed weights")]
        if any(line.startswith(until) for line in told):
            return told
        assert server.process.poll() is None, server.stderr
        assert time.monotonic() < give_up, server.stderr
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(0.005)


@pytest.mark.long
def test_mod_23_a_server_writes_packed_weights_while_it_serves_and_reads_them_when_it_starts(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(demo_model_path().read_bytes())
    os.utime(path, (1, 1))
    settings = (f"model.packed_cache={tmp_path / 'packed'}",)
    with server_process(tmp_path, "-m", str(path), settings=settings) as server:
        server.wait_until_ready()
        first = packed_lines(server, until="written")
        assert server.terminate() == 0
    assert len(first) == 2
    assert first[0].startswith("not read: model.gguf-")
    with server_process(tmp_path, "-m", str(path), settings=settings) as server:
        server.run_canary()
        assert packed_lines(server, until="read") == ["read"]
        assert server.terminate() == 0
    with server_process(tmp_path, "-m", str(path), settings=(f"model.packed_cache={path}",)) as server:
        server.run_canary()
        refused = packed_lines(server, until=f"not written: {path.name}")  # the folder is a file
    assert len(refused) == 2


ROUNDS = repetitions(1000, 15)


def test_lif_10_l06_servers_start_and_stop_with_streams_under_way() -> None:
    """Each round leaves one running stream, one cancelled, and one that nobody reads."""
    for _ in range(ROUNDS):
        with serve("drain.grace=0ms") as served:
            streams = [served.inference.Generate(ask([300 + i], 400)) for i in range(3)]
            for stream in streams:
                next(stream)
            streams[0].cancel()


LEAVES = """
import imp_service
model = imp_service.load(None, "device.threads=1", "model.overrides.eos_token_ids=[]")
streams = [model.generate([300 + i]) for i in range(3)]
for stream in streams:
    next(stream)
session = model.open()
print("left", flush=True)
"""


def test_lif_10_y22_an_interpreter_ends_with_an_engine_at_work(tmp_path: Path) -> None:
    for _ in range(3):
        ran = subprocess.run(
            [sys.executable, "-P", "-c", LEAVES],
            env=clean_environment(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER,
            check=False,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "left\n", "")


# Its digest is still being read after the server has stopped, as on a busy machine.
DIGESTS_FOR_EVER = """
import itertools, sys
from imp_service.cli.shell import main
from imp_service.serving import weights_digest
def read_for_ever(files, goes_on):
    for _ in itertools.count():
        files[0].read(0, 2**20)
weights_digest.sha256_of = read_for_ever
sys.exit(main())
"""


@pytest.mark.long
def test_lif_10_a_server_exits_with_0_while_a_background_thread_is_in_native_code(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    words = ["serve", "--listen", "127.0.0.1:0", "--set", "device.threads=1", "--ready-file", str(ready)]
    started = [sys.executable, "-P", "-c", DIGESTS_FOR_EVER, *words]
    with subprocess.Popen(
        started, env=clean_environment(tmp_path), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            give_up = time.monotonic() + HANGS_AFTER
            while not ready.exists():
                assert process.poll() is None and time.monotonic() < give_up
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.005)
            process.terminate()
            _, errors = process.communicate(timeout=HANGS_AFTER)
        finally:
            process.kill()
    assert process.returncode == 0, errors


@pytest.mark.long
def test_smp_27_a_recommended_sampler_that_cannot_be_used_is_reported_and_the_model_is_served(tmp_path: Path) -> None:
    keys = (Key("general.sampling.penalty_last_n", I32, -1), Key("general.sampling.min_p", F32, math.nan))
    path = demo_with_keys(tmp_path / "odd.gguf", *keys)
    with server_process(tmp_path, settings=(f"model.path={path}",)) as server:
        server.wait_until_ready()
        server.terminate()
        told = [line["message"] for line in logged(server.stderr, "model")]
    assert told == ["general.sampling.min_p: nan, expected 0 to 1; not used"]
