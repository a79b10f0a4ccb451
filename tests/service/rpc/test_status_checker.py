"""The checker of statuses: it accepts the rows of the table, and refuses every other status."""

import grpc
import pytest

from imp_service.core import make_error
from imp_service.rpc.replies.statuses import status_code, trailing_metadata
from imp_service.serving.errors.failures import failure_of
from imp_service.serving.refusal import Refusal
from support.status_checker import SECRET, StatusViolation, check_status

Pairs = tuple[tuple[str, str | bytes], ...]


def trailing(error: Exception) -> tuple[grpc.StatusCode, str, Pairs]:
    failure = failure_of(error, request_id="7")
    return status_code(failure), failure.message, trailing_metadata(failure)


@pytest.mark.parametrize(
    "error",
    [
        Refusal("LOADING", "the model is being loaded"),
        make_error("KV_FULL", "no block", {"needed": "3", "available": "2"}),
        make_error("NON_FINITE", "NaN", {"position": "3"}),
        ValueError("whatever it was"),
    ],
)
def test_rpc_41_a_row_of_the_table_passes(error: Exception) -> None:
    check_status(*trailing(error))


def test_rpc_41_what_grpc_says_itself_passes() -> None:
    check_status(grpc.StatusCode.OK, "", ())
    check_status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!", ())
    crossed = trailing(Refusal("DRAINING", "bye"))[2]
    check_status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!", crossed)
    check_status(grpc.StatusCode.DEADLINE_EXCEEDED, "Stream removed (Deadline Exceeded)", crossed)
    check_status(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses", ())


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("code", "words", "pairs"),
    [
        (None, None, ()),
        (grpc.StatusCode.UNKNOWN, "Unexpected <class 'KeyError'>", ()),
        (grpc.StatusCode.INTERNAL, "something went wrong", ()),
        (grpc.StatusCode.INVALID_ARGUMENT, "no details", ()),
        (grpc.StatusCode.UNAVAILABLE, "the model is being loaded", ()),
        (grpc.StatusCode.ABORTED, *trailing(Refusal("LOADING", "not so"))[1:]),
        (grpc.StatusCode.DEADLINE_EXCEEDED, *trailing(Refusal("DRAINING", "bye"))[1:]),
        (grpc.StatusCode.UNAVAILABLE, "other words", trailing(Refusal("LOADING", "these words"))[2]),
        trailing(make_error("FIELD_INVALID", f"text: {SECRET} is too long")),
        trailing(make_error("FIELD_INVALID", "file: /var/models/a.gguf is not there")),
        trailing(make_error("FIELD_INVALID", "at 0x7f3a00c0ffee")),
    ],
)
def test_rpc_41_rpc_14_anything_else_is_noticed(code: grpc.StatusCode | None, words: str | None, pairs: Pairs) -> None:
    with pytest.raises(StatusViolation):
        check_status(code, words, pairs)
