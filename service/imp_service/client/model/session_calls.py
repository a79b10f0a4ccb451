"""The calls behind each method of a session, for threads and tasks alike.

Each function yields a request, gets its reply or its failure, and returns what the method returns. A float is a time to
wait, in seconds.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from ...api.errors import Error, invalid
from ...api.options import Prompt, SessionStep
from ...api.replies import StepOutput, Timings
from ...pb import inference_pb2 as pb
from ..failure import CallFailure
from ..messages.errors import error_of_failure
from ..messages.read_replies import read_step, read_timings, seconds
from ..messages.write_requests import Metadata
from .session_state import SessionState, StepRequest

T = TypeVar("T")
Calls: TypeAlias = Generator[Any, Any, T]

# While the server still ends a generation that was left, the session is busy.
BUSY_SECONDS = 0.05
MOST_WAITS = 200
# Reasons of a server that has no room. Sessions that this client has dropped may be what fills it.
FULL = {"SESSIONS_FULL", "TENANT_LIMIT", "KV_FULL"}
# Failures of the call, whatever its sessions are.
_OF_THE_CALL = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNAUTHENTICATED", "PERMISSION_DENIED"}


@dataclass(frozen=True, slots=True)
class StepOf:
    """A session's part of a step of several."""

    state: SessionState
    tokens: Sequence[int]
    asked: StepRequest


def parts_of(steps: Sequence[SessionStep], kind: type) -> list[StepOf]:
    """The steps with what is known of their sessions. Raises FIELD_INVALID if one session has two."""
    parts = []
    for each in steps:
        if not isinstance(each.session, kind):
            raise TypeError(f"steps: {type(each.session).__name__}, expected sessions of this client")
        parts.append(StepOf(each.session._state, each.tokens, StepRequest(each.step)))  # type: ignore[attr-defined]
    if len({each.state.name for each in parts}) != len(parts):
        raise invalid("steps", "a session is named twice")
    return parts


def settle(state: SessionState) -> Calls[None]:
    """Drops what a generation that was left had made beyond what was read."""
    request = state.settling()
    for n_waits in range(MOST_WAITS):
        if request is None:
            return
        try:
            yield request
            break
        except CallFailure as failure:
            if failure.reason != "SESSION_BUSY" or n_waits + 1 == MOST_WAITS:
                raise
            yield BUSY_SECONDS if failure.retry_after is None else failure.retry_after
    state.settled()


def prefill(state: SessionState, prompt: Prompt, asked: StepRequest, base: int | None) -> Calls[StepOutput]:
    """Evaluates a prompt after what is held, and samples."""
    yield from settle(state)
    return (yield from _prefilled(state, state.prefill(prompt, asked, base)))


def decode_step(state: SessionState, tokens: Sequence[int], asked: StepRequest) -> Calls[StepOutput]:
    """Evaluates tokens, or the pending one, and samples."""
    yield from settle(state)
    if not state.is_open:
        return (yield from _prefilled(state, state.first_step(tokens, asked)))
    request = pb.DecodeStepRequest(steps=[state.step(tokens, asked)])
    try:
        reply = yield request
    except CallFailure as failure:
        state.failed(failure)
        raise
    return _stepped(state, reply.results[0].output, request.steps[0], reply)


def decode_together(steps: Sequence[StepOf]) -> Calls[list[StepOutput | Error]]:
    """Steps of several sessions of one caller: one output or one error for each."""
    results: dict[int, StepOutput | Error] = {}
    together: dict[int, pb.SessionStep] = {}
    for i, each in enumerate(steps):
        try:
            yield from settle(each.state)
            if each.state.is_open:
                together[i] = each.state.step(each.tokens, each.asked)
            else:
                results[i] = yield from decode_step(each.state, each.tokens, each.asked)
        except (Error, CallFailure) as error:
            results[i] = _error_of(error)
    if together:
        results |= yield from _in_one_call(steps, together)
    return [results[i] for i in range(len(steps))]


def begin_generation(state: SessionState) -> Calls[None]:
    """Makes the calls that are necessary before a generation."""
    yield from settle(state)
    request = state.evaluating_pending()
    if request is not None:
        reply = yield request
        _stepped(state, reply.results[0].output, request.steps[0], reply)


def fork(state: SessionState, position: int | None) -> Calls[SessionState]:
    """A copy."""
    yield from settle(state)
    twin, request = state.fork(position)
    if state.is_open:
        twin.held = (yield request).position
    elif position:
        state.require_empty_end(position)
    return twin


def truncate(state: SessionState, position: int) -> Calls[None]:
    """Drops what follows the first tokens."""
    yield from settle(state)
    request = state.truncation(position)
    if state.is_open:
        yield request
        state.truncated(position)
    else:
        state.require_empty_end(position)


def release(state: SessionState) -> pb.ReleaseSessionRequest | None:
    """The call that frees a session; None if the server cannot have it."""
    if not state.may_be_open:
        return None
    state.may_be_open = state.is_open = False
    return pb.ReleaseSessionRequest(session_id=state.name)


def by_caller(steps: Iterable[StepOf]) -> dict[Metadata, list[int]]:
    """The steps of each caller, by their places: one call has one caller."""
    found: dict[Metadata, list[int]] = {}
    for i, each in enumerate(steps):
        found.setdefault(each.state.metadata, []).append(i)
    return found


def _prefilled(state: SessionState, request: pb.PrefillRequest) -> Calls[StepOutput]:
    try:
        reply = yield request
    except CallFailure as failure:
        state.failed(failure)
        raise
    output = read_step(reply.output, reply.cached_tokens, read_timings(reply.timings))
    return state.stepped(output, request.sampling)


def _in_one_call(steps: Sequence[StepOf], asked: dict[int, pb.SessionStep]) -> Calls[dict[int, StepOutput | Error]]:
    """Runs steps in one call. If no step could run, the call fails with the reason of one; then each gets a call."""
    try:
        reply = yield pb.DecodeStepRequest(steps=asked.values())
    except CallFailure as failure:
        if failure.code in _OF_THE_CALL:
            raise
        if len(asked) == 1:
            [(i, _)] = asked.items()
            steps[i].state.failed(failure)
            return {i: error_of_failure(failure)}
        results: dict[int, StepOutput | Error] = {}
        for i, step in asked.items():
            results |= yield from _in_one_call(steps, {i: step})
        return results
    found: dict[int, StepOutput | Error] = {}
    for (i, step), result in zip(asked.items(), reply.results, strict=True):
        if result.HasField("error"):
            error = result.error
            found[i] = error_of_failure(CallFailure(grpc_code(error.code), error.reason, error.message))
        else:
            found[i] = _stepped(steps[i].state, result.output, step, reply)
    return found


def _stepped(
    state: SessionState, output: pb.StepOutput, step: pb.SessionStep, reply: pb.DecodeStepResponse
) -> StepOutput:
    """The server times the step as a whole."""
    timings = Timings(queue=0.0, prefill=0.0, decode=seconds(reply.forward))
    return state.stepped(read_step(output, 0, timings), step.sampling)


def grpc_code(number: int) -> str:
    """The name of a code of google.rpc."""
    from google.rpc import code_pb2

    known = code_pb2.Code.DESCRIPTOR.values_by_number.get(number)
    return "UNKNOWN" if known is None else str(known.name)


def _error_of(error: Error | CallFailure) -> Error:
    return error if isinstance(error, Error) else error_of_failure(error)
