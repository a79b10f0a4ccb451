"""Checks the order of a Generate stream, so that a client notices a lost message."""

from ..pb.inference_pb2 import GenerateResponse

# Matches that are single tokens.
STOP_TOKENS = ("token_id", "eos_token_id")


class StreamBroken(Exception):
    """A stream that violates imp.v1: a message was lost, or the server has a bug."""

    def __init__(self, message: str) -> None:
        self.reason = "STREAM_BROKEN"
        self.message = message
        super().__init__(message)


class StreamOrder:
    """Checks one stream: `started` first, chunks without a gap, one `finished` for each sequence."""

    def __init__(self, n_sequences: int = 1, *, keeps_match: bool = False) -> None:
        self._keeps_match = keeps_match
        # Received stop tokens, which the usage does not count.
        self._n_kept = 0
        self._has_started = False
        self._n_tokens = [0] * n_sequences
        self._is_open = [True] * n_sequences
        self._n_used: int | None = None

    def check(self, response: GenerateResponse) -> None:
        """Checks the next message."""
        kind = response.WhichOneof("event")
        if kind is None:  # a message of a later revision
            return
        if (kind == "started") == self._has_started:
            raise StreamBroken(f"{kind} {'again' if self._has_started else 'before started'}")
        if kind == "started":
            self._has_started = True
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
        if response.chunk.first_token != self._n_tokens[index]:
            raise StreamBroken(f"token {self._n_tokens[index]} expected next, token {response.chunk.first_token} came")
        self._n_tokens[index] += len(response.chunk.token_ids)

    def end(self) -> None:
        """Checks a stream that ended with status OK."""
        unfinished = [index for index, is_open in enumerate(self._is_open) if is_open]
        if unfinished:
            raise StreamBroken(f"the stream ended before sequence {unfinished[0]} did")
        # A loss at the end leaves no gap, but the usage counts the lost tokens.
        if self._n_used is not None and self._n_used + self._n_kept != sum(self._n_tokens):
            raise StreamBroken(f"{self._n_used + self._n_kept} tokens were sent, {sum(self._n_tokens)} came")

    def _state(self, index: int) -> str:
        return "had finished" if index < len(self._is_open) else "was not asked for"
