"""The parts of a message's content: which of them are text."""

from __future__ import annotations

from collections.abc import Mapping

# The kinds of parts that are text, and the member of each that has it.
TEXT_MEMBERS: Mapping[str, str] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
NO_TEXT = "is not supported: messages are text"


def text_member(kind: object) -> str | None:
    """The member that has the text of a part of this kind; None if the part is no text."""
    return TEXT_MEMBERS.get(kind) if isinstance(kind, str) else None
