"""One generation as an iterator of replies. Leaving it early cancels it; its blocks are free within one step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from imp_service.core import EngineClient, Event, FailedEvent, FinishedEvent, StartedEvent, TokenEvent, make_error
from imp_service.generation.fold import AllowNext, GenerationFold
from imp_service.generation.replies import Chunk, Reply

Clock = Callable[[], float]


class Generation(Iterator[Reply]):
    """Yields Started, Chunks and one Finished per sequence. For one thread."""

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
        self._n_delivered = 0
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
        if getattr(self, "_is_open", False):
            self.close()

    def close(self) -> None:
        """Cancels what still runs. Replies not yet taken are dropped."""
        self._replies.clear()
        if self._is_open:
            if not self._client.is_closed:
                self._cancel()
            self._forget()

    def _or_cancel(self, act: Callable[[], None]) -> None:
        """Whatever goes wrong on this side, the engine is not left waiting for it."""
        try:
            act()
        except BaseException:
            self.close()
            raise

    def _cancel(self) -> None:
        """A session keeps just what was delivered, so its run's end is waited for."""
        if self._session_holds is None:
            self._end_all("cancelled")
            return
        self._client.engine.end(self._ticket, self._sequences[0], "cancelled", n_outputs=self._n_delivered)
        ends: list[Event] = []

        def ended() -> bool:
            ends.extend(event for event in self._events if isinstance(event, FinishedEvent | FailedEvent))
            self._events.clear()
            return bool(ends)

        self._client.wait(ended)
        if isinstance(ends[-1], FinishedEvent):
            self._session_holds(ends[-1].position)

    def _advance(self) -> None:
        """Waits for events and folds them."""
        remaining = None if self._deadline is None else max(0.0, self._deadline - self._clock())
        if not self._client.wait(lambda: bool(self._events), remaining):
            self._deadline = None
            self._end_all("time_limit")
            return
        while self._events:
            event = self._events.popleft()
            if isinstance(event, FailedEvent):
                self._end_all("cancelled")
                self._forget()
                raise make_error(event.reason, event.message, event.details)
            assert isinstance(event, StartedEvent | TokenEvent | FinishedEvent)
            self._fold.feed(event)
            if isinstance(event, FinishedEvent) and self._session_holds is not None:
                self._session_holds(event.position)
        self._submit_commands()
        self._replies.extend(self._fold.take_replies())
        if self._fold.is_done:
            self._forget()

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

    def _end_all(self, reason: str) -> None:
        for sequence in self._sequences:
            self._client.engine.end(self._ticket, sequence, reason)

    def _forget(self) -> None:
        self._is_open = False
        self._client.forget(self._ticket)
