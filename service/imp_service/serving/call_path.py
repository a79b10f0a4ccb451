"""The path of every call, for all transports: checks caller, phase and metadata, runs the handler, and ends once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from imp_service.api.errors import FieldsInvalid
from imp_service.serving.calls import Call
from imp_service.serving.errors.error_table import DRAINING
from imp_service.serving.errors.failure import Failure
from imp_service.serving.errors.failures import reported_failure
from imp_service.serving.request_metadata import RequestMetadata, read_request_metadata
from imp_service.serving.security.authentication import Authentication, Metadata, Policy
from imp_service.serving.server_state import ServerState

T = TypeVar("T")
C = TypeVar("C", bound=Call)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The facts that a transport knows about an arriving call."""

    method: str  # as registered with Telemetry.add_method
    policy: Policy
    called: str  # what has the policy, for refusals
    peer: str
    metadata: Metadata  # names in small letters


class Transport(Protocol[C]):
    """The operations of a transport on one call."""

    @property
    def make(self) -> Callable[..., C]:
        """Makes the call from the fields of Call."""

    async def succeed(self, call: C) -> None:
        """Completes a call that was answered. It raises if the call was ended in the meantime."""

    async def fail(self, call: C, failure: Failure) -> None:
        """Sends the failure. Raises CancelledError if the caller has gone."""


def new_request_id() -> str:
    """An id for a request whose client sent none."""
    return secrets.token_hex(8)


class CallPath:
    """Runs calls. Every exception becomes one failure. On the event loop's thread."""

    def __init__(self, state: ServerState, authentication: Authentication) -> None:
        self._state = state
        self._authentication = authentication

    async def run(self, arrival: Arrival, transport: Transport[C], answer: Callable[[C], Awaitable[T]]) -> T | None:
        """The answer; None for a call that failed, if its transport does not raise then."""
        metadata, violations = _read(arrival.metadata)
        call = self._begin(arrival, transport, metadata)
        try:
            call.tenant = self._tenant(arrival) or call.tenant
            if arrival.policy.needs_model:
                self._state.lifecycle.require_open()
            if violations is not None:
                raise violations
            reply = await answer(call)
            await transport.succeed(call)
        except asyncio.CancelledError:
            if call.ending is None:
                self._end(call, "DEADLINE_EXCEEDED" if call.was_ended_by_deadline else "CANCELLED")
                raise
            if call.task is not None:
                call.task.uncancel()
            await self._fail(call, call.ending, transport)
        except Exception as error:
            if call.own_code:
                self._end(call, call.own_code)
                raise
            await self._fail(call, error, transport)
        else:
            self._end(call, "OK")
            return reply
        return None

    async def refuse(self, arrival: Arrival, transport: Transport[C], error: Exception) -> None:
        """Fails a call without checking or running it."""
        await self._fail(self._begin(arrival, transport, RequestMetadata()), error, transport)

    def _tenant(self, arrival: Arrival) -> str | None:
        return self._authentication.check(arrival.policy, arrival.called, arrival.metadata)

    def _begin(self, arrival: Arrival, transport: Transport[C], metadata: RequestMetadata) -> C:
        request_id = new_request_id()
        call = transport.make(
            method=arrival.method,
            instance_id=self._state.instance_id,
            request_id=request_id,
            peer=arrival.peer,
            record=self._state.telemetry.call(
                arrival.method,
                request_id,
                metadata.tenant,
                arrival.peer,
                metadata.traceparent,
                tracestate=metadata.tracestate,
            ),
            task=asyncio.current_task(),
            tenant=metadata.tenant,
            priority=metadata.priority,
            goes_on_elsewhere=metadata.resumes,
            acknowledge=metadata.acknowledge,
            approximations=self._state.approximations if arrival.policy.is_request else "",
        )
        self._state.calls.enter(call, is_request=arrival.policy.is_request)
        return call

    async def _fail(self, call: C, error: Exception, transport: Transport[C]) -> None:
        failure = reported_failure(error, call, self._state.telemetry.log)
        if error is call.ending and failure.reason == DRAINING:
            failure = replace(failure, metadata={**failure.metadata, "tokens_emitted": str(call.n_sent_tokens)})
        if failure.reason == "KV_FULL" and not failure.can_never_fit:
            n_lacking = int(failure.metadata["needed"]) - int(failure.metadata["available"])
            failure = replace(failure, retry_after=self._state.sessions.seconds_until_blocks(n_lacking))
        self._end(call, failure.row.code, failure.reason)
        await transport.fail(call, failure)

    def _end(self, call: Call, code: str, reason: str = "") -> None:
        """Records the end of a call. After this the call cannot end in another way."""
        self._state.calls.leave(call)
        call.task = None
        call.record.facts.request_id = call.request_id
        call.record.facts.tenant = call.tenant
        call.record.ended(code, reason)


def _read(pairs: Metadata) -> tuple[RequestMetadata, FieldsInvalid | None]:
    """The metadata, or its error: the caller raises that only after earlier checks."""
    try:
        return read_request_metadata(pairs), None
    except FieldsInvalid as error:
        return RequestMetadata(), error
