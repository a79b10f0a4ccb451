"""Short forms of session RPCs and of reading their errors."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.status_details import Details, read_details
from support.run.patience import HANGS_AFTER
from support.servers.served import Served

GREEDY = types_pb2.SamplingOptions(temperature=0.0)
WARM = types_pb2.SamplingOptions(temperature=0.9, seed=7)


@dataclass
class SessionCalls:
    """A client of one tenant. Sessions are greedy by default."""

    served: Served
    tenant: str = ""
    stub: Any = field(init=False)

    def __post_init__(self) -> None:
        self.stub = self.served.inference

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of each call."""
        return (("imp-tenant", self.tenant),) if self.tenant else ()

    def prefill(self, prompt: str | Sequence[int], session_id: str = "", **fields: Any) -> pb.PrefillResponse:
        """Opens or extends a session; a new session is greedy."""
        reply: pb.PrefillResponse = self.stub.Prefill(
            prefill(prompt, session_id, **fields), metadata=self.metadata, timeout=HANGS_AFTER
        )
        return reply

    def step(self, session_id: str, tokens: Sequence[int] = (), **fields: Any) -> pb.StepOutput:
        """Runs a step of one session; raises its failure."""
        (result,) = self.steps(pb.SessionStep(session_id=session_id, token_ids=tokens, **fields)).results
        assert result.session_id == session_id
        output: pb.StepOutput = result.output
        return output

    def steps(self, *steps: pb.SessionStep) -> pb.DecodeStepResponse:
        """Runs a step of several sessions."""
        reply: pb.DecodeStepResponse = self.stub.DecodeStep(
            pb.DecodeStepRequest(steps=steps), metadata=self.metadata, timeout=HANGS_AFTER
        )
        return reply

    def fork(self, session_id: str, **fields: Any) -> pb.ForkSessionResponse:
        """Forks a session."""
        reply: pb.ForkSessionResponse = self.stub.ForkSession(
            pb.ForkSessionRequest(session_id=session_id, **fields), metadata=self.metadata, timeout=HANGS_AFTER
        )
        return reply

    def truncate(self, session_id: str, position: int) -> int:
        """Truncates a session; returns the number of tokens that it holds."""
        request = pb.TruncateSessionRequest(session_id=session_id, position=position)
        reply: pb.TruncateSessionResponse = self.stub.TruncateSession(
            request, metadata=self.metadata, timeout=HANGS_AFTER
        )
        return reply.position

    def release(self, session_id: str) -> bool:
        """Releases a session; returns whether it existed."""
        request = pb.ReleaseSessionRequest(session_id=session_id)
        released: bool = self.stub.ReleaseSession(request, metadata=self.metadata, timeout=HANGS_AFTER).released
        return released


class Sent:
    """The requests of a DecodeStream, sent one by one until end()."""

    def __init__(self) -> None:
        self._queue: queue.Queue[pb.DecodeStreamRequest | None] = queue.Queue()

    def send(self, request: pb.DecodeStreamRequest) -> None:
        """Sends the next request."""
        self._queue.put(request)

    def end(self) -> None:
        """Ends the requests."""
        self._queue.put(None)

    def __iter__(self) -> Iterator[pb.DecodeStreamRequest]:
        return iter(self._queue.get, None)


def calls_at_rest(served: Served) -> Iterator[SessionCalls]:
    """Yields the calls of a test. Then closes its sessions and waits until the server is idle."""
    yield SessionCalls(served)
    served.call(lambda: [served.state.sessions.close(held) for held in list(served.state.sessions.held())])
    served.wait_for_rest()


def prefill(prompt: str | Sequence[int], session_id: str = "", **fields: Any) -> pb.PrefillRequest:
    """Returns a request. It is greedy if it opens a session that the server names, or one at position 0."""
    opens = not session_id or fields.get("position") == 0
    request = pb.PrefillRequest(session_id=session_id, **({"sampling": GREEDY} if opens else {}) | fields)
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.ids.extend(prompt)
    return request


def seconds(value: float) -> Duration:
    """Returns seconds as a Duration."""
    duration = Duration()
    duration.FromNanoseconds(round(value * 1e9))
    return duration


def refusal(call: Callable[[], object]) -> Details:
    """Returns the status of a failed call; fails the test if the call succeeds."""
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return details_of(raised.value)


def details_of(error: Any) -> Details:
    """Returns the details of a failed call's status."""
    details = read_details(error.trailing_metadata() or ())
    assert details.reason, error
    return details


def reason(call: Callable[[], object]) -> str:
    """Returns the reason of a failed call."""
    return refusal(call).reason
