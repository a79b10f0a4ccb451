"""What a caller is told of an exception, and what the log has of it that the caller is not told."""

from __future__ import annotations

from imp_service.rpc.call import Call
from imp_service.rpc.replies.statuses import Failure, failure_of
from imp_service.telemetry.log import Log


def reported_failure(error: Exception, call: Call, log: Log) -> Failure:
    """The failure of a call or of one session's part of it; a bug is in the log under the call's request id.

    The error has no traceback afterwards.
    """
    failure = failure_of(error, request_id=call.request_id)
    if failure.is_bug:
        log.raised("bug", error, request_id=call.request_id, method=call.method)
    drop_frames(error)
    return failure


def drop_frames(error: BaseException) -> None:
    """Drops the tracebacks of an error and of all that led to it.

    Their frames hold the request, its tokens and often the error itself: such a cycle lives until the next full
    collection, and so does a prompt of a megabyte.
    """
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        left += (each.__cause__, each.__context__)
