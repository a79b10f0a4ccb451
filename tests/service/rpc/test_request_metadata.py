"""Metadata of a call: which keys are read, refused or ignored."""

from __future__ import annotations

import pytest

from imp_service.api.errors import FieldsInvalid
from imp_service.serving.request_metadata import RequestMetadata, read_request_metadata

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_rpc_13_what_a_call_says_is_read() -> None:
    pairs = [
        ("user-agent", "grpc"),
        ("imp-priority", "-100"),
        ("imp-tenant", "t" * 64),
        ("traceparent", TRACE),
        ("tracestate", "a=1"),
        ("tracestate", "b=2"),
        ("x-other-bin", b"\xff"),
    ]
    assert read_request_metadata(pairs) == RequestMetadata(-100, "t" * 64, TRACE, "a=1,b=2")
    assert read_request_metadata([("imp-priority", "100")]).priority == 100
    assert read_request_metadata([]) == RequestMetadata(0, "", "", "")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("imp-priority", "high"),
        ("imp-priority", ""),
        ("imp-priority", "101"),
        ("imp-priority", "-101"),
        ("imp-priority", "1.0"),
        ("imp-priority", "١"),
        ("imp-priority", "1" + "0" * 30),
        ("imp-tenant", ""),
        ("imp-tenant", "t" * 65),
        ("imp-tenant", "two words"),
        ("imp-tenant", "é"),
        ("imp-tenant", "line\n"),
    ],
)
def test_rpc_13_p41_bad_values_are_refused(key: str, value: str) -> None:
    with pytest.raises(FieldsInvalid) as raised:
        read_request_metadata([(key, value)])
    assert [violation.path for violation in raised.value.violations] == [key]


def test_rpc_13_both_are_reported_at_once_and_neither_may_be_given_twice() -> None:
    with pytest.raises(FieldsInvalid) as raised:
        read_request_metadata([("imp-priority", "1"), ("imp-tenant", " "), ("imp-priority", "1")])
    assert [violation.path for violation in raised.value.violations] == ["imp-priority", "imp-tenant"]


@pytest.mark.parametrize(
    "header",
    [
        "garbage",
        TRACE.upper(),
        "ff" + TRACE[2:],
        TRACE + "-extra",
        TRACE[:-1],
        TRACE.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        TRACE.replace("b7ad6b7169203331", "0" * 16),
    ],
)
def test_rpc_13_p41_a_malformed_trace_is_ignored(header: str) -> None:
    assert read_request_metadata([("traceparent", header), ("tracestate", "a=1")]) == RequestMetadata()


@pytest.mark.long
def test_rpc_13_a_trace_of_a_later_version_is_read() -> None:
    later = "01" + TRACE[2:] + "-extra"
    assert read_request_metadata([("traceparent", later)]).traceparent == later
    assert read_request_metadata([("traceparent", TRACE), ("tracestate", "a" * 513)]).tracestate == ""
