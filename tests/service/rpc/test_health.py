"""grpc.health.v1: readiness, who hears of changes, how many callers may watch, and the list of newer releases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from imp_service.pb import model_pb2, model_pb2_grpc
from imp_service.rpc import health as health_module
from imp_service.rpc.health import Health
from support.calls.failed_calls import failed
from support.calls.raw_calls import HEALTH, SERVICES, call
from support.run.patience import HANGS_AFTER
from support.servers.served import Served, serve

IMP_SERVICES = [name for name in SERVICES if name.startswith("imp.v1.")]
NAMES = ("", "liveness", *IMP_SERVICES)
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
# Seconds beyond every time limit of a test.
GRACE = 100 * HANGS_AFTER


@pytest.fixture
def served() -> Iterator[Served]:
    with serve("drain.delay=1h") as it:
        yield it


def statuses(served: Served, names: tuple[str, ...] = NAMES) -> dict[str, int]:
    with grpc.insecure_channel(served.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return {name: stub.Check(HealthCheckRequest(service=name)).status for name in names}


def test_rpc_20_every_service_of_imp_and_liveness_can_be_asked_for(served: Served) -> None:
    assert len(IMP_SERVICES) == 4
    assert statuses(served) == dict.fromkeys(NAMES, SERVING)


def test_rpc_20_w28_unknown_names_are_as_the_standard_says(served: Served) -> None:
    with grpc.insecure_channel(served.address) as channel:
        for name in ("imp.v1", "imp.v1.InferenceService ", "grpc.health.v1.Health", "x" * 1000):
            request = HealthCheckRequest(service=name).SerializeToString()
            assert call(channel, f"/{HEALTH}/Check", request).code == "NOT_FOUND"
            watched = call(channel, f"/{HEALTH}/Watch", request, n_replies=1)
            assert HealthCheckResponse.FromString(watched.replies[0]).status == HealthCheckResponse.SERVICE_UNKNOWN


def test_rpc_20_lif_5_a_watcher_is_notified_of_each_change_and_liveness_of_none(served: Served) -> None:
    with grpc.insecure_channel(served.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        ready, alive = (stub.Watch(HealthCheckRequest(service=name)) for name in ("", "liveness"))
        assert (next(ready).status, next(alive).status) == (SERVING, SERVING)
        served.call(served.state.drain.begin)
        assert next(ready).status == NOT_SERVING
        assert statuses(served) == {**dict.fromkeys(NAMES, NOT_SERVING), "liveness": SERVING}
        served.call(served.state.drain.resume)
        assert next(ready).status == SERVING
        served.call(lambda: served.server.health.set_alive(False))
        assert next(alive).status == NOT_SERVING
        assert statuses(served) == {**dict.fromkeys(NAMES, SERVING), "liveness": NOT_SERVING}


def test_rpc_20_l02_the_watchdog_speaks_for_liveness(served: Served) -> None:
    for is_alive, expected in ((False, NOT_SERVING), (True, SERVING)):
        served.call(lambda is_alive=is_alive: [tell(is_alive) for tell in served.state.watchdog._watchers])
        assert statuses(served, ("liveness", "")) == {"liveness": expected, "": SERVING}


@pytest.mark.long
def test_w28_watchers_have_a_bound_and_leave_nothing_behind(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "MAX_WATCHERS", 5)
    with grpc.insecure_channel(served.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watchers = [stub.Watch(HealthCheckRequest()) for _ in range(5)]
        assert [next(watcher).status for watcher in watchers] == [SERVING] * 5
        with pytest.raises(grpc.RpcError) as refused:
            next(stub.Watch(HealthCheckRequest()))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for watcher in watchers:
            watcher.cancel()
        served.wait_until(lambda: served.server.health._n_watchers == 0, "nobody watches")
        assert next(stub.Watch(HealthCheckRequest())).status == SERVING


@pytest.mark.long
def test_w28_a_watcher_that_does_not_read_holds_the_last_status_only(served: Served) -> None:
    """Changes do not queue while nobody reads: the task waits, and then reports the current status."""
    health = served.server.health

    class Reader:
        def __init__(self) -> None:
            self.reads = asyncio.Event()
            self.told: list[int] = []

        async def write(self, message: HealthCheckResponse) -> None:
            self.told.append(message.status)
            await self.reads.wait()

    async def watch() -> list[int]:
        reader = Reader()
        watching = asyncio.create_task(health.Watch(health_pb2.HealthCheckRequest(service="liveness"), reader))
        await asyncio.sleep(0)
        for i in range(1000):
            health.set_alive(i % 2 == 1)
        health.set_alive(False)
        reader.reads.set()
        while len(reader.told) < 2:
            await asyncio.sleep(0)
        watching.cancel()
        return reader.told

    assert served.run(watch()) == [SERVING, NOT_SERVING]


@pytest.mark.long
def test_l04_watchers_do_not_delay_a_stop_and_get_its_reason() -> None:
    """The grace period is for requests: watchers of health and load end at once, with a drain's status."""
    with serve() as served:
        served.is_checked = False  # the test stops this server
        channel = served.channel()
        health = health_pb2_grpc.HealthStub(channel).Watch(HealthCheckRequest())
        load = model_pb2_grpc.ModelServiceStub(channel).WatchLoad(model_pb2.WatchLoadRequest())
        assert (next(health).status, next(load).load.sessions) == (SERVING, 0)
        served.run(served.server.stop(GRACE))  # fails at its time limit if a watcher holds it
        for stream in (health, load):
            refusal = failed(lambda: list(stream))  # noqa: B023
            assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "DRAINING")


# Only newer releases of grpcio-health-checking have List.
METHODS = health_pb2.DESCRIPTOR.services_by_name["Health"].methods_by_name


def test_every_method_of_the_service_that_is_installed_is_served() -> None:
    assert {"Check", "Watch"} <= set(METHODS) <= {name for name in vars(Health) if name[0].isupper()}
    assert "List" in vars(Health)  # with any installed release


@pytest.mark.skipif("List" not in METHODS, reason="the grpcio-health-checking that is installed has no List")
def test_list_says_what_check_says_of_each_name() -> None:
    request, reply = (GetMessageClass(kind) for kind in (METHODS["List"].input_type, METHODS["List"].output_type))
    with serve() as served, grpc.insecure_channel(served.address) as channel:
        ask = channel.unary_unary("/grpc.health.v1.Health/List", request.SerializeToString, reply.FromString)
        check = health_pb2_grpc.HealthStub(channel).Check
        found = {name: row.status for name, row in ask(request()).statuses.items()}
        assert {"", "liveness", "imp.v1.InferenceService"} <= found.keys()
        asked = {name: check(health_pb2.HealthCheckRequest(service=name)).status for name in found}
        assert found == asked
