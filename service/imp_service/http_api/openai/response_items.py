"""The items of a response's output while they grow, and their events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from imp_service.api.tool_calls import ToolCallDelta

T = TypeVar("T", bound="TextItem")
# An event without its sequence number, which the stream adds.
Event = dict[str, Any]
Entry = Mapping[str, Any]

IN_PROGRESS, COMPLETED, INCOMPLETE = "in_progress", "completed", "incomplete"


class Item(ABC):
    """One item of the output. Its kinds are below."""

    PREFIX = ""

    def __init__(self, response: str, index: int) -> None:
        self._index = index
        self._id = f"{self.PREFIX}_{response}-{index}"

    def begin(self) -> list[Event]:
        """The events that begin the item."""
        return [self._item_event("added", self._fields(IN_PROGRESS))]

    def end(self, status: str) -> tuple[dict[str, Any], list[Event]]:
        """The whole item, and the events that end it."""
        whole = self._fields(status)
        return whole, [*self._done(), self._item_event("done", whole)]

    @abstractmethod
    def _fields(self, status: str) -> dict[str, Any]:
        """The item as it is now."""

    @abstractmethod
    def _done(self) -> list[Event]:
        """The events that end the item's content."""

    def _item_event(self, kind: str, fields: dict[str, Any]) -> Event:
        return {"type": f"response.output_item.{kind}", "output_index": self._index, "item": fields}

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": f"response.{kind}", "item_id": self._id, "output_index": self._index, **fields}


class TextItem(Item):
    """An item with one part, which is text."""

    PART = ""

    def __init__(self, response: str, index: int) -> None:
        super().__init__(response, index)
        self._texts: list[str] = []

    def begin(self) -> list[Event]:
        """Two events: the item is added without parts, then an empty part is added."""
        return [*super().begin(), self._part_event("content_part.added", part=self._part())]

    def grow(self, text: str) -> Event:
        """More text."""
        self._texts.append(text)
        return self._part_event(f"{self.PART}.delta", delta=text)

    def _part(self) -> dict[str, Any]:
        return {"type": self.PART, "text": "".join(self._texts)}

    def _done(self) -> list[Event]:
        text = self._part_event(f"{self.PART}.done", text="".join(self._texts))
        return [text, self._part_event("content_part.done", part=self._part())]

    def _part_event(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, content_index=0, **fields)

    def _content(self, status: str) -> list[dict[str, Any]]:
        return [] if status == IN_PROGRESS else [self._part()]


class ReasoningItem(TextItem):
    """The model's reasoning before its answer."""

    PREFIX, PART = "rs", "reasoning_text"

    def _fields(self, status: str) -> dict[str, Any]:
        return {"id": self._id, "type": "reasoning", "summary": [], "content": self._content(status), "status": status}


class OutputMessage(TextItem):
    """The model's answer."""

    PREFIX, PART = "msg", "output_text"

    def __init__(self, response: str, index: int) -> None:
        super().__init__(response, index)
        self._logprobs: list[Entry] = []

    def say(self, text: str, logprobs: Sequence[Entry]) -> Event:
        """More text, with the log probabilities of its tokens."""
        self._logprobs += logprobs
        return {**self.grow(text), "logprobs": _without_bytes(logprobs)}

    def _fields(self, status: str) -> dict[str, Any]:
        head = {"id": self._id, "type": "message", "role": "assistant", "status": status}
        return {**head, "content": self._content(status)}

    def _part(self) -> dict[str, Any]:
        return {**super()._part(), "annotations": [], "logprobs": [*self._logprobs]}

    def _done(self) -> list[Event]:
        text, part = super()._done()
        return [{**text, "logprobs": _without_bytes(self._logprobs)}, part]


class FunctionCall(Item):
    """A function that the model calls."""

    PREFIX = "fc"

    def __init__(self, response: str, index: int, first: ToolCallDelta) -> None:
        super().__init__(response, index)
        self._call_id, self._name = first.id, first.name
        self._arguments: list[str] = []

    def grow(self, arguments: str) -> Event:
        """More of the arguments."""
        self._arguments.append(arguments)
        return self._event("function_call_arguments.delta", delta=arguments)

    def _fields(self, status: str) -> dict[str, Any]:
        head = {"id": self._id, "type": "function_call", "status": status}
        return {**head, "call_id": self._call_id, "name": self._name, "arguments": "".join(self._arguments)}

    def _done(self) -> list[Event]:
        return [self._event("function_call_arguments.done", arguments="".join(self._arguments))]


class Output:
    """All items of one response. At most one item grows at a time."""

    def __init__(self, response: str) -> None:
        self._response = response
        self._open: Item | None = None
        # The items that have ended.
        self.items: list[dict[str, Any]] = []

    @property
    def is_saying(self) -> bool:
        """Whether the item that grows is a message."""
        return isinstance(self._open, OutputMessage)

    @property
    def is_empty(self) -> bool:
        """Whether there is no item yet."""
        return self._open is None and not self.items

    def reason(self, text: str) -> list[Event]:
        """More reasoning."""
        item, events = self._turn_to(ReasoningItem)
        return [*events, item.grow(text)]

    def say(self, text: str, logprobs: Sequence[Entry]) -> list[Event]:
        """More of the answer."""
        item, events = self._turn_to(OutputMessage)
        return [*events, item.say(text, logprobs)]

    def call(self, delta: ToolCallDelta) -> list[Event]:
        """More of a call, or a new one."""
        events: list[Event] = []
        if delta.id:
            ended = self.end(COMPLETED)
            self._open = FunctionCall(self._response, len(self.items), delta)
            events = [*ended, *self._open.begin()]
        assert isinstance(self._open, FunctionCall)  # all deltas of a call come in a row
        return [*events, self._open.grow(delta.arguments)] if delta.arguments else events

    def end(self, status: str) -> list[Event]:
        """Ends the item that still grows."""
        if self._open is None:
            return []
        item, events = self._open.end(status)
        self._open = None
        self.items.append(item)
        return events

    def _turn_to(self, kind: type[T]) -> tuple[T, list[Event]]:
        """The growing item of this kind. Ends an item of another kind, and begins a new one."""
        if isinstance(self._open, kind):
            return self._open, []
        ended = self.end(COMPLETED)
        item = kind(self._response, len(self.items))
        self._open = item
        return item, [*ended, *item.begin()]


def _without_bytes(logprobs: Sequence[Entry]) -> list[dict[str, Any]]:
    """Log probabilities in the form that text events have: without bytes."""
    return [{**_scored(entry), "top_logprobs": [_scored(each) for each in entry["top_logprobs"]]} for entry in logprobs]


def _scored(entry: Entry) -> dict[str, Any]:
    return {"token": entry["token"], "logprob": entry["logprob"]}
