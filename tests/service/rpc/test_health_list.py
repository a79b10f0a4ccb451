"""grpc.health.v1.Health/List, which only newer releases of grpcio-health-checking have."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc

from imp_service.rpc.health import Health
from support.served import serve

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
METHODS = HEALTH.methods_by_name


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
