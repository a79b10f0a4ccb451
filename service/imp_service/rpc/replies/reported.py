"""What a caller is told of an exception, and what the log has of it that the caller is not told."""

from __future__ import annotations

from imp_service.rpc.call import Call
from imp_service.rpc.replies.statuses import Failure, failure_of
from imp_service.telemetry.log import Log


def reported_failure(error: Exception, call: Call, log: Log) -> Failure:
    """The failure of a call or of one session's part of it; a bug is in the log under the call's request id."""
    failure = failure_of(error, request_id=call.request_id)
    if failure.is_bug:
        log.raised("bug", error, request_id=call.request_id, method=call.method)
    return failure
