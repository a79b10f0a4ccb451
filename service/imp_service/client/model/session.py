# Generated from async_session.py by tools/generate_sync.py; do not edit.
"""A session on a server, for programs that wait in threads: the caller decides token by token."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from ...api.arguments import GENERATION_PARAMETERS, NO_PROMPT, STEP_PARAMETERS, request_of, sampling_of
from ...api.errors import Error
from ...api.keywords import take, takes_options
from ...api.options import DEFAULT_STEP, GenerationRequest, Prompt, SamplingOptions, SessionStep, StepOptions
from ...api.replies import StepOutput
from ...api.shown import session_text
from ...pb import inference_pb2 as pb
from ..connection import Connection
from ..failure import CallFailure
from ..joined_replies import JoinedReplies
from ..messages.errors import translating_call_failures
from ..messages.write_requests import Metadata
from ..patience import DRAINING, Patience
from . import session_calls
from .reception import Reception
from .remote_generation import Generation
from .session_calls import Calls, Trouble
from .session_state import SessionState, StepRequest

T = TypeVar("T")
_METHODS = {
    pb.PrefillRequest: "Prefill",
    pb.DecodeStepRequest: "DecodeStep",
    pb.ForkSessionRequest: "ForkSession",
    pb.TruncateSessionRequest: "TruncateSession",
    pb.ReleaseSessionRequest: "ReleaseSession",
}


class SessionServer:
    """Makes the calls of sessions on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Sessions that were dropped without close(). A destructor may run inside gRPC, where a call would never return.
        self.dropped: deque[SessionState] = deque()

    def run(self, calls: Calls[T], metadata: Metadata, timeout: float | None) -> T:
        """Makes the calls one after the other, which have this time together, and returns their result."""
        self.release_dropped()
        with translating_call_failures():
            return self.result(calls, metadata, timeout)

    def result(self, calls: Calls[T], metadata: Metadata, timeout: float | None) -> T:
        """The same. Raises CallFailure."""
        patience = self._connection.patience(timeout)
        try:
            resume: Callable[[], Any] = partial(next, calls)
            while True:
                resume = self._answer(calls, resume(), metadata, patience)
        except StopIteration as end:
            result: T = end.value
            return result

    def stream(self, state: SessionState, message: pb.GenerateRequest, timeout: float | None) -> JoinedReplies:
        """Begins a generation. If it breaks and another server may have the session, it is made again there."""

        def reopen(failure: CallFailure, time_left: float | None) -> str:
            lost = pb.ReleaseSessionRequest(session_id=state.name)
            name = self.result(session_calls.reopened(state, failure), state.metadata, time_left)
            # It is still there if only the connection was cut.
            self._connection.start(self._connection.sessions.ReleaseSession, lost, metadata=state.metadata)
            return name

        return JoinedReplies(
            self._connection,
            message,
            metadata=state.metadata,
            timeout=timeout,
            reopen=None if state.memory is None else reopen,
        )

    def release(self, state: SessionState) -> None:
        """Frees a session. If the call does not reach the server, the server frees the session after its ttl."""
        request = session_calls.release(state)
        if request is not None:
            with suppress(CallFailure):
                method = self._connection.sessions.ReleaseSession
                self._connection.unary(method, request, metadata=state.metadata)

    def release_dropped(self) -> None:
        """Frees sessions that were dropped, without waiting for it."""
        while self.dropped:
            state = self.dropped.popleft()
            request = session_calls.release(state)
            if request is not None:
                with suppress(CallFailure):  # the connection is closed
                    method = self._connection.sessions.ReleaseSession
                    self._connection.start(method, request, metadata=state.metadata)

    def _answer(self, calls: Calls[T], request: Any, metadata: Metadata, patience: Patience) -> Callable[[], Any]:
        """Makes the call that `calls` yielded, or waits. Returns a function that resumes `calls` with the outcome."""
        try:
            if isinstance(request, Trouble):
                request = request.wait(patience, has_answered=self._connection.has_answered)
            if not isinstance(request, float):
                return partial(calls.send, self._reply(request, metadata, patience))
            self._connection.rest(request)
        except CallFailure as failure:
            return partial(calls.throw, failure)
        return partial(calls.send, None)

    def _reply(self, request: Any, metadata: Metadata, patience: Patience) -> Any:
        """The reply. A server that is full while it frees dropped sessions is asked again after that."""
        is_freeing = self._connection.has_started
        try:
            return self._call(request, metadata, patience)
        except CallFailure as failure:
            if not is_freeing or failure.reason not in session_calls.FULL:
                raise
        self._connection.wait_for_started()
        return self._call(request, metadata, patience)

    def _call(self, request: Any, metadata: Metadata, patience: Patience) -> Any:
        stub = self._connection.sessions
        method, metadata = getattr(stub, _METHODS[type(request)]), (*metadata, *patience.metadata)
        try:
            reply = self._connection.unary(method, request, metadata=metadata, timeout=patience.time_left)
        except CallFailure as failure:
            if failure.reason == DRAINING:
                self._connection.leave_server(stub)
            raise
        self._connection.has_answered = True
        return reply


