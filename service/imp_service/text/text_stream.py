"""Converts one sequence's tokens to text as they are sampled.

Each piece is valid UTF-8 and contains no part of a stop string.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from imp_service.text.stop_matcher import StopMatcher, StopStrings
from imp_service.text.tokens.detokenizer import Detokenizer, TokenTable

_UTF8_DECODER = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class StopRules:
    """The fields of `StopOptions` about text."""

    strings: StopStrings
    # Strings that an earlier output completes are ignored.
    min_tokens: int = 0
    # The matched string stays in the text.
    include_match: bool = False


NO_STOP = StopRules(StopStrings(()))


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The text that one token adds."""

    text: str
    # The stop string that the token completed: the text ends here, and the token is the sequence's last.
    match: str | None = None


@dataclass(frozen=True, slots=True)
class StreamMark:
    """A saved state of a stream, for `rewind`."""

    n_outputs: int
    detokenizer: tuple[int, bool]
    matcher: tuple[int, int]
    held: bytes
    unfinished: tuple[bytes, int]

    @property
    def is_settled(self) -> bool:
        """Nothing is held back. Without stop strings, the text of later tokens is the same after every such state."""
        begun, strips_next = self.detokenizer
        return begun > 0 and not strips_next and not self.held and not self.unfinished[0]


class TextStream:
    """Follows one sequence's outputs. Not for use by two threads at once.

    Bytes pass two places where they may wait: those that may begin a stop string, then those of an unfinished
    character. Matching is on bytes, so a stop string never begins or ends inside a character, and one that holds
    U+FFFD matches only where the model wrote that character.
    """

    def __init__(self, table: TokenTable, stop: StopRules = NO_STOP, *, special_tokens: bool = False) -> None:
        self._stop = stop
        self._detokenizer = Detokenizer(table, special_tokens=special_tokens)
        self._matcher = StopMatcher(stop.strings)
        self._decoder = _UTF8_DECODER("replace")
        self._held = b""
        self._n_outputs = 0
        self._has_ended = False

    @property
    def n_outputs(self) -> int:
        """Tokens fed so far."""
        return self._n_outputs

    def feed(self, token_id: int) -> TextDelta:
        """Takes the next output. Not to be called after a match or after `finish`."""
        if self._has_ended:
            raise RuntimeError("the stream has ended")
        self._n_outputs += 1
        return self.add(self._detokenizer.feed(token_id), self._n_outputs)

    def add(self, data: bytes, n_outputs: int) -> TextDelta:
        """Adds text that does not come from feed(). It belongs to the output with this number, counted from 1."""
        if not self._stop.strings.strings:
            return TextDelta(self._decoder.decode(data))
        n_before = self._matcher.n_bytes
        match = self._matcher.feed(data, may_end=n_outputs >= self._stop.min_tokens)
        waiting = self._held + data
        if match is None:
            cut = len(waiting) - self._matcher.n_held
            self._held = waiting[cut:]
            return TextDelta(self._decoder.decode(waiting[:cut]))
        self._has_ended = True
        end = match.end if self._stop.include_match else match.start
        kept = waiting[: end - (n_before - len(self._held))]
        self._held = b""
        return TextDelta(self._decoder.decode(kept, True), self._stop.strings.strings[match.index])

    @property
    def has_stop_strings(self) -> bool:
        """Whether a token can complete a stop string."""
        return bool(self._stop.strings.strings)

    def feed_all(self, token_ids: Sequence[int]) -> str:
        """Returns the text that these outputs add together. Not for a stream with stop strings."""
        self._n_outputs += len(token_ids)
        detokenizer = self._detokenizer
        if len(token_ids) == 1:
            return self._decoder.decode(detokenizer.feed(token_ids[0]))
        return self._decoder.decode(b"".join([detokenizer.feed(token_id) for token_id in token_ids]))

    def finish(self) -> str:
        """The text that was held back. Call it after the last token. An unfinished character becomes U+FFFD."""
        if self._has_ended:
            return ""
        self._has_ended = True
        held, self._held = self._held, b""
        return self._decoder.decode(held, True)

    def cut(self) -> str:
        """The text that was held back before something that is not text. Text after it does not continue it."""
        held, self._held = self._held, b""
        self._matcher = StopMatcher(self._stop.strings)
        return self._decoder.decode(held, True)

    def mark(self) -> StreamMark:
        """The current state."""
        return StreamMark(
            self._n_outputs, self._detokenizer.mark(), self._matcher.mark(), self._held, self._decoder.getstate()
        )

    def rewind(self, mark: StreamMark) -> None:
        """Forgets the tokens fed since `mark`, including text held back: they were truncated or replaced."""
        self._n_outputs = mark.n_outputs
        self._detokenizer.rewind(mark.detokenizer)
        self._matcher.rewind(mark.matcher)
        self._held = mark.held
        self._decoder.setstate(mark.unfinished)
        self._has_ended = False
