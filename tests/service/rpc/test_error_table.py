"""The error table equals the document's, and every row has its documented form on the wire."""

from __future__ import annotations

import asyncio

import pytest
from grpc import StatusCode

from imp_service.api.errors import FieldsInvalid, Violation
from imp_service.core import make_error
from imp_service.core.errors import KIND_OF_REASON, field_invalid
from imp_service.rpc.statuses import message_of, status_code, step_error, trailing_metadata
from imp_service.serving.errors.error_table import CANCELLED, DEADLINE_EXCEEDED, ERRORS, Pushback, Retry
from imp_service.serving.errors.failure import Failure
from imp_service.serving.errors.failures import failure_of
from imp_service.serving.refusal import Refusal
from imp_service.text import FieldInvalid, NativePanic, NoChatTemplate, TemplateFailed, TextError
from support.calls.error_rows import DocumentedRow, advised_reasons, documented_rows
from support.calls.status_details import Details, read_details

# The published numbers of google.rpc.Code.
NUMBERS = {
    "CANCELLED": 1,
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "OUT_OF_RANGE": 11,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "DATA_LOSS": 15,
    "UNAUTHENTICATED": 16,
}


def named_rows() -> list[DocumentedRow]:
    return [row for row in documented_rows() if row.reason]


def details_of(failure: Failure) -> Details:
    return read_details(trailing_metadata(failure))


