"""The running requests, with tenant and id. An operator can list and abort them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

from imp_service.api.resume import Origin
from imp_service.serving.errors.error_table import CANCELLED
from imp_service.serving.refusal import Refusal


class EngineStream(Protocol):
    """What a request has in the engine, and what of it waits for the caller."""

    @property
    def has_started(self) -> bool: ...
    @property
    def is_waiting(self) -> bool: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def n_output_tokens(self) -> int: ...
    @property
    def n_unread_messages(self) -> int: ...
    def end(self, reason: str) -> None: ...


@dataclass(slots=True, eq=False)
class RunningRequest:
    """A generation, or a call of several inputs, from its admission to its end."""

    request_id: str
    tenant: str
    peer: str
    admitted_at: float  # by the wall clock
    # Ends its call with an error.
    end: Callable[[Exception], None]
    n_prompt_tokens: int = 0
    # None while the prompt is tokenized.
    stream: EngineStream | None = None
    is_aborted: bool = False
    # By which its caller resumes it. Unlike the id, no other request has it. Empty: nobody can.
    resumed_by: str = ""
    # Of its stream. None: it has none, or it is not planned yet.
    origin: Origin | None = None

    @property
    def has_started(self) -> bool:
        """Its prompt is evaluated. Until then it waits."""
        return self.stream is not None and self.stream.has_started

    @property
    def is_waiting(self) -> bool:
        """It waits for the engine: it is not paused, and its caller reads."""
        return self.stream is not None and self.stream.is_waiting

    @property
    def is_open(self) -> bool:
        """The engine has not ended it. Its caller may still read output after that."""
        return self.stream is None or self.stream.is_open

    @property
    def n_output_tokens(self) -> int:
        """The number of tokens that its caller has received or will receive."""
        return 0 if self.stream is None else self.stream.n_output_tokens

    @property
    def n_unread_messages(self) -> int:
        """Messages that wait for its caller."""
        return 0 if self.stream is None else self.stream.n_unread_messages

    def run(self, stream: EngineStream, n_prompt_tokens: int) -> None:
        """It was submitted. An abort that came before takes effect now."""
        self.stream, self.n_prompt_tokens = stream, n_prompt_tokens
        if self.is_aborted:
            stream.end("aborted")

    def abort(self) -> None:
        """Ends it with FINISH_REASON_ABORTED."""
        self.is_aborted = True
        if self.stream is not None:
            self.stream.end("aborted")


class RunningRequests:
    """On the event loop's thread."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        # In order of admission.
        self._running: dict[RunningRequest, None] = {}
        # By tenant and id.
        self._uses: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[RunningRequest]:
        """In order of admission."""
        return iter(list(self._running))

    def take_over(self, resumed: RunningRequest) -> None:
        """Ends the calls of earlier requests that this one of their tenant resumes: their caller goes on with it.

        A request with the same id and another origin is of another stream.
        """
        for request in takewhile(lambda each: each is not resumed, self):
            is_same = (request.tenant, request.resumed_by) == (resumed.tenant, resumed.resumed_by)
            if is_same and request.resumed_by and request.origin == resumed.origin:
                request.end(Refusal(CANCELLED, "the request goes on in another call"))

    @contextmanager
    def register(
        self, request_id: str, tenant: str, peer: str, end: Callable[[Exception], None], *, shares_id: bool = False
    ) -> Iterator[RunningRequest]:
        """Registers a request within the `with` block. `end` ends its call with an error.

        Raises REQUEST_ID_IN_USE if another request of the tenant has the id, unless the request may share it.
        """
        name = (tenant, request_id)
        if self._uses[name] and not shares_id:
            message = f"another request with the id {request_id} is running"
            raise Refusal("REQUEST_ID_IN_USE", message, {"request_id": request_id})
        request = RunningRequest(request_id, tenant, peer, self._wall(), end)
        self._running[request] = None
        self._uses[name] += 1
        try:
            yield request
        finally:
            del self._running[request]
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name]

    def abort(self, request_ids: Collection[str], tenant: str | None = None) -> list[str]:
        """Ends the running and waiting requests with these ids, of every tenant or of one.

        Returns the ids of those it ended.
        """
        named = (request for request in self if request.request_id in request_ids)
        return self._abort(request for request in named if tenant is None or request.tenant == tenant)

    def abort_all(self) -> list[str]:
        """Ends every running and waiting request. Returns their ids."""
        return self._abort(iter(self))

    def _abort(self, requests: Iterator[RunningRequest]) -> list[str]:
        aborted = [request for request in requests if request.is_open and not request.is_aborted]
        for request in aborted:
            request.abort()
        return [request.request_id for request in aborted]
