"""Converts one output's tokens to channels as they are sampled: content (up to a stop string), reasoning and calls."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from imp_service.api.tool_calls import ToolCallDelta, joined_calls
from imp_service.text.channels.calls import CallIds, CallWriter
from imp_service.text.channels.dialect import Dialect
from imp_service.text.channels.pieces import Piece, PieceKind
from imp_service.text.channels.splitter import ChannelSplitter
from imp_service.text.channels.tools import Tool
from imp_service.text.text_stream import NO_STOP, StopRules, TextStream
from imp_service.text.tokens.detokenizer import Detokenizer, TokenTable


@dataclass(slots=True)
class ChannelDelta:
    """The new part of each channel."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCallDelta] = field(default_factory=list)
    # The stop string that ended the content and so the output.
    match: str | None = None
    # The output ends here: by a stop string, or after its only call.
    is_end: bool = False


def joined(deltas: Sequence[ChannelDelta]) -> ChannelDelta:
    """Several in order as one."""
    return ChannelDelta(
        "".join(each.text for each in deltas),
        "".join(each.reasoning for each in deltas),
        joined_calls([call for each in deltas for call in each.tool_calls]),
        deltas[-1].match if deltas else None,
        bool(deltas) and deltas[-1].is_end,
    )


@dataclass(frozen=True, slots=True)
class ParsePlan:
    """How the outputs of one request are parsed."""

    dialect: Dialect
    # The prompt has opened the reasoning.
    in_reasoning: bool
    # Names of the functions. None: not known, so any name is accepted.
    tools: tuple[Tool, ...] | None
    # Identifies the request, for CallIds.
    origin: tuple[int | str, ...]
    # The output ends after its first complete call.
    ends_after_call: bool = False
    # The output can only be calls.
    is_forced: bool = False


def visible(table: TokenTable, dialect: Dialect, ends: frozenset[int]) -> TokenTable:
    """The table, in which control tokens that belong to the dialect's framing are text."""
    framing = {i for i in table.special - ends if table.token_bytes[i] and dialect.frames_with(table.token_bytes[i])}
    return replace(table, special=table.special - framing)


class ReasoningCount:
    """Counts the tokens that begin in the reasoning. It does not depend on how the output is divided."""

    def __init__(self) -> None:
        self.n_tokens = 0
        # How many bytes of each token are not in a piece yet, and whether some bytes of the first one are.
        self._waiting: deque[int] = deque()
        self._has_begun = False

    def add(self, n_bytes: int) -> None:
        """The next token, with the bytes of its text."""
        if n_bytes:
            self._waiting.append(n_bytes)

    def take(self, pieces: Sequence[Piece]) -> None:
        """The next pieces of the output, which together have every byte once."""
        for piece in pieces:
            n_bytes = len(piece.data)
            while n_bytes:
                if not self._has_begun:
                    self.n_tokens += piece.kind is PieceKind.REASONING
                n_taken = min(n_bytes, self._waiting[0])
                n_bytes -= n_taken
                self._waiting[0] -= n_taken
                self._has_begun = self._waiting[0] > 0
                if not self._has_begun:
                    self._waiting.popleft()


class ChannelStream:
    """Follows one sequence's outputs. Not for use by two threads at once."""

    def __init__(
        self,
        table: TokenTable,
        plan: ParsePlan,
        stop: StopRules = NO_STOP,
        *,
        sequence: int = 0,
        special_tokens: bool = False,
    ) -> None:
        """`table` is a result of visible()."""
        self._detokenizer = Detokenizer(table, special_tokens=special_tokens)
        names = None if plan.tools is None else frozenset(tool.name for tool in plan.tools)
        self._splitter = ChannelSplitter(plan.dialect, in_reasoning=plan.in_reasoning, names=names)
        self._content = TextStream(table, stop)
        self._reasoning = codecs.getincrementaldecoder("utf-8")("replace")
        ids = CallIds(plan.dialect.ids, (*plan.origin, sequence))
        self._calls = CallWriter(plan.tools or (), ids, plan.dialect.notation)
        self._ends_after_call = plan.ends_after_call
        self._is_forced = plan.is_forced
        self._reasoning_count = ReasoningCount()
        self._n_outputs = 0
        self._has_ended = False
        # Whether a token can end the output.
        self.seeks_end = plan.ends_after_call or bool(stop.strings.strings)

    def feed(self, token_id: int) -> ChannelDelta:
        """Takes the next output. Not to be called after the end or after `finish`."""
        self._n_outputs += 1
        return self._delta(self._splitter.feed(self._text_of(token_id)))

    def feed_all(self, token_ids: Sequence[int]) -> ChannelDelta:
        """The delta of several outputs together. Not for a stream that seeks its end."""
        return self._delta(self._splitter.feed(b"".join([self._text_of(each) for each in token_ids])))

    def finish(self, *, is_cut: bool = False) -> ChannelDelta:
        """The text that was held back. Call it after the last token. `is_cut`: a limit ended the output."""
        if self._has_ended:
            return ChannelDelta()
        delta = self._delta(self._splitter.finish(is_cut=is_cut, is_call=self._is_forced))
        if not self._has_ended:
            delta.text += self._content.finish()
            delta.reasoning += self._reasoning.decode(b"", True)
            if (call := self._calls.finish()) is not None:
                delta.tool_calls = joined_calls([*delta.tool_calls, call])
        return delta

    @property
    def n_reasoning_tokens(self) -> int:
        """The tokens of reasoning so far, without those that are held back."""
        return self._reasoning_count.n_tokens

    def _text_of(self, token_id: int) -> bytes:
        data = self._detokenizer.feed(token_id)
        self._reasoning_count.add(len(data))
        return data

    def _delta(self, pieces: Sequence[Piece]) -> ChannelDelta:
        self._reasoning_count.take(pieces)
        delta = ChannelDelta()
        for piece in pieces:
            if piece.kind is PieceKind.CONTENT:
                added = self._content.add(piece.data, self._n_outputs)
                delta.text += added.text
                if added.match is not None:
                    delta.match = added.match
                    delta.is_end = self._has_ended = True
                    break
                continue
            # Framing lies between: a stop string or a character cannot continue after it.
            delta.text += self._content.cut()
            if piece.kind is PieceKind.REASONING:
                delta.reasoning += self._reasoning.decode(piece.data)
            elif piece.kind is PieceKind.MARKER:
                delta.reasoning += self._reasoning.decode(b"", True)
            elif (call := self._calls.take(piece)) is not None:
                delta.tool_calls.append(call)
            if self._ends_after_call and piece.kind is PieceKind.CALL_END:
                delta.is_end = self._has_ended = True
                break
        delta.tool_calls = joined_calls(delta.tool_calls)
        return delta
