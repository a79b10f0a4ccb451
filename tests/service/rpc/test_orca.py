"""The load report in trailing metadata, read with ORCA's own definition."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import Message

from imp_service.pb import model_pb2
from imp_service.rpc.orca import ORCA_KEY, orca_report
from imp_service.serving.utilization import Utilization
from support.calls.raw_http2 import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    call_fields,
    fields,
    frame,
    raw_connection,
)
from support.servers.served import ask, serve
from support.servers.served_models import scripted

# gRPC's setting: binary metadata may arrive unencoded instead of as Huffman-coded base64.
ALLOW_TRUE_BINARY = 0xFE03


def trailers_of(address: str, method: str, request: Message) -> bytes:
    """Returns the header block that ends the call."""
    message = request.SerializeToString()
    with raw_connection(address, greets=False) as connection:
        connection.send(
            PREFACE,
            frame(SETTINGS, struct.pack(">HI", ALLOW_TRUE_BINARY, 1)),
            frame(HEADERS, fields(*call_fields(method)), flags=END_HEADERS, stream=1),
            frame(DATA, b"\x00" + struct.pack(">I", len(message)) + message, flags=END_STREAM, stream=1),
        )
        for kind, flags, _, content in connection.frames():
            if kind == SETTINGS and not flags & ACK:
                connection.send(frame(SETTINGS, flags=ACK))
            if kind == HEADERS and flags & END_STREAM:
                return content
    raise AssertionError("the connection ended before the call did")


def binary_value(block: bytes, key: str) -> bytes:
    """Returns the value of a -bin key that arrived unencoded; fails if the key is missing."""
    at = block.index(key.encode()) + len(key)
    size, at = block[at] & 0x7F, at + 1
    assert size < 0x7F and not block[at - 1] & 0x80, "longer than a test's value, or compressed"
    value = block[at : at + size]
    assert value[:1] == b"\x00"  # marks a value that is not base64
    return value[1:]


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
    report = read(orca_report(Utilization(0.0, running=running, waiting=7, kv_usage=kv_usage), max_running=64))
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
