"""One generation of a server for its reader: an iterator of replies. Leaving it early cancels the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from ...api.replies import GenerationResult, Reply, progress_text
from ..failure import CallFailure
from ..joined_replies import JoinedReplies
from ..messages.errors import translating_call_failures
from ..stream_order import StreamBroken
from .reception import Reception


class Generation(Iterator[Reply]):
    """The replies of a generation: `Started`, `Chunk`s, and one `Finished` for each sequence. For one thread.

    If the server goes away, the generation goes on where it was, with the same tokens, when it is back or elsewhere.

    The call begins at once; the first read raises what the server refuses. Close it, or use it in a `with` block, to
    end it early: the server frees its memory within one step.
    """

    def __init__(self, begin: Callable[[], JoinedReplies], reception: Reception) -> None:
        with translating_call_failures():
            self._messages = begin()
        self._reception = reception
        self._replies = _read(self._messages, reception)

    @translating_call_failures()
    def __next__(self) -> Reply:
        return next(self._replies)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_replies"):
            self.close()

    def __repr__(self) -> str:
        reception = self._reception
        return f"<Generation: {progress_text(reception.replies, is_open=not reception.is_left)}>"

    @property
    def is_open(self) -> bool:
        """Whether more may come of the server."""
        return not (self._reception.is_left or self._reception.is_whole)

    def result(self) -> GenerationResult:
        """Waits for the end and returns the whole output, with what was read before."""
        for _ in self:
            pass
        return self._reception.result()

    def results(self) -> list[GenerationResult]:
        """Waits for the end and returns the output of each sequence."""
        for _ in self:
            pass
        return self._reception.results()

    def cancel(self) -> None:
        """Ends the generation, from any thread.

        Its reader gets the output so far, and a `Finished` with the reason `cancelled`.
        """
        self._reception.is_cancelled = True
        self._messages.cancel()

    def close(self) -> None:
        """Cancels what still runs. Replies not yet read are dropped."""
        self._reception.is_left = True
        self._messages.cancel()
        self._replies = iter(())


def _read(messages: JoinedReplies, reception: Reception) -> Iterator[Reply]:
    """The replies. It does not know its `Generation`, so that one that is dropped is freed at once."""
    try:
        for message in messages:
            reception.n_resumed = messages.n_resumed
            reply = reception.take(message)
            if reply is not None:
                yield reply
        reception.is_whole = True
    except StreamBroken:
        reception.is_left = True
        raise
    except CallFailure as failure:
        reception.is_left = True
        if not (reception.is_cancelled and failure.code == "CANCELLED"):
            raise
        yield from reception.cancelled()
