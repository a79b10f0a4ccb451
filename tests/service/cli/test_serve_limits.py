"""The kernel refuses memory, threads or descriptors: a start fails with one line, and a server goes on."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from imp_service.cli.failure import describe
from imp_service.config.errors import system_refusal
from imp_service.serving.errors.failures import failure_of
from support.calls.status_details import read_details
from support.calls.wire import ask
from support.files.gguf_writer import F32, STRING, U32, Gguf, Key, Tensor, array
from support.machine.command_line import clean_environment
from support.machine.confined import confined
from support.machine.limited import MIB, limit_growth, limited
from support.machine.process_numbers import ProcessNumbers
from support.models.tiny_models import TinyModel
from support.run.patience import HANGS_AFTER
from support.run.quick_run import Repeats
from support.servers.server_process import ServerProcess, server_process


def sparse_model(path: Path, model: TinyModel) -> int:
    """Writes the header of a llama of this shape with f32 weights, and the hole; returns the weights' size in bytes."""
    file = Gguf(keys=[_key(name, value) for name, value in model.keys().items()])
    n_bytes = 0
    for name, dims in _shapes(model).items():
        file.tensors.append(Tensor(name, dims, data=b"", offset=n_bytes))
        n_bytes += file.padded(4 * math.prod(dims))
    header = file.header()
    path.write_bytes(header)
    os.truncate(path, len(header) + n_bytes)
    return n_bytes


def _key(name: str, value: Any) -> Key:
    if isinstance(value, list):
        return array(name, STRING, value)
    kind = {int: U32, float: F32, str: STRING}[type(value)]
    return Key(name, kind, value)


def _shapes(model: TinyModel) -> dict[str, tuple[int, ...]]:
    """Returns each tensor's dimensions in the order of the file: the row's length first."""
    hidden, q_width, kv_width = model.hidden_size, model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (hidden, model.vocab_size),
        "output_norm.weight": (hidden,),
        "output.weight": (hidden, model.vocab_size),
    }
    layer = {
        "attn_norm": (hidden,),
        "attn_q": (hidden, q_width),
        "attn_k": (hidden, kv_width),
        "attn_v": (hidden, kv_width),
        "attn_output": (q_width, hidden),
        "ffn_norm": (hidden,),
        "ffn_gate": (hidden, model.ffn_size),
        "ffn_up": (hidden, model.ffn_size),
        "ffn_down": (model.ffn_size, hidden),
    }
    for i in range(model.n_layers):
        shapes |= {f"blk.{i}.{name}.weight": dims for name, dims in layer.items()}
    return shapes


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


def test_y05_a_server_recovers_from_exhausted_descriptors(tmp_path: Path) -> None:
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
def test_y06_a_start_fails_if_threads_are_refused(tmp_path: Path, n_threads: int) -> None:
    """The server runs as another user, since root has no such limit."""
    inside = [*confined(tmp_path), *limited(nproc=n_threads)]
    with server_process(tmp_path, inside=inside) as server:
        found = re.search(r"threads: (\d+) needed, (\d+) available", refused_start(server))
    assert found
    needed, available = (int(number) for number in found.groups())
    assert available <= n_threads < needed


@pytest.mark.long
def test_y06_a_start_fails_if_memory_is_too_small_for_its_threads(tmp_path: Path) -> None:
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


def test_y06_an_engine_fails_if_its_thread_is_refused(tmp_path: Path) -> None:
    """The stack size equals the whole address space, so no thread fits in it."""
    command = [*limited(stack=1 << 30, **{"as": 1 << 30}), sys.executable, "-P", "-c", ENGINE]
    environment = {**clean_environment(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER, check=False)
    assert (ran.returncode, ran.stdout) == (0, "NO_MEMORY 1 0\n"), ran.stderr


ROOT = Path(__file__).parents[3]
# From less than Python's libraries need to more than a whole start needs.
ADDRESSES = (60, 90, 110, 130, 160, 190, 220, 300)


def ended(words: list[str], n_bytes: int) -> tuple[int, str]:
    """Runs imp with these words and an address space of `n_bytes`. Returns its status and stderr."""
    command = [*limited(**{"as": n_bytes}), sys.executable, "-m", "imp_service", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_AFTER)
    return ran.returncode, ran.stderr


@pytest.mark.long
@pytest.mark.parametrize("n_mib", ADDRESSES)
@pytest.mark.parametrize(
    "words", [["run", "--max-tokens", "1", "a"], ["serve", "--listen", "127.0.0.1:0"]], ids=["run", "serve"]
)
def test_y01_a_start_that_is_refused_memory_ends_with_one_line(words: list[str], n_mib: int) -> None:
    status, text = ended(words, n_mib * MIB)
    lines = [line for line in text.splitlines() if not line.startswith("{")]  # the other lines are the server's log
    assert status == 71, text
    assert [line.startswith("imp: error: NO_MEMORY: ") for line in lines] == [True], text


@pytest.mark.long
def test_y01_with_room_it_answers() -> None:
    status, text = ended(["run", "--max-tokens", "1", "a"], 2048 * MIB)
    assert status == 0, text


@pytest.mark.long
@pytest.mark.parametrize("deed", ["open", "inspect", "load", "probe", "time"])
def test_y01_the_core_refuses_and_never_aborts(deed: str, repeats: Repeats) -> None:
    """The limit can hit anything: a thread's stack, a chunk of the arena, a small allocation."""
    sizes = [*range(0, MIB, MIB // 16), *range(MIB, 32 * MIB, MIB), *range(32 * MIB, 512 * MIB, 16 * MIB)]
    sizes = sizes[:: 20 // repeats(20)]
    sizes.append(4096 * MIB)  # enough for texts and messages beyond the plan
    command = [sys.executable, "-m", "support.machine.refused_growth", deed, *map(str, sizes)]
    quiet = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "tests")}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet, timeout=HANGS_AFTER)
    outcomes = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    assert list(outcomes) == [str(size) for size in sizes], ran.stderr
    # A refusal to Python itself raises its MemoryError.
    told = {text.partition(":")[0] for text in outcomes.values()}
    assert told <= {"ok", "NO_MEMORY", "MemoryError"}, outcomes
    assert outcomes["0"] != "ok" or deed in ("open", "inspect")
    assert set(outcomes.values()) >= {"ok"} | ({"NO_MEMORY"} if deed not in ("open",) else set())


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("/x/_core.so: failed to map segment from shared object", name="_core"),
        ImportError("numpy cannot be imported: libopenblas.so: Cannot allocate memory"),
    ],
)
def test_y01_what_the_system_refused_is_no_bug(error: Exception) -> None:
    assert system_refusal(error)
    assert describe(error)[0] == "NO_MEMORY"
    assert failure_of(error, request_id="r").reason == "NO_MEMORY"


@pytest.mark.parametrize(
    "error", [RuntimeError("another"), ImportError("No module named 'x'"), OSError(errno.ENOENT, "no such file")]
)
def test_hon_1_bugs_are_not_taken_for_refusals_of_the_system(error: Exception) -> None:
    assert system_refusal(error) == ""
    assert describe(error)[0] in ("BUG", "IO_FAILED")
