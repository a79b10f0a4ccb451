"""The parts of a message's content: which of them are text, and what the others may be."""

from __future__ import annotations

from collections.abc import Mapping

# The kinds of parts that are text, and the member of each that has it.
TEXT_MEMBERS: Mapping[str, str] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
# The kinds of parts that are images, of the chat API and of responses, and the member that has the image.
IMAGE_KINDS = ("image_url", "input_image")
IMAGE_MEMBER = "image_url"
# A JSON text that has an image has one of these words, in any API.
IMAGE_WORDS = (IMAGE_MEMBER, "base64")
NO_PART = "is not supported: messages are text and images"


def text_member(kind: object) -> str | None:
    """The member that has the text of a part of this kind; None if the part is no text."""
    return TEXT_MEMBERS.get(kind) if isinstance(kind, str) else None
