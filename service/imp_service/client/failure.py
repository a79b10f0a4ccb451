"""A failed call: its status, and the details that imp.v1 servers send."""

from dataclasses import dataclass, field, replace
from typing import cast

import grpc

from .target import SERVER_KEY, Target
from .unreachable import explain, is_unreachable

# How gRPC's asyncio ends a call, with INTERNAL, that ended before its request was sent: it does not say why.
_ENDED_EARLY = "Internal error from Core"
DETAILS, PUSHBACK = "grpc-status-details-bin", "grpc-retry-pushback-ms"


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A field of the request, and what is wrong with it."""

    path: str
    description: str


@dataclass(eq=False)
class CallFailure(Exception):
    """`reason` is from the error table, or the name of the code if the server sent no reason."""

    code: str
    reason: str
    text: str  # the message of the server
    violations: tuple[FieldViolation, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    retry_after: float | None = None  # seconds; None: the server told no time
    is_unreachable: bool = False  # there was no connection, so no server has the call
    was_taken: bool = False  # a server has said that it has the call

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    @property
    def message(self) -> str:
        """One line: all violations or the server's message, the code, and when to try again."""
        what = "; ".join(f"{v.path}: {v.description}" for v in self.violations) or self.text or "no message"
        notes = [] if self.code == self.reason else [self.code]
        if self.retry_after is not None:
            notes.append(f"try again in {self.retry_after:g} s" if self.retry_after else "try again")
        return f"{what} ({', '.join(notes)})" if notes else what


def cancelled() -> CallFailure:
    """The failure of a stream that its caller has cancelled between two calls."""
    return CallFailure("CANCELLED", "CANCELLED", "the caller cancelled it")


def closed() -> CallFailure:
    """The failure of a call whose client was closed."""
    return CallFailure("CANCELLED", "CANCELLED", "the client was closed")


def failure_of(error: grpc.RpcError, target: Target | None = None) -> CallFailure:
    """The failure of a synchronous or asyncio call. Ignores details that cannot be parsed.

    With `target`, the message explains why a server cannot be reached.
    """
    call = cast(grpc.Call, error)  # every RpcError that a call raises is a Call
    code, text = call.code().name, call.details() or ""
    if text == _ENDED_EARLY:
        code = "UNAVAILABLE"
    explained = text if target is None else explain(text, target)
    trailing = dict(call.trailing_metadata() or ())
    pushback, packed = trailing.get(PUSHBACK, ""), trailing.get(DETAILS)
    told = int(pushback) / 1000 if isinstance(pushback, str) and pushback.isdecimal() else None
    unreachable = code == "UNAVAILABLE" and is_unreachable(text)
    taken = SERVER_KEY in trailing or SERVER_KEY in dict(call.initial_metadata() or ())
    plain = CallFailure(code, code, explained, retry_after=told, is_unreachable=unreachable, was_taken=taken)
    return plain if not isinstance(packed, bytes) else _with_details(plain, packed)


def _with_details(plain: CallFailure, packed: bytes) -> CallFailure:
    # Imported here: only failures need these modules.
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2

    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    has_retry = False
    try:
        for detail in status_pb2.Status.FromString(packed).details:
            _ = detail.Unpack(info) or detail.Unpack(bad)
            has_retry = detail.Unpack(retry) or has_retry
    except DecodeError:
        return plain
    return replace(
        plain,
        reason=info.reason or plain.code,
        violations=tuple(FieldViolation(v.field, v.description) for v in bad.field_violations),
        metadata=dict(info.metadata),
        retry_after=retry.retry_delay.ToTimedelta().total_seconds() if has_retry else plain.retry_after,
    )
