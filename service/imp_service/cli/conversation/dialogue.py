"""The parts of a conversation: turns and options, the responder that answers, and the result of an answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Turn(NamedTuple):
    role: str
    content: str
    images: tuple[bytes, ...] = ()  # files, before the content


@dataclass(slots=True)
class Dialogue:
    """Alternating turns of user and assistant. If the last turn is the user's, it has no answer yet."""

    system: str | None = None
    options: dict[str, float] = field(default_factory=dict)  # those that were given or set, by their names in imp.v1
    turns: list[Turn] = field(default_factory=list)
    next_images: list[bytes] = field(default_factory=list)  # of the message that is not typed yet

    @property
    def is_unanswered(self) -> bool:
        """The last message has no answer."""
        return len(self.turns) % 2 == 1

    def drop_oldest(self, count: int) -> int:
        """Removes the oldest messages with their answers; returns how many. Keeps a message without an answer."""
        n_dropped = min(count, len(self.turns) // 2)
        del self.turns[: 2 * n_dropped]
        return n_dropped

    def drop_last(self, count: int) -> int:
        """Removes the last messages with their answers; returns how many."""
        n_messages = (len(self.turns) + 1) // 2
        n_dropped = min(count, n_messages)
        del self.turns[2 * (n_messages - n_dropped) :]
        return n_dropped


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """An answer, or the part of it that arrived."""

    text: str
    is_stopped: bool = False  # by Ctrl-C
    is_cut: bool = False  # by the end of the context


class TurnFailed(Exception):
    """There is no answer. The same message, or another one, may be answered later."""

    def __init__(self, error: Exception, *, is_full: bool) -> None:
        self.error = error
        self.is_full = is_full  # the context does not hold the conversation
        super().__init__(str(error))


class Responder(Protocol):
    def answer(self, dialogue: Dialogue) -> ChatAnswer:
        """Writes the answer to the last turn as it comes. Ctrl-C stops it. Raises TurnFailed."""

    def read_image(self, name: str) -> bytes:
        """The bytes of an image file. Raises an error that says why the model cannot read it."""

    def check_options(self, options: dict[str, float]) -> None:
        """Raises an error that names an option whose value cannot be sent."""

    def default_sampling(self) -> Sequence[tuple[str, str, str]]:
        """Name, value and origin of the model's sampling options."""
