"""One generation as an iterator of replies. Leaving it early cancels it; its blocks are free within one step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from imp_service.core import (
    EngineClient,
    Error,
    Event,
    FailedEvent,
    FinishedEvent,
    StartedEvent,
    TokenEvent,
    make_error,
)
from imp_service.generation.fold import AllowNext, GenerationFold
from imp_service.generation.replies import Chunk, Reply

Clock = Callable[[], float]


class Generation(Iterator[Reply]):
    """Yields Started, Chunks and one Finished per sequence. For one thread.

    On a session it keeps the session to what was delivered, whenever it is left.
    """

    def __init__(
        self,
        client: EngineClient,
        fold: GenerationFold,
        sequences: list[int],
        start: Callable[[int], None],
        *,
        time_limit: float | None,
        clock: Clock,
        session_holds: Callable[[int], None] | None = None,
    ) -> None:
        """`start(ticket)` submits the run of `sequences`; a session is told how many tokens it holds at the end."""
        self._client = client
        self._fold = fold
        self._sequences = sequences
        self._events: deque[Event] = deque()
        self._replies: deque[Reply] = deque()
        self._clock = clock
        self._deadline = None if time_limit is None else clock() + time_limit
        self._session_holds = session_holds
        # Tokens that the session held when each output was drawn.
        self._positions: list[int] = []
        self._n_delivered = 0
        self._failure: Error | None = None
        self._is_open = True
        self._ticket = client.expect(self._events.append)
        try:
            start(self._ticket)
        except BaseException:
            self._forget()
            raise
        self._or_cancel(self._submit_commands)

    def __next__(self) -> Reply:
        while not self._replies:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if not self._is_open:
                raise StopIteration
            self._or_cancel(self._advance)
        reply = self._replies.popleft()
        if isinstance(reply, Chunk):
            self._n_delivered += len(reply.token_ids)
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        # It may run inside any call of this thread, so it must not wait.
        if hasattr(self, "_failure") and not self._client.is_closed:
            self._leave()

    def close(self) -> None:
        """Cancels what still runs. Replies not yet taken are dropped."""
        if self._client.is_closed:
            self._replies.clear()
            self._forget()
        elif self._is_open and self._session_holds is not None and not self._positions:
            # Whether the session's pending token was evaluated by now is for the engine to say.
            self._end_all("cancelled", n_outputs=0)
            self._wait_for_end(self._session_holds)
            self._forget()
        else:
            self._leave()

    def _leave(self) -> None:
        """Ends the run where its reader is, without waiting: the engine takes commands in order."""
        dropped = any(isinstance(reply, Chunk) for reply in self._replies)
        self._replies.clear()
        if self._is_open or (dropped and self._session_holds is not None):
            session = self._session_holds is not None
            self._end_all("cancelled", n_outputs=self._n_delivered if session else None)
            self._tell_session(self._n_delivered)
        self._forget()

    def _tell_session(self, n_kept: int) -> None:
        if self._session_holds is not None and self._positions:
            self._session_holds(self._positions[max(n_kept - 1, 0)])

    def _wait_for_end(self, session_holds: Callable[[int], None]) -> None:
        """Until the run has ended with no output that counts, whatever it had drawn by then."""
        ends: list[Event] = []

        def ended() -> bool:
            while self._events:
                event = self._events.popleft()
                if isinstance(event, TokenEvent):
                    self._positions.append(event.position)
                elif isinstance(event, FinishedEvent | FailedEvent):
                    ends.append(event)
            return bool(ends)

        self._client.wait(ended)
        if self._positions:
            self._tell_session(0)
        elif isinstance(ends[-1], FinishedEvent):
            session_holds(ends[-1].position)

    def _or_cancel(self, act: Callable[[], None]) -> None:
        """Whatever goes wrong on this side, the engine is not left waiting for it."""
        try:
            act()
        except BaseException:
            if self._is_open and not self._client.is_closed:
                self._leave()
            self._forget()
            raise

    def _advance(self) -> None:
        """Waits for events and folds them."""
        remaining = None if self._deadline is None else max(0.0, self._deadline - self._clock())
        self._client.wait(lambda: bool(self._events), remaining)
        if self._deadline is not None and self._clock() >= self._deadline:
            self._deadline = None
            self._end_all("time_limit")
        while self._events:
            self._fold_event(self._events.popleft())
        self._submit_commands()
        self._replies.extend(self._fold.take_replies())
        if self._fold.is_done or self._failure is not None:
            self._forget()

    def _fold_event(self, event: Event) -> None:
        if isinstance(event, FailedEvent):
            # What was drawn before is delivered first; siblings go with it.
            self._failure = make_error(event.reason, event.message, event.details)
            self._end_all("cancelled")
            self._tell_session(len(self._positions))
            return
        assert isinstance(event, StartedEvent | TokenEvent | FinishedEvent)
        self._fold.feed(event)
        if isinstance(event, TokenEvent) and self._session_holds is not None:
            self._positions.append(event.position)
        elif isinstance(event, FinishedEvent) and self._session_holds is not None:
            self._session_holds(event.position)

    def _submit_commands(self) -> None:
        engine = self._client.engine
        for command in self._fold.take_commands():
            sequence = self._sequences[command.stream]
            if isinstance(command, AllowNext):
                allowed = command.allowed
                if allowed is not None and not any(allowed):
                    raise make_error("NO_CANDIDATE", f"constraint: no token can be output {command.output}")
                engine.mask(self._ticket, sequence, command.output, allowed or b"", end=allowed is None)
            else:
                engine.end(self._ticket, sequence, "stop", n_outputs=command.output + 1)
                self._tell_session(command.output + 1)

    def _end_all(self, reason: str, n_outputs: int | None = None) -> None:
        for sequence in self._sequences:
            self._client.engine.end(self._ticket, sequence, reason, n_outputs=n_outputs)

    def _forget(self) -> None:
        self._is_open = False
        self._client.forget(self._ticket)