def test_rpc_40_the_table_is_the_documents() -> None:
    rows = {row.reason: row for row in named_rows()}
    assert len(rows) == len(named_rows()) > 30
    unnamed = {row.code for row in documented_rows() if not row.reason}
    assert unnamed == {"RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "CANCELLED"}
    assert set(ERRORS) == rows.keys() | {CANCELLED, DEADLINE_EXCEEDED}
    for reason, row in rows.items():
        ours = ERRORS[reason]
        assert (reason, ours.code, ours.retry.value) == (reason, row.code, row.retry)
        assert (reason, set(ours.metadata)) == (reason, set(row.metadata))
        assert (reason, {detail.value for detail in ours.details}) == (reason, set(row.details))
        pushback = "" if ours.pushback is Pushback.NONE else ours.pushback.value
        assert (reason, pushback) == (reason, row.pushback)
        assert (reason, ours.retry is Retry.UNLESS_NEVER) == (reason, row.unless_never)


def test_rpc_40_the_advice_to_clients_is_about_every_reason() -> None:
    advised = advised_reasons()
    assert sorted(reason for reason, _ in advised) == sorted(name for name, row in ERRORS.items() if row.has_reason)
    assert [reason for reason, codes in advised if ERRORS[reason].code not in codes] == []


@pytest.mark.parametrize("row", named_rows(), ids=lambda row: row.reason)
def test_rpc_40_each_row_on_the_wire(row: DocumentedRow) -> None:
    error = Refusal(row.reason, f"why {row.reason}", {key: f"<{key}>" for key in row.metadata})
    failure = failure_of(error, request_id="r-1")
    found = details_of(failure)
    assert status_code(failure) is StatusCode[row.code]
    assert (found.code, found.reason, found.domain) == (NUMBERS[row.code], row.reason, "imp.v1")
    assert found.metadata == {key: f"<{key}>" for key in row.metadata}
    assert set(found.others) == set(row.details)
    assert (found.pushback_ms is None) == (row.pushback == "")
    if row.pushback:
        assert found.pushback_ms == (
            -1 if row.pushback == "pushback never" else max(1, round(found.retry_seconds * 1000))
        )
    if row.reason != "BUG":
        assert (failure.message, found.message.partition("; ")[0]) == (f"why {row.reason}", f"why {row.reason}")
    step = step_error(failure)
    assert (step.code, step.reason, step.message) == (NUMBERS[row.code], row.reason, message_of(failure))
    assert (message_of(failure) != failure.message) == (row.reason == "NO_CHAT_TEMPLATE")


def test_rpc_40_every_reason_of_the_core_has_a_row_or_ends_a_start() -> None:
    at_start = {reason for reason in KIND_OF_REASON if reason.startswith("MODEL_")}
    assert KIND_OF_REASON.keys() - ERRORS.keys() == at_start | {
        "OVERRIDE_INVALID",
        "DEVICE_MISSING",
        "TOKENIZER_INVALID",
    }


def test_rpc_40_a_request_that_can_never_fit_is_not_asked_to_retry() -> None:
    soon = failure_of(make_error("KV_FULL", "9 of 7", {"needed": "9", "available": "7"}), request_id="")
    never = failure_of(make_error("KV_FULL", "9 of 8", {"needed": "9", "available": "8", "total": "8"}), request_id="")
    assert (details_of(soon).retry_seconds, details_of(soon).pushback_ms) == (1.0, 1000)
    # Without a pushback gRPC's own retry policy would repeat the call: it looks only at the code.
    assert (details_of(never).retry_seconds, details_of(never).pushback_ms) == (None, -1)
    assert details_of(never).metadata == {"needed": "9", "available": "8"}


def test_rpc_40_a_refusal_says_when_to_come_back() -> None:
    found = details_of(failure_of(Refusal("QUEUE_FULL", "full", {"bound": "requests"}, 2.5), request_id=""))
    assert (found.retry_seconds, found.pushback_ms) == (2.5, 2500)
    [quota] = found.others["QuotaFailure"].violations
    assert (quota.subject, quota.description) == ("requests", "full")
    draining = details_of(failure_of(Refusal("DRAINING", "bye"), request_id=""))
    assert (draining.retry_seconds, draining.pushback_ms) == (0.0, 1)
    off = details_of(failure_of(Refusal("FEATURE_DISABLED", "off", {"feature": "step.logits"}), request_id=""))
    [precondition] = off.others["PreconditionFailure"].violations
    assert (precondition.type, precondition.subject) == ("FEATURE_DISABLED", "step.logits")


def test_rpc_40_endings_of_grpc_itself_name_no_reason() -> None:
    gone = failure_of(asyncio.CancelledError(), request_id="")
    late = failure_of(Refusal("DEADLINE_EXCEEDED", "the deadline has passed"), request_id="")
    assert [status_code(gone), status_code(late)] == [StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED]
    assert trailing_metadata(gone) == trailing_metadata(late) == ()


@pytest.mark.parametrize(
    ("error", "paths"),
    [
        (FieldsInvalid([Violation("a.b", "x"), Violation("c[1]", "y")]), ["a.b", "c[1]"]),
        (make_error("FIELD_INVALID", "base: 9, expected at most 3", {"field": "base"}), ["base"]),
        (field_invalid("steps", "a session is named twice"), ["steps"]),
        (make_error("FIELD_INVALID", "something is wrong"), [""]),
        (FieldInvalid("constraint.regex", "unbalanced"), ["constraint.regex"]),
        (TemplateFailed("chat", "roles must alternate"), ["chat"]),
    ],
)
def test_rpc_6_violations_have_paths(error: Exception, paths: list[str]) -> None:
    failure = failure_of(error, request_id="")
    assert status_code(failure) is StatusCode.INVALID_ARGUMENT
    assert details_of(failure).paths == paths
    assert all(path in failure.message for path in paths)


def test_rpc_6_many_violations_stay_within_a_clients_bound() -> None:
    violations = [Violation(f"sampling.logit_bias[{i}]", "token 70000, expected below 512") for i in range(1024)]
    trailing = trailing_metadata(failure_of(FieldsInvalid(violations), request_id=""))
    assert sum(len(key) + len(value) * 4 // 3 for key, value in trailing) < 6 * 1024
    [*told, rest] = read_details(trailing).others["BadRequest"].field_violations
    assert [violation.field for violation in told] == [v.path for v in violations[: len(told)]]
    assert rest.description == f"and {1024 - len(told)} more"
    assert len(told) > 32


def test_a_chat_without_a_template_is_no_field_error() -> None:
    failure = failure_of(NoChatTemplate("chat", "the model has no chat template"), request_id="")
    assert (failure.reason, status_code(failure)) == ("NO_CHAT_TEMPLATE", StatusCode.FAILED_PRECONDITION)


class Unmapped(TextError):
    reason = "TOKENIZER_INVALID"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("/secret/path at 0x7f00 with the prompt"),
        KeyError("prompt"),
        make_error("BUG", "check failed: x == y (/secret/file.cpp:7)"),
        NativePanic("tokenizers", "/secret/lib.rs"),
        Unmapped("tokenizer.ggml.tokens", "/secret"),
        AssertionError("/secret"),
    ],
)
def test_rpc_14_rpc_41_an_unexpected_error_reveals_nothing(error: Exception) -> None:
    failure = failure_of(error, request_id="r-42")
    found = details_of(failure)
    assert failure.is_bug
    assert failure.message == "internal error; the log has it under request id r-42"
    assert (found.code, found.reason, found.metadata) == (NUMBERS["INTERNAL"], "BUG", {})
    assert found.others["RequestInfo"].request_id == "r-42"
    assert b"secret" not in dict(trailing_metadata(failure))["grpc-status-details-bin"]


def test_an_allocation_that_fails_is_no_bug() -> None:
    failure = failure_of(MemoryError("std::bad_alloc"), request_id="")
    assert (failure.reason, status_code(failure)) == ("NO_MEMORY", StatusCode.RESOURCE_EXHAUSTED)
    assert "bad_alloc" not in failure.message


def test_messages_are_one_short_line() -> None:
    long = Refusal("LOADING", "line\r\n\x1b[31m" + "é" * 2000, {"served": "x" * 5000})
    failure = failure_of(long, request_id="")
    assert failure.message.startswith("line\\r\\n\\x1b[31mé")
    assert len(failure.message.encode()) <= 512
    assert len(details_of(failure).metadata["served"]) == 1024
