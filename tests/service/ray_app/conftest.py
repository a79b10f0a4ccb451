"""Replicas behind Ray Serve, and behind a stand-in that needs no Ray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from imp_service.pb import inference_pb2_grpc
from support.calls.checked_channel import checked
from support.servers.ray_serve import RayAddresses, serve_behind_ray
from support.servers.ray_stand_in import serve_behind_stand_in

BEHIND_STAND_IN = ("device.threads=1", "kv.bytes=8MiB")


@pytest.fixture(scope="session")
def ray_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of Ray's processes."""
    pytest.importorskip("ray", reason="Ray is not installed here: pip install '.[ray]'")
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="session")
def ray_addresses(ray_home: Path) -> Iterator[RayAddresses]:
    """The addresses of Ray's proxies, which have two replicas."""
    with serve_behind_ray(ray_home) as addresses:
        yield addresses


@pytest.fixture(scope="session")
def ray_address(ray_addresses: RayAddresses) -> str:
    """The address of Ray's gRPC proxy."""
    return ray_addresses.grpc


@pytest.fixture(scope="module", params=["stand_in", "ray"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of two replicas, behind the stand-in and behind Ray."""
    if request.param == "ray":
        yield request.getfixturevalue("ray_address")
    else:
        with serve_behind_stand_in(2, BEHIND_STAND_IN) as address:
            yield address


@pytest.fixture
def channel(address: str) -> Iterator[grpc.Channel]:
    """A separate connection that checks every call."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as raw:
        yield checked(raw)


@pytest.fixture
def inference(channel: grpc.Channel) -> inference_pb2_grpc.InferenceServiceStub:
    """A stub on this connection."""
    return inference_pb2_grpc.InferenceServiceStub(channel)
