"""Checks the order of a Generate stream, so that a client notices a lost message."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..pb.inference_pb2 import GenerateRequest, GenerateResponse, ResumedSequence

# Matches that are single tokens.
STOP_TOKENS = ("token_id", "eos_token_id")


class StreamBroken(Exception):
    """A stream that violates imp.v1: a message was lost, or the server has a bug."""

    def __init__(self, message: str) -> None:
        self.reason = "STREAM_BROKEN"
        self.message = message
        super().__init__(message)


class StreamOrder:
    """Checks one stream: `started` first, chunks without a gap, one `finished` for each sequence.

    `told` is what the caller has of each sequence already: a resumed stream begins behind it.
    """

    def __init__(
        self,
        n_sequences: int = 1,
        *,
        keeps_match: bool = False,
        most_tokens: float = math.inf,
        told: Sequence[ResumedSequence] = (),
    ) -> None:
        self._keeps_match = keeps_match
        self._most_tokens = most_tokens
        # Received stop tokens, which the usage does not count.
        self._n_kept = 0
        self._has_started = False
        self._n_tokens = [len(each.token_ids) for each in told] or [0] * n_sequences
        self._is_open = [not each.finished for each in told] or [True] * n_sequences
        # How a told sequence ended is not known, and so not whether its last token is one that the usage counts.
        self._compares_usage = not (keeps_match and any(each.finished for each in told))
        self._n_used: int | None = None

    @classmethod
    def of(cls, request: GenerateRequest) -> StreamOrder:
        """Of the answer to this request."""
        keeps_match = request.stop.include_match
        return cls(
            max(1, request.num_sequences),
            keeps_match=keeps_match,
            most_tokens=request.stop.max_tokens + keeps_match if request.stop.HasField("max_tokens") else math.inf,
            told=request.resume.sequences,
        )

    @property
    def n_sequences(self) -> int:
        """How many sequences were asked for."""
        return len(self._is_open)

    @property
    def is_whole(self) -> bool:
        """Every sequence has ended."""
        return not any(self._is_open)

    def is_open(self, index: int) -> bool:
        """Whether more of a sequence may come."""
        return self._is_open[index]

    def begin_again(self) -> None:
        """Another call goes on behind what came."""
        self._has_started = False

    def check(self, response: GenerateResponse) -> None:
        """Checks the next message."""
        kind = response.WhichOneof("event")
        if kind is None:  # a message of a later revision
            return
        if (kind == "started") == self._has_started:
            raise StreamBroken(f"{kind} {'again' if self._has_started else 'before started'}")
        if kind == "started":
            self._has_started = True
            n_told, n_resumed = sum(self._n_tokens), response.started.resumed_tokens
            require(n_resumed == n_told, f"a stream began behind {n_resumed} tokens, {n_told} had come")
            return
        index = response.chunk.index if kind == "chunk" else response.finished.index
        if index >= len(self._is_open) or not self._is_open[index]:
            raise StreamBroken(f"{kind} of sequence {index}, which {self._state(index)}")
        if kind == "finished":
            self._is_open[index] = False
            self._n_kept += self._keeps_match and response.finished.match.WhichOneof("match") in STOP_TOKENS
            if response.finished.HasField("usage"):
                self._n_used = response.finished.usage.output_tokens
            return
        first, n_before = response.chunk.first_token, self._n_tokens[index]
        require(first == n_before, f"token {n_before} expected next, token {first} came")
        self._n_tokens[index] += len(response.chunk.token_ids)
        require(self._n_tokens[index] <= self._most_tokens, f"{self._n_tokens[index]} tokens came, more than asked for")

    def end(self) -> None:
        """Checks a stream that ended with status OK."""
        unfinished = [index for index, is_open in enumerate(self._is_open) if is_open]
        if unfinished:
            raise StreamBroken(f"the stream ended before sequence {unfinished[0]} did")
        # A loss at the end leaves no gap, but the usage counts the lost tokens.
        if self._compares_usage and self._n_used is not None and self._n_used + self._n_kept != sum(self._n_tokens):
            raise StreamBroken(f"{self._n_used + self._n_kept} tokens were sent, {sum(self._n_tokens)} came")

    def _state(self, index: int) -> str:
        return "had finished" if index < len(self._is_open) else "was not asked for"


def require(is_right: bool, message: str) -> None:
    """Raises StreamBroken if it is not."""
    if not is_right:
        raise StreamBroken(message)
