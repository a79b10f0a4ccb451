"""The calls behind each method of a session, for threads and tasks alike.

Each function yields a request, gets its reply or its failure, and returns what the method returns. A float is a time to
wait, in seconds; a Trouble is waited for, or raises the failure that ends the call.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
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
from ..patience import MOST_FRUITLESS, Patience, is_break, is_refusal, is_soon
from ..repeated_stream import LOST
from .session_state import SessionState, StepRequest

_log = logging.getLogger(__name__)
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
class Trouble:
    """A call has failed that is to be made again."""

    failure: CallFailure
    # Its server went away, or the proxy before it says so.
    has_broken: bool
    # Its session is open.
    is_known: bool

    def wait(self, patience: Patience, *, has_answered: bool) -> float:
        """Seconds until then. Raises the failure that ends it. `has_answered`: servers are there, as far as known."""
        failure = self.failure
        is_away = failure.code == "UNAVAILABLE" and (self.is_known or has_answered)
        return patience.wait(failure, is_fruitless=self.has_broken, is_patient=is_away)


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
            yield from answered(request, state)
            break
        except CallFailure as failure:
            if is_lost(state, failure):
                break  # it is opened again as if it had ended where its reader left it
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
    step = state.step(tokens, asked)
    try:
        reply = yield from kept(pb.DecodeStepRequest(steps=[step]), state)
    except CallFailure as failure:
        state.failed(failure)
        raise
    if reply is None:
        return (yield from _prefilled(state, state.first_step(tokens, asked)))
    return _stepped(state, reply.results[0].output, step, reply)


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
    step = state.evaluating_pending()
    if step is not None:
        reply = yield from kept(pb.DecodeStepRequest(steps=[step]), state)
        _stepped(state, reply.results[0].output, step, reply)


def fork(state: SessionState, position: int | None) -> Calls[SessionState]:
    """A copy."""
    yield from settle(state)
    twin, request = state.fork(position)
    if state.is_open:
        reply = yield from kept(request, state)
        if reply is None:
            twin.is_open = False
        else:
            twin.held = reply.position
    elif position:
        state.require_empty_end(position)
    return twin


def truncate(state: SessionState, position: int) -> Calls[None]:
    """Drops what follows the first tokens."""
    yield from settle(state)
    request = state.truncation(position)
    if state.is_open and (yield from kept(request, state)) is not None:
        state.truncated(position)
    else:
        state.require_empty_end(position)


def answered(request: Any, state: SessionState) -> Calls[Any]:
    """The reply. Where a server goes away or refuses the call for a while, the call is made again."""
    stalled = is_again = False
    while True:
        try:
            return (yield request)
        except CallFailure as failure:
            stalls, is_busy = failure.reason == "STALLED" and not stalled, is_again and failure.reason == "SESSION_BUSY"
            has_broken = is_break(failure) or stalls
            is_refused = is_refusal(failure) and (state.is_open or is_soon(failure))
            if not state.resumes or not (has_broken or is_refused or is_busy):
                raise
            yield Trouble(failure, has_broken=has_broken, is_known=state.is_open)
            stalled, is_again = stalled or stalls, True


def kept(request: Any, state: SessionState) -> Calls[Any]:
    """The reply to a call on a session, which is opened again if it is lost.

    None if it was empty: then the next prefill opens it.
    """
    for n_left in reversed(range(1 + MOST_FRUITLESS)):
        _name(request, state)
        try:
            return (yield from answered(request, state))
        except CallFailure as failure:
            if not n_left or not is_lost(state, failure):
                raise
            yield from reopened(state, failure)
        if not state.is_open and not isinstance(request, pb.PrefillRequest):
            break
    return None


def is_lost(state: SessionState, failure: CallFailure) -> bool:
    """Whether the server does not have the session, and another one may go on with it."""
    return failure.reason in LOST and state.memory is not None


def reopened(state: SessionState, lost: CallFailure) -> Calls[str]:
    """Opens a session again, as it was, and returns its name.

    Raises `lost` if no server would go on with the same tokens.
    """
    request, is_met = state.reopening(), False
    if request is None:
        return state.name
    try:
        reply = yield from answered(request, state)
        is_met = state.is_met(reply)
        if not is_met:
            with suppress(CallFailure):
                yield pb.ReleaseSessionRequest(session_id=state.name)
            raise lost
        _log.debug("a session goes on with %d tokens; it was lost: %s", state.held, lost)
    except CallFailure as failure:
        if failure.code in _OF_THE_CALL:
            raise
        _log.debug("a session does not go on: %s", failure)
        raise lost from None
    finally:
        if not is_met:
            state.rename()  # no server has a session of this name
    return state.name


def _name(request: Any, state: SessionState) -> None:
    """Makes a request one of the session, which may have another name now."""
    part = request.steps[0] if isinstance(request, pb.DecodeStepRequest) else request
    part.session_id = state.name


def release(state: SessionState) -> pb.ReleaseSessionRequest | None:
    """The call that frees a session; None if the server cannot have it."""
    if not state.may_be_open:
        return None
    state.may_be_open = state.is_open = False
    state.memory = None
    return pb.ReleaseSessionRequest(session_id=state.name)


def by_caller(steps: Iterable[StepOf]) -> dict[Metadata, list[int]]:
    """The steps of each caller, by their places: one call has one caller."""
    found: dict[Metadata, list[int]] = {}
    for i, each in enumerate(steps):
        found.setdefault(each.state.metadata, []).append(i)
    return found


def _prefilled(state: SessionState, request: pb.PrefillRequest) -> Calls[StepOutput]:
    try:
        reply = yield from kept(request, state)
    except CallFailure as failure:
        state.failed(failure)
        raise
    state.prefilled(request, reply)
    return read_step(reply.output, reply.cached_tokens, read_timings(reply.timings))


def _in_one_call(steps: Sequence[StepOf], asked: dict[int, pb.SessionStep]) -> Calls[dict[int, StepOutput | Error]]:
    """Runs steps in one call. If no step could run, the call fails with the reason of one; then each gets a call."""
    first = steps[next(iter(asked))].state
    try:
        reply = yield from answered(pb.DecodeStepRequest(steps=asked.values()), first)
    except CallFailure as failure:
        if failure.code in _OF_THE_CALL:
            raise
        if len(asked) == 1:
            [(i, _)] = asked.items()
            if is_lost(steps[i].state, failure):
                return {i: (yield from _again(steps[i]))}
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
            why = CallFailure(grpc_code(error.code), error.reason, error.message)
            found[i] = (yield from _again(steps[i])) if is_lost(steps[i].state, why) else error_of_failure(why)
        else:
            found[i] = _stepped(steps[i].state, result.output, step, reply)
    return found


def _again(step: StepOf) -> Calls[StepOutput | Error]:
    """A step by itself."""
    try:
        return (yield from decode_step(step.state, step.tokens, step.asked))
    except (Error, CallFailure) as error:
        return _error_of(error)


def _stepped(
    state: SessionState, output: pb.StepOutput, step: pb.SessionStep, reply: pb.DecodeStepResponse
) -> StepOutput:
    """The server times the step as a whole."""
    timings = Timings(queue=0.0, prefill=0.0, decode=seconds(reply.forward))
    state.stepped(step, output)
    return read_step(output, 0, timings)


def grpc_code(number: int) -> str:
    """The name of a code of google.rpc."""
    from google.rpc import code_pb2

    known = code_pb2.Code.DESCRIPTOR.values_by_number.get(number)
    return "UNKNOWN" if known is None else str(known.name)


def _error_of(error: Error | CallFailure) -> Error:
    return error if isinstance(error, Error) else error_of_failure(error)
