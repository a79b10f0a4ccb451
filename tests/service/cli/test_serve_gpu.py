"""imp serve on a GPU that is lost, missing, too old or too small: the callers' errors, and how the server ends."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc
from support.calls.status_details import read_details
from support.calls.wire import ask
from support.run.patience import HANGS_AFTER
from support.servers.served_models import tiny_with_text
from support.servers.server_process import ServerProcess, server_process

GPU = ("device.kind=cuda_emulated", "model.overrides.unvalidated_kernels=true")
ENDLESS = "model.overrides.eos_token_ids=[]"
# More than a start with its warm-up launches, and far fewer than the streams need.
LAUNCHES = 2000
TOKENS = 480
LOST = (
    "imp: error: DEVICE_FAULT: device cuda: emulated GPU: cudaErrorLaunchFailure (719); the GPU can no longer be used"
)


def on_gpu(folder: Path, state: str, *settings: str) -> AbstractContextManager[ServerProcess]:
    """Starts a server with a tiny model on an emulated GPU. The state describes the GPU, and when it is lost."""
    model = tiny_with_text(folder, "llama", n_layers=1)
    return server_process(folder, settings=(*model.settings, *GPU, *settings), environment={"IMP_EMULATED_GPU": state})


def refusal(error: grpc.RpcError) -> tuple[str, str]:
    metadata = error.trailing_metadata()
    return error.code().name, read_details(metadata).reason if metadata else ""


def end_of(stream: Iterator[Any]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as ended:
        list(stream)
    return refusal(ended.value)


def error_line(server: ServerProcess) -> str:
    """Returns the only line on stderr that is no log line."""
    (line,) = [line for line in server.stderr.splitlines() if not line.startswith("{")]
    return line


@pytest.mark.long
def test_lif_8_y04_a_gpu_lost_in_a_step_ends_every_request_and_then_the_server(tmp_path: Path) -> None:
    with on_gpu(tmp_path, f"launches_before_fault={LAUNCHES}", ENDLESS) as server:
        with server.connection() as channel, server.connection() as other:
            watch = health_pb2_grpc.HealthStub(other).Watch(HealthCheckRequest(), timeout=HANGS_AFTER)
            assert next(watch).status == HealthCheckResponse.SERVING
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            streams = [stub.Generate(ask([first], TOKENS), timeout=HANGS_AFTER) for first in (3, 17)]
            in_one = pb.GenerateUnaryRequest(request=ask([5], TOKENS))
            unary = stub.GenerateUnary.future(in_one, timeout=HANGS_AFTER)
            for stream in streams:  # wait until each runs
                assert [next(stream).WhichOneof("event") for _ in range(2)] == ["started", "chunk"]
            assert [end_of(stream) for stream in streams] == [("INTERNAL", "DEVICE_FAULT")] * 2
            assert refusal(unary.exception()) == ("INTERNAL", "DEVICE_FAULT")
            assert next(watch).status == HealthCheckResponse.NOT_SERVING
            code, reason = end_of(stub.Generate(ask([3], 2), timeout=HANGS_AFTER))
            assert (code, reason) in (("UNAVAILABLE", "DRAINING"), ("UNAVAILABLE", ""))
        assert server.wait_for_end() == 70
    assert error_line(server) == LOST


def text_of(address: str) -> str | None:
    """Returns the text of a short completion over HTTP; None if the GPU was lost meanwhile."""
    body = json.dumps({"prompt": [3], "max_tokens": 20, "temperature": 0}).encode()
    request = urllib.request.Request(
        f"http://{address}/v1/completions", body, {"content-type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=HANGS_AFTER) as reply:
            return str(json.load(reply)["choices"][0]["text"])
    except urllib.error.HTTPError as error:
        assert error.code in (500, 503)  # it ran, or came while the process ended
        return None


@pytest.mark.long
def test_iso_13_c10_a_gpu_that_is_lost_costs_a_start_and_the_calls_of_that_moment(tmp_path: Path) -> None:
    """Each engine process loses the GPU after as many launches."""
    model = tiny_with_text(tmp_path, "llama", n_layers=1)
    with server_process(
        tmp_path,
        *("--survive", "--http", "127.0.0.1:0"),
        settings=(*model.settings, *GPU, ENDLESS),
        environment={"IMP_EMULATED_GPU": f"launches_before_fault={LAUNCHES}"},
        is_traced=False,
    ) as server:
        (address,) = server.wait_until_ready()["http"]
        texts = [text_of(address)]
        while len(lost := server.log_lines("engine ended")) < 2 or texts[-1] is None:
            texts.append(text_of(address))
        assert len({*texts} - {None}) == 1
        assert texts[0] == texts[-1]
        assert {line["status"] for line in lost} == {70}
        assert server.terminate() == 0


@pytest.mark.long
def test_lif_8_y04_a_start_fails_if_the_gpu_is_lost_while_weights_are_uploaded(tmp_path: Path) -> None:
    with on_gpu(tmp_path, "launches_before_fault=20") as server:
        assert server.wait_for_end() == 70
        assert not server.ready_file.exists()
    assert error_line(server) == LOST


@pytest.mark.long
@pytest.mark.parametrize(
    ("state", "status", "line"),
    [
        ("no_driver", 69, r"DEVICE_MISSING: device cuda: no NVIDIA driver here: cudaErrorInsufficientDriver \(35\)"),
        ("driver_version=12040", 69,
         r"DEVICE_MISSING: device cuda: the NVIDIA driver supports CUDA up to 12\.4, expected 13\.0 or later.*"),
        ("no_device", 69, r"DEVICE_MISSING: device cuda: no GPU that this process may use: cudaErrorNoDevice \(100\)"),
        ("compute_capability=75", 69,
         r"DEVICE_MISSING: device cuda: emulated GPU has compute capability 7\.5, expected 8\.0 or later"),
        ("total_bytes=2000000", 71, r"NO_MEMORY: .*weights .*, kv .*; in all .* of .*"),
    ],
)  # fmt: skip
def test_lif_3_lif_9_a_start_fails_if_the_gpu_cannot_serve(tmp_path: Path, state: str, status: int, line: str) -> None:
    with on_gpu(tmp_path, state) as server:
        assert server.wait_for_end() == status, server.stderr
        assert not server.ready_file.exists()
    assert re.fullmatch(f"imp: error: {line}", error_line(server)), server.stderr