class Session:
    """A sequence of tokens that its caller extends, forks and truncates. For one thread at a time.

    It holds `position` tokens, and perhaps a pending one: sampled, but not yet evaluated. A step evaluates the tokens
    that it is given, or the pending one, and samples the next. Sampling options that are given to a step stay in force
    for later steps. The first step opens the session on the server; closing it, by close() or a `with` block,
    frees it there. The server frees a session that is not used for its `ttl`.
    """

    def __init__(self, server: SessionServer, state: SessionState) -> None:
        self._server = server
        self._state = state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_state"):
            self._server.dropped.append(self._state)

    def __repr__(self) -> str:
        is_open = self._state.is_open or not self.position
        return f"<Session: {session_text(self.position, self.seed, is_open=is_open)}>"

    @property
    def position(self) -> int:
        """How many tokens it holds."""
        return self._state.position

    @property
    def seed(self) -> int:
        """The seed of its sampler."""
        return self._state.seed

    @takes_options(STEP_PARAMETERS)
    def prefill(
        self,
        prompt: Prompt,
        step: StepOptions = DEFAULT_STEP,
        *,
        sampling: SamplingOptions | None = None,
        position: int | None = None,
        base: int | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> StepOutput:
        """Evaluates a prompt after what is held, and samples.

        Text gets the model's special tokens if nothing is held yet. If `position` is given and differs from the number
        of held tokens, the error is POSITION_MISMATCH and nothing changes. `base` is the position of output 0, for a
        sampler that continues the draws of an earlier session, or those of this one before the prefill. Without it the
        draws begin anew after the prefill.
        """
        asked = StepRequest(take(step, options), sampling_of(sampling, options), position)
        return self._run(session_calls.prefill(self._state, prompt, asked, base), timeout)

    @takes_options(STEP_PARAMETERS)
    def decode_step(
        self,
        tokens: Sequence[int] = (),
        step: StepOptions = DEFAULT_STEP,
        *,
        sampling: SamplingOptions | None = None,
        position: int | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> StepOutput:
        """Evaluates `tokens`, or the pending one if there are none, and samples."""
        asked = StepRequest(take(step, options), sampling_of(sampling, options), position)
        return self._run(session_calls.decode_step(self._state, tokens, asked), timeout)

    @takes_options(GENERATION_PARAMETERS)
    def generate(
        self, request: GenerationRequest = NO_PROMPT, *, timeout: float | None = None, **options: Any
    ) -> Generation:
        """Generates after the held tokens. It takes the options of `Client.generate`."""
        state, request = self._state, request_of(request, options)
        message = state.generation(request)
        reception = Reception(request)

        def begin() -> JoinedReplies:
            self._run(session_calls.begin_generation(state), timeout)
            state.generating(message, reception)
            message.session_id = state.name
            return self._server.stream(state, message, timeout)

        return Generation(begin, reception)

    def fork(self, position: int | None = None, *, timeout: float | None = None) -> Session:
        """A session that shares the first `position` tokens, or all of them and the pending one."""
        return Session(self._server, self._run(session_calls.fork(self._state, position), timeout))

    def truncate(self, position: int, *, timeout: float | None = None) -> None:
        """Drops what follows the first `position` tokens, and the pending one."""
        self._run(session_calls.truncate(self._state, position), timeout)

    def close(self) -> None:
        """Frees it. Closing it twice does nothing."""
        self._server.release(self._state)

    def _run(self, calls: Calls[T], timeout: float | None) -> T:
        return self._server.run(calls, self._state.metadata, timeout)


def decode_together(
    server: SessionServer, steps: Sequence[SessionStep], timeout: float | None
) -> list[StepOutput | Error]:
    """Steps sessions of one server. Sessions of one caller are stepped in one call."""
    parts = session_calls.parts_of(steps, Session)
    results: dict[int, StepOutput | Error] = {}
    for metadata, places in session_calls.by_caller(parts).items():
        outputs = server.run(session_calls.decode_together([parts[i] for i in places]), metadata, timeout)
        results |= dict(zip(places, outputs, strict=True))
    return [results[i] for i in range(len(parts))]
