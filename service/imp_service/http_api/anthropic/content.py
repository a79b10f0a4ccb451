"""The blocks of an answer's content while they grow, and their events."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from imp_service.api.replies import Chunk, Finished
from imp_service.api.tool_calls import ToolCallDelta

Event = dict[str, Any]
SIGNATURE_BYTES = 16


class Block(ABC):
    """One block of the content. Its kinds are below."""

    # The type of a delta, and its member with what is new.
    DELTA = ("", "")

    def __init__(self, index: int) -> None:
        self._index = index
        self._pieces: list[str] = []

    def begin(self) -> list[Event]:
        """The event that begins the block."""
        return [self._event("start", content_block=self._empty())]

    def grow(self, piece: str) -> list[Event]:
        """The event of a new piece, which may be empty."""
        self._pieces.append(piece)
        kind, member = self.DELTA
        return [self._event("delta", delta={"type": kind, member: piece})] if piece else []

    def end(self) -> list[Event]:
        """The events that end the block."""
        return [self._event("stop")]

    @abstractmethod
    def _empty(self) -> dict[str, Any]:
        """The block when it begins."""

    @abstractmethod
    def whole(self) -> dict[str, Any]:
        """The block as it is now."""

    @property
    def _joined(self) -> str:
        return "".join(self._pieces)

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": f"content_block_{kind}", "index": self._index, **fields}


class TextBlock(Block):
    """A part of the answer."""

    DELTA = ("text_delta", "text")

    def _empty(self) -> dict[str, Any]:
        return {"type": "text", "text": ""}

    def whole(self) -> dict[str, Any]:
        return {"type": "text", "text": self._joined}


class ThinkingBlock(Block):
    """The model's reasoning.

    Clients drop a block without a signature, and send others back as they are. imp's is a digest of the text, which
    nobody checks: the text itself is what the model reads again.
    """

    DELTA = ("thinking_delta", "thinking")

    def end(self) -> list[Event]:
        delta = {"type": "signature_delta", "signature": self._signature}
        return [self._event("delta", delta=delta), *super().end()]

    def _empty(self) -> dict[str, Any]:
        return {"type": "thinking", "thinking": "", "signature": ""}

    def whole(self) -> dict[str, Any]:
        return {"type": "thinking", "thinking": self._joined, "signature": self._signature}

    @property
    def _signature(self) -> str:
        text = self._joined.encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=SIGNATURE_BYTES).hexdigest()


class ToolUseBlock(Block):
    """A call of a tool."""

    DELTA = ("input_json_delta", "partial_json")

    def __init__(self, index: int, first: ToolCallDelta) -> None:
        super().__init__(index)
        self._id, self._name = first.id, first.name

    def _empty(self) -> dict[str, Any]:
        return {"type": "tool_use", "id": self._id, "name": self._name, "input": {}}

    def whole(self) -> dict[str, Any]:
        return {**self._empty(), "input": self._input()}

    def _input(self) -> dict[str, Any]:
        """The arguments; none if the end of the output has cut them, or if they are no object."""
        try:
            found = json.loads(self._joined)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


class Content:
    """All blocks of one answer. At most one grows at a time."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._is_open = False
        self.has_calls = False

    def blocks(self) -> list[dict[str, Any]]:
        """The blocks as they are now."""
        return [block.whole() for block in self._blocks]

    def take(self, part: Chunk | Finished) -> list[Event]:
        """The events of new output."""
        events: list[Event] = []
        calls: Sequence[ToolCallDelta] = part.tool_calls
        if calls and not calls[0].id:
            # The rest of the call that grows. Everything else in this part comes after it.
            events += self._blocks[-1].grow(calls[0].arguments)
            calls = calls[1:]
        for kind, piece in ((ThinkingBlock, part.reasoning), (TextBlock, part.text)):
            if piece:
                events += self._turn_to(kind)
                events += self._blocks[-1].grow(piece)
        for delta in calls:
            if delta.id:
                events += self._open(ToolUseBlock(len(self._blocks), delta))
            events += self._blocks[-1].grow(delta.arguments)
        return events

    def end(self) -> list[Event]:
        """Ends the block that still grows."""
        was_open, self._is_open = self._is_open, False
        return self._blocks[-1].end() if was_open else []

    def _turn_to(self, kind: type[TextBlock | ThinkingBlock]) -> list[Event]:
        """Ends a block of another kind, and begins one of this kind."""
        is_there = self._is_open and isinstance(self._blocks[-1], kind)
        return [] if is_there else self._open(kind(len(self._blocks)))

    def _open(self, block: Block) -> list[Event]:
        events = [*self.end(), *block.begin()]
        self._blocks.append(block)
        self._is_open = True
        self.has_calls = self.has_calls or isinstance(block, ToolUseBlock)
        return events
