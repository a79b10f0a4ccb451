"""One sequence of a generation: keeps the sampled tokens until the caller takes them in chunks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from imp_service.api.options import OutputOptions
from imp_service.api.replies import Candidate, Chunk
from imp_service.core import CoreCandidate, FinishedEvent, TokenEvent
from imp_service.text import TextStream

if TYPE_CHECKING:
    from imp_service.api.tool_calls import ToolCallDelta
    from imp_service.text import ConstraintState


# Bytes of an entry of each list.
ID_BYTES, LOGPROB_BYTES, COUNT_BYTES = 4, 8, 4
# Bytes of the text of one token, as an object.
FRAGMENT_BYTES = 72
# Bytes of what one token adds to the channels of parsed output.
PARSED_BYTES = 320


def unread_token_bytes(output: OutputOptions, *, seeks_stop: bool) -> int:
    """Bytes that a token takes in memory until it is read."""
    n_bytes = ID_BYTES + (LOGPROB_BYTES if output.logprobs else 0)
    if output.top_logprobs:
        n_bytes += COUNT_BYTES + output.top_logprobs * (ID_BYTES + LOGPROB_BYTES)
    if seeks_stop and output.text:
        n_bytes += PARSED_BYTES if output.parse else FRAGMENT_BYTES
    return n_bytes


class Rest(NamedTuple):
    """The text of each channel that was held back until the last token."""

    text: str
    reasoning: str = ""
    tool_calls: Sequence[ToolCallDelta] = ()


class HeldCandidates:
    """The candidates of unread tokens as arrays of numbers. Objects take ten times as much memory."""

    __slots__ = ("_counts", "_ids", "_logprobs")

    def __init__(self) -> None:
        self._counts = array("i")
        self._ids = array("i")
        self._logprobs = array("d")

    def append(self, items: Sequence[CoreCandidate]) -> None:
        """Keeps the candidates of the next token."""
        self._counts.append(len(items))
        for item in items:
            self._ids.append(item.token)
            self._logprobs.append(item.logprob)

    def take(self, n_tokens: int) -> list[list[Candidate]]:
        """Removes and returns the candidates of the oldest tokens."""
        taken: list[list[Candidate]] = []
        begin = 0
        for count in self._counts[:n_tokens]:
            end = begin + count
            taken.append(
                [Candidate(*each) for each in zip(self._ids[begin:end], self._logprobs[begin:end], strict=True)]
            )
            begin = end
        del self._counts[:n_tokens], self._ids[:begin], self._logprobs[:begin]
        return taken


class OutputStream:
    """Collects the tokens of a stream. Every token passes here, so it does only what the options need.

    It decodes text when a chunk is taken, all tokens of the chunk at once; each token, if its text can end the output.
    """

    __slots__ = (
        "_candidates",
        "_fragments",
        "_logprobs",
        "_n_candidates",
        "_n_kept",
        "_sends_logprobs",
        "_sends_text",
        "constraint",
        "finished",
        "index",
        "is_complete",
        "is_delivered",
        "is_settled",
        "is_stopped",
        "match",
        "n_delivered",
        "seeks_stop",
        "text",
        "token_ids",
        "unaccepted",
    )

    def __init__(
        self, index: int, output: OutputOptions, text: TextStream | None, constraint: ConstraintState | None
    ) -> None:
        self.index = index
        self.text = text
        self.constraint = constraint
        self._sends_text = output.text and text is not None
        self._sends_logprobs = output.logprobs
        self._n_candidates = output.top_logprobs
        # Whether the text of a token can stop it.
        self.seeks_stop = text is not None and text.has_stop_strings
        self.n_delivered = 0
        # 1 if the tokens for the caller contain the stop token, which is no output.
        self._n_kept = 0
        # Parallel arrays about the tokens that the caller has not read yet. A slow reader may leave many.
        self.token_ids = array("i")
        self._logprobs = array("d")
        self._candidates = HeldCandidates()
        self._fragments: list[str] = []
        # Its text has ended it. `match` is the stop string, if one did.
        self.is_stopped = False
        self.match: str | None = None
        # The constraint allows only the end.
        self.is_complete = False
        # Outputs that the constraint has not taken yet.
        self.unaccepted: list[int] = []
        self.finished: FinishedEvent | None = None
        # Whether a stop token that the caller requested was added.
        self.is_settled = False
        self.is_delivered = False

    def add(self, event: TokenEvent) -> None:
        """Keeps an output until the caller takes it. Sets `is_stopped` if its text ends the output."""
        token = event.token
        self.token_ids.append(token)
        if self._sends_logprobs:
            self._logprobs.append(event.logprob)
        if self._n_candidates:
            self._candidates.append(event.candidates)
        if self.seeks_stop:
            self._seek_stop(token)

    def add_again(self, tokens: Sequence[int]) -> int:
        """Keeps outputs that the caller has already, without their scores. Returns how many: the text of one of them
        may have ended the output.
        """
        for n, token in enumerate(tokens, 1):
            self.token_ids.append(token)
            if self.seeks_stop:
                self._seek_stop(token)
                if self.is_stopped:
                    return n
        return len(tokens)

    def add_stop_token(self, token: int, logprob: float, candidates: Sequence[CoreCandidate]) -> None:
        """Keeps a stop token that the caller wants to see."""
        self._n_kept = 1
        self.token_ids.append(token)
        if self._sends_logprobs:
            self._logprobs.append(logprob)
        if self._n_candidates:
            self._candidates.append(candidates)
        if self.seeks_stop:
            self._seek_stop(token)
            self.match, self.is_stopped = None, False

    @property
    def n_outputs(self) -> int:
        """Outputs that the caller has or can take. A stop token is no output."""
        return self.n_delivered + len(self.token_ids) - self._n_kept

    @property
    def n_reasoning_tokens(self) -> int:
        """Outputs that are reasoning, as far as they were parsed."""
        return 0

    def take(self, max_tokens: int | None) -> Chunk:
        """Removes and returns the oldest tokens, at most so many, with their text. There must be one token."""
        n = len(self.token_ids)
        first = self.n_delivered
        if max_tokens is None or n <= max_tokens:
            ids, self.token_ids = self.token_ids.tolist(), array("i")
            logprobs, self._logprobs = self._logprobs.tolist(), array("d")
        else:
            n = max_tokens
            ids = self.token_ids[:n].tolist()
            del self.token_ids[:n]
            logprobs = self._logprobs[:n].tolist()
            del self._logprobs[:n]
        self.n_delivered = first + n
        return Chunk(self.index, first, ids, self._text_of(ids), logprobs, self._candidates.take(n))

    def rest(self, *, is_cut: bool) -> Rest:
        """Returns the text that was held back until the last token. `is_cut`: a limit ended the output."""
        return Rest(self.text.finish() if self.text is not None and self._sends_text else "")

    def _seek_stop(self, token: int) -> None:
        assert self.text is not None  # narrows
        delta = self.text.feed(token)
        if self._sends_text:
            self._fragments.append(delta.text)
        self.match, self.is_stopped = delta.match, delta.match is not None

    def _text_of(self, ids: list[int]) -> str:
        if not self._sends_text:
            return ""
        if self.seeks_stop:
            n = len(ids)
            fragments, self._fragments = self._fragments[:n], self._fragments[n:]
            return "".join(fragments)
        assert self.text is not None  # narrows
        return self.text.feed_all(ids)
