"""One sequence whose output is parsed into channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imp_service.api.options import OutputOptions
from imp_service.api.replies import Chunk
from imp_service.generation.output_stream import OutputStream, Rest
from imp_service.text.channels.channel_stream import ChannelDelta, ChannelStream, joined

if TYPE_CHECKING:
    from imp_service.text import ConstraintState


class ParsedStream(OutputStream):
    """An OutputStream that separates channels: its chunks have content as text, reasoning, and tool calls."""

    __slots__ = ("_channels", "_deltas", "_taken")

    def __init__(
        self, index: int, output: OutputOptions, channels: ChannelStream, constraint: ConstraintState | None
    ) -> None:
        super().__init__(index, output, None, constraint)
        self._channels = channels
        self.seeks_stop = channels.seeks_end
        # Deltas of tokens that the caller has not read yet. Used if each token was parsed alone to find the end.
        self._deltas: list[ChannelDelta] = []
        self._taken = ChannelDelta()

    @property
    def n_reasoning_tokens(self) -> int:
        """As in OutputStream."""
        return self._channels.n_reasoning_tokens

    def take(self, max_tokens: int | None) -> Chunk:
        """As in OutputStream, with the other channels."""
        chunk = super().take(max_tokens)
        chunk.reasoning, chunk.tool_calls = self._taken.reasoning, self._taken.tool_calls
        return chunk

    def rest(self, *, is_cut: bool) -> Rest:
        """As in OutputStream."""
        delta = self._channels.finish(is_cut=is_cut)
        return Rest(delta.text, delta.reasoning, delta.tool_calls)

    def _seek_stop(self, token: int) -> None:
        delta = self._channels.feed(token)
        self._deltas.append(delta)
        self.match, self.is_stopped = delta.match, delta.is_end

    def _text_of(self, ids: list[int]) -> str:
        if self.seeks_stop:
            n = len(ids)
            self._taken, self._deltas = joined(self._deltas[:n]), self._deltas[n:]
        else:
            self._taken = self._channels.feed_all(ids)
        return self._taken.text
