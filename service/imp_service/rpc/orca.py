"""The load for load balancers: an ORCA report in the trailing metadata of each request.

The message is xds.data.orca.v3.OrcaLoadReport. Only the fields that are sent are declared here, in a descriptor pool of
their own, so they do not conflict with the full message in the default pool.
"""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from imp_service.serving.utilization import Utilization

ORCA_KEY = "endpoint-load-metrics-bin"
_PACKAGE = "xds.data.orca.v3"
_NAMED_METRICS, _APPLICATION_UTILIZATION = 8, 9


def orca_report(load: Utilization, max_running: int) -> bytes:
    """The utilization is that of the cache's blocks or of the places in a step, whichever is higher."""
    report = _REPORT(application_utilization=max(load.kv_usage, load.running / max_running))
    report.named_metrics["kv_usage"] = load.kv_usage
    report.named_metrics["waiting"] = load.waiting
    return bytes(report.SerializeToString())


def _file() -> FileDescriptorProto:
    field = FieldDescriptorProto
    entry = DescriptorProto(
        name="NamedMetricsEntry",
        field=[
            field(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL),
            field(name="value", number=2, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL),
        ],
    )
    entry.options.map_entry = True
    report = DescriptorProto(
        name="OrcaLoadReport",
        nested_type=[entry],
        field=[
            field(
                name="named_metrics",
                number=_NAMED_METRICS,
                type=field.TYPE_MESSAGE,
                label=field.LABEL_REPEATED,
                type_name=f".{_PACKAGE}.OrcaLoadReport.NamedMetricsEntry",
            ),
            field(
                name="application_utilization",
                number=_APPLICATION_UTILIZATION,
                type=field.TYPE_DOUBLE,
                label=field.LABEL_OPTIONAL,
            ),
        ],
    )
    return FileDescriptorProto(
        name="xds/data/orca/v3/orca_load_report.proto", package=_PACKAGE, syntax="proto3", message_type=[report]
    )


def _report_class() -> type:
    pool = DescriptorPool()
    pool.Add(_file())
    return GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.OrcaLoadReport"))


_REPORT = _report_class()
