"""The load report in trailing metadata, read with ORCA's own definition."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from imp_service.pb import model_pb2
from imp_service.rpc.replies.orca import ORCA_KEY, orca_report
from imp_service.serving.load_meter import LoadSnapshot
from support.raw_call import binary_value, trailers_of
from support.served import ask, serve
from support.served_models import scripted

# xds/data/orca/v3/orca_load_report.proto from https://github.com/cncf/xds, without its deprecated fields.
DEFINITION = """
name: "orca_of_the_test.proto" package: "xds.data.orca.v3" syntax: "proto3"
message_type {
  name: "OrcaLoadReport"
  field { name: "cpu_utilization" number: 1 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "mem_utilization" number: 2 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "rps_fractional" number: 6 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "eps" number: 7 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "named_metrics" number: 8 type: TYPE_MESSAGE label: LABEL_REPEATED
          type_name: ".xds.data.orca.v3.OrcaLoadReport.NamedMetricsEntry" }
  field { name: "application_utilization" number: 9 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  nested_type {
    name: "NamedMetricsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  }
}
"""


def read(content: bytes) -> Any:
    """Parses a report that may have no unknown fields."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(DEFINITION, descriptor_pb2.FileDescriptorProto()))
    report = message_factory.GetMessageClass(pool.FindMessageTypeByName("xds.data.orca.v3.OrcaLoadReport"))()
    report.ParseFromString(content)
    known = report.SerializeToString(deterministic=True)
    report.DiscardUnknownFields()
    assert report.SerializeToString(deterministic=True) == known
    return report


@pytest.mark.parametrize(("running", "kv_usage", "utilization"), [(32, 0.25, 0.5), (1, 0.75, 0.75), (0, 0.0, 0.0)])
def test_rpc_17_utilization_is_that_of_the_scarcer(running: int, kv_usage: float, utilization: float) -> None:
    report = read(orca_report(LoadSnapshot(0.0, running=running, waiting=7, kv_usage=kv_usage), max_running=64))
    assert report.application_utilization == utilization
    assert dict(report.named_metrics) == {"kv_usage": kv_usage, "waiting": 7.0}


GENERATE = "/imp.v1.InferenceService/Generate"


@pytest.mark.long
def test_rpc_17_every_request_brings_a_report_however_it_ends() -> None:
    """The test reads the report from the wire: gRPC's client gives it only to its load balancer."""
    with serve(model=scripted()) as served:
        for request in (ask([400], 3), ask([400], 3, model="nobody")):
            block = trailers_of(served.address, GENERATE, request)
            report = read(binary_value(block, ORCA_KEY))
            assert sorted(report.named_metrics) == ["kv_usage", "waiting"]
        # Other calls have no report: they are not balanced by load.
        load = trailers_of(served.address, "/imp.v1.ModelService/GetLoad", model_pb2.GetLoadRequest())
        assert ORCA_KEY.encode() not in load
