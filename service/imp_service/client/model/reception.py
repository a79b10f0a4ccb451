"""The received part of one generation. It uses no thread and no connection."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ...api.errors import invalid, left_early
from ...api.options import GenerationRequest
from ...api.replies import Chunk, Finished, GenerationResult, Reply, Started, Timings, Usage, results_of
from ...pb.inference_pb2 import GenerateResponse
from ..messages.read_replies import read_reply


class Reception:
    """Keeps the replies for the result."""

    def __init__(self, request: GenerationRequest) -> None:
        self._n_sequences = request.num_sequences
        # What came, in order.
        self.replies: list[Reply] = []
        self._asked_at = time.monotonic()
        self._started_at = 0.0
        # The caller has ended it, and still reads.
        self.is_cancelled = False
        # Nobody reads it any more.
        self.is_left = False
        # The end has come.
        self.is_whole = False
        # How often the stream broke and went on.
        self.n_resumed = 0
        # Tokens that the continued session holds in the end.
        self.position: int | None = None

    def take(self, message: GenerateResponse) -> Reply | None:
        """The reply of the next message; None for a kind of a later revision."""
        reply = read_reply(message)
        if reply is not None:
            self.replies.append(reply)
        if message.finished.HasField("position"):
            self.position = message.finished.position
        if isinstance(reply, Started):
            self._started_at = time.monotonic()
        return reply

    @property
    def started(self) -> Started | None:
        """The first reply."""
        first = self.replies[0] if self.replies else None
        return first if isinstance(first, Started) else None

    @property
    def n_tokens(self) -> int:
        """Tokens that came, over all sequences."""
        return sum(len(each.token_ids) for each in self.replies if isinstance(each, Chunk))

    @property
    def token_ids(self) -> list[int]:
        """The tokens that came, of one sequence."""
        return [token for each in self.replies if isinstance(each, Chunk) for token in each.token_ids]

    @property
    def n_prompt_tokens(self) -> int:
        """The number of prompt tokens; for a session 1 if it had a pending token, else 0."""
        return 0 if self.started is None else self.started.prompt_tokens

    @property
    def last_token(self) -> int | None:
        """The last token that came, unless it ended the sequence."""
        last = self.replies[-1] if self.replies else None
        if isinstance(last, Finished) and last.match is not None:
            return None
        chunks = (each for each in reversed(self.replies) if isinstance(each, Chunk))
        return next((each.token_ids[-1] for each in chunks), None)

    def cancelled(self) -> Iterator[Reply]:
        """How a generation ends that its caller has cancelled: each open sequence with the reason `cancelled`.

        The server sends no more. Usage is of what came, and the times are those of this process. Raises CANCELLED if
        nothing came.
        """
        started = self.started
        if started is None:
            raise left_early()
        ended = {each.index for each in self.replies if isinstance(each, Finished)}
        left = [index for index in range(self._n_sequences) if index not in ended]
        for index in left:
            is_last = index == left[-1]
            usage = Usage(started.prompt_tokens, started.cached_prompt_tokens, self.n_tokens)
            waited, ran = self._started_at - self._asked_at, time.monotonic() - self._started_at
            reply = Finished(
                index,
                "cancelled",
                None,
                "",
                usage if is_last else None,
                Timings(queue=0.0, prefill=waited, decode=ran) if is_last else None,
            )
            self.replies.append(reply)
            yield reply

    def results(self) -> list[GenerationResult]:
        """The output of each sequence. Raises CANCELLED if the end has not come."""
        return results_of(self.replies, self.n_resumed)

    def result(self) -> GenerationResult:
        """The output of the only sequence."""
        results = self.results()
        if len(results) != 1:
            raise invalid("num_sequences", f"{len(results)}, expected 1: results() returns all")
        return results[0]
