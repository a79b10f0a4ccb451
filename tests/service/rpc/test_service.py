"""The life of a server: loading, warm-up, readiness (once), its last call, and its end when the device fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from imp_service.config import Config
from imp_service.core import DeviceError, InternalError, Progress, make_error
from imp_service.generation import ModelRuntime
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc
from imp_service.server import service as service_module
from imp_service.serving.make_model import make_model
from support.calls.raw_calls import HEALTH, INFERENCE, call
from support.calls.status_details import read_details
from support.run.patience import HANGS_AFTER
from support.servers.running_service import Running, running
from support.servers.served import ask
from support.servers.served_models import scripted

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
GENERATE = f"/{INFERENCE}/Generate"


class HeldLoad:
    """A load that continues when the test allows it; counts its starts."""

    def __init__(self) -> None:
        self.n_loads = 0
        self.resumed = threading.Event()

    def __call__(self, config: Config, progress: Progress) -> ModelRuntime:
        self.n_loads += 1
        while not self.resumed.wait(0.001):
            progress(1, 2)
        return make_model(config, progress)


def test_lif_1_lif_4_l01_calls_before_the_model_are_asked_to_retry_and_one_load_serves_all() -> None:
    load = HeldLoad()
    with running(load) as it, grpc.insecure_channel(it.address) as channel:
        watch = HealthStub(channel).Watch(HealthCheckRequest())
        assert next(watch).status == NOT_SERVING
        assert call(channel, f"/{HEALTH}/Check", b"\x0a\x08liveness").replies == [b"\x08\x01"]
        content = ask("Once", 2).SerializeToString()
        for _ in range(5):
            refused = call(channel, GENERATE, content)
            assert (refused.code, refused.reason, refused.initial) == ("UNAVAILABLE", "LOADING", {})
            assert refused.details.retry_seconds == 1.0
        with ThreadPoolExecutor(10) as pool:
            # Ten clients call repeatedly until the load has ended: each call gets LOADING or is served.
            calling = [pool.submit(_until_served, channel, content) for _ in range(10)]
            load.resumed.set()
            assert all(found.result() == {"LOADING", "OK"} or found.result() == {"OK"} for found in calling)
        assert next(watch).status == SERVING
        assert it.is_serving.wait(HANGS_AFTER)
        assert [call(channel, GENERATE, content).code for _ in range(5)] == ["OK"] * 5
        assert load.n_loads == 1
        it.stop()
        assert [message.status for message in _until_end(watch)] == [NOT_SERVING]
        it.wait()


def _until_served(channel: grpc.Channel, content: bytes) -> set[str]:
    """Calls until the first OK, and returns all outcomes."""
    found: set[str] = set()
    while "OK" not in found:
        ended = call(channel, GENERATE, content)
        found.add(ended.reason or ended.code)
        assert found <= {"LOADING", "OK"}
    return found


def _until_end(stream: Any) -> Iterator[Any]:
    try:
        yield from stream
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.long
def test_rpc_11_w29_grpcs_own_retry_sees_a_server_through_its_load() -> None:
    load = HeldLoad()
    policy = (
        '{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.05s",'
        ' "maxBackoff": "1s", "backoffMultiplier": 10, "retryableStatusCodes": ["UNAVAILABLE"]}}]}'
    )
    with running(load) as it:
        metrics = it.service.state.telemetry.metrics
        refused = metrics.grpc_handled.labels("unary", INFERENCE, "GenerateUnary", "UNAVAILABLE")._value
        with grpc.insecure_channel(it.address, options=(("grpc.service_config", policy),)) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            waiting = stub.GenerateUnary.future(pb.GenerateUnaryRequest(request=ask("Once", 2)), timeout=HANGS_AFTER)
            give_up = time.monotonic() + HANGS_AFTER
            while refused.get() < 2 and time.monotonic() < give_up:
                it.thread.call(lambda: None)
            load.resumed.set()
            assert waiting.result().usage.output_tokens == 2


def test_lif_1_l15_a_model_that_gives_no_real_output_is_never_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imp_service.generation.warm_up.math.isfinite", lambda _: False)
    it = Running(make_model, ())
    with pytest.raises(InternalError, match="warm-up") as failed:
        it.wait()
    assert failed.value.reason == "BUG" and not it.is_serving.is_set()


def test_lif_9_a_model_that_cannot_be_loaded_ends_the_service_with_its_error() -> None:
    def fail(_: Config, __: Progress) -> ModelRuntime:
        raise make_error("DEVICE_FAULT", "not a device at all")

    it = Running(fail, ())
    with pytest.raises(DeviceError, match="not a device"):
        it.wait()
    with grpc.insecure_channel(it.address) as channel:
        assert call(channel, f"/{HEALTH}/Check").code == "UNAVAILABLE"


def test_y12_a_stop_while_loading_ends_the_load_at_its_next_read() -> None:
    load = HeldLoad()
    with running(load) as it, grpc.insecure_channel(it.address) as channel:
        it.stop()
        it.wait()
        assert not it.is_serving.is_set()
        give_up = time.monotonic() + HANGS_AFTER
        while it.service.is_abandoned and time.monotonic() < give_up:
            it.thread.call(lambda: None)
        assert not it.service.is_abandoned and not load.resumed.is_set()
        assert call(channel, f"/{HEALTH}/Check").code == "UNAVAILABLE"


def test_y12_a_stop_does_not_wait_for_a_load_that_hangs_and_says_so() -> None:
    disk = threading.Event()
    with running(lambda config, progress: disk.wait() and make_model(config, progress)) as it:
        it.stop()
        it.wait()
        assert it.service.is_abandoned
        disk.set()


def test_lif_5_l03_callers_that_come_back_when_the_drain_is_over_are_answered_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_module, "QUIET_SECONDS", 3600.0)
    monkeypatch.setattr(service_module, "LAST_SECONDS", 7200.0)
    content = ask("Once", 2).SerializeToString()
    with running() as it, grpc.insecure_channel(it.address) as channel:
        assert it.is_serving.wait(HANGS_AFTER)
        assert call(channel, GENERATE, content).code == "OK"
        it.stop()
        it.thread.run(it.service.state.drain.wait())
        for _ in range(3):
            ended = call(channel, GENERATE, content)
            assert (ended.code, ended.reason) == ("UNAVAILABLE", "DRAINING")
            # Each call comes before the quiet period has ended.
            it.thread.jump(3000)
        it.thread.jump(3600)
        it.wait()


@pytest.mark.long
def test_lif_8_y04_a_device_fault_ends_every_request_with_it_and_then_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_module, "QUIET_SECONDS", 3600.0)
    monkeypatch.setattr(service_module, "LAST_SECONDS", 7200.0)
    fault = 777
    model = scripted(script={"faulting_token": fault})
    make: Callable[[Config, Progress], ModelRuntime] = lambda config, _: model.make(config, time.monotonic)  # noqa: E731
    with running(make, *model.settings) as it, grpc.insecure_channel(it.address) as channel:
        assert it.is_serving.wait(HANGS_AFTER)
        watch = HealthStub(channel).Watch(HealthCheckRequest())
        assert next(watch).status == SERVING
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        others = [stub.Generate(ask([start], 500), timeout=HANGS_AFTER) for start in (fault - 5, fault - 40)]
        reasons = [_reason_of(stream) for stream in others]
        assert reasons[0] == ("INTERNAL", "DEVICE_FAULT")
        assert reasons[1] in (("INTERNAL", "DEVICE_FAULT"), ("UNAVAILABLE", "DRAINING"))
        late = call(channel, GENERATE, ask([1], 2).SerializeToString())
        assert (late.code, late.reason) == ("UNAVAILABLE", "DRAINING")
        it.thread.jump(3600)
        assert [message.status for message in _until_end(watch)] == [NOT_SERVING]
        with pytest.raises(DeviceError):
            it.wait()


def _reason_of(stream: Any) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as ended:
        list(stream)
    return ended.value.code().name, read_details(ended.value.trailing_metadata()).reason
