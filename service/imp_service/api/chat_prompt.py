"""A conversation, a prompt in parts, and a text with a gap, as callers send them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .image import Image

# Texts and images, in the order of the content.
ContentParts = tuple[str | Image, ...]


def joined(parts: Iterable[str | Image]) -> str | ContentParts:
    """The content of parts: a text if none is an image."""
    found = tuple(parts)
    texts = [each for each in found if isinstance(each, str)]
    return "".join(texts) if len(texts) == len(found) else found


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message; empty strings are absent fields. The content None is null in the template."""

    role: str
    content: str | ContentParts | None
    name: str = ""
    tool_call_id: str = ""
    tool_calls_json: str = ""
    reasoning_content: str = ""

    @property
    def text(self) -> str:
        """The text of the content."""
        return "".join(each for each in self.parts() if isinstance(each, str))

    def parts(self) -> ContentParts:
        """The content in parts; a text is one part."""
        content = self.content or ()
        return (content,) if isinstance(content, str) else content

    def with_text(self, *, before: str = "", after: str = "") -> str | ContentParts:
        """The content with further text."""
        return joined(each for each in (before, *self.parts(), after) if each != "")


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """`imp.v1.ChatPrompt`; None is an absent field."""

    messages: tuple[ChatMessage, ...]
    tools_json: str = ""
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    template_kwargs_json: str = ""
    documents_json: str = ""


@dataclass(frozen=True, slots=True)
class PromptParts:
    """A prompt of texts, lists of token ids and images, in their order.

    The model's special tokens are added as to a text, unless a part is token ids.
    """

    parts: tuple[str | Sequence[int] | Image, ...]


@dataclass(frozen=True, slots=True)
class InfillFile:
    """A further file of a repository, which the model sees before the one that it fills."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class InfillPrompt:
    """A text with a gap, which the model fills, with the tokens that its vocabulary has for that.

    Special tokens that a text spells are text.
    """

    prefix: str
    suffix: str
    # What the output continues: the beginning of the text in the gap.
    middle: str = ""
    files: tuple[InfillFile, ...] = ()

    def texts(self) -> Iterator[str]:
        """All texts."""
        yield from (self.prefix, self.suffix, self.middle)
        for each in self.files:
            yield from (each.name, each.text)


def images_of(prompt: object, path: str = "") -> Iterator[tuple[str, Image]]:
    """The images of a prompt, each with the path of its field. `path` is that of the prompt."""
    if isinstance(prompt, ChatPrompt):
        for i, message in enumerate(prompt.messages):
            if isinstance(message.content, tuple):
                yield from _images_in(message.content, f"{path or 'chat'}.messages[{i}].parts")
    elif isinstance(prompt, PromptParts):
        yield from _images_in(prompt.parts, f"{path or 'parts'}.parts")


def has_images(prompt: object) -> bool:
    """Whether a prompt has an image."""
    return any(True for _ in images_of(prompt))


def _images_in(parts: Sequence[object], path: str) -> Iterator[tuple[str, Image]]:
    for i, part in enumerate(parts):
        if isinstance(part, Image):
            yield f"{path}[{i}].image", part
