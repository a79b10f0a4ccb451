"""Prompts of every form as tokens of one model: texts, ids, conversations, and the images in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from imp_service.api.chat_prompt import InfillPrompt, PromptParts, has_images, images_of
from imp_service.api.errors import invalid, refuse
from imp_service.api.image import Image
from imp_service.api.options import Prompt
from imp_service.api.rules import token_pieces, token_violations
from imp_service.core import Error, make_error
from imp_service.generation.infill import infill_ids, require_infill
from imp_service.generation.prompt_images import (
    LEFT_OUT,
    NOT_IN_MODEL,
    PromptImages,
    ReadPrompt,
    RenderedPrompt,
    TokenPiece,
    grow_spans,
    number_violations,
    plan_images,
    with_layouts,
)
from imp_service.generation.text_side import TextSide
from imp_service.text import ChatPrompt, TextSpan, TooManyTokens

if TYPE_CHECKING:
    from imp_service.generation.images import ModelImages

OnHidden = Callable[[], None]


class PromptReader:
    """Any thread may read. Nothing is decoded: the headers of images say how many tokens they take."""

    def __init__(
        self, text: TextSide, *, n_tokens: int, max_context: int, images: ModelImages | None, has_vision: bool
    ) -> None:
        """`images`: None if the model reads none. `has_vision`: the settings let a model read images."""
        self._text = text
        self._tokenizer = text.tokenizer
        self._n_tokens = n_tokens
        self._max_context = max_context
        self._images = images
        self._without_images = NOT_IN_MODEL if has_vision else LEFT_OUT

    def read(
        self, prompt: Prompt, *, begins: bool, at: float | None = None, on_hidden: OnHidden | None = None
    ) -> ReadPrompt:
        """A prompt's tokens, and its images, which are not decoded yet. The arguments are those of ids()."""
        if isinstance(prompt, InfillPrompt):
            return ReadPrompt(self.ids(prompt, begins=begins), ends=require_infill(self._tokenizer, "infill").ends)
        if not has_images(prompt):
            return ReadPrompt(self.ids(prompt, begins=begins, at=at, on_hidden=on_hidden))
        return self._with_images(prompt, begins=begins, at=at, on_hidden=on_hidden)

    def ids(
        self, prompt: Prompt, *, begins: bool, at: float | None = None, on_hidden: OnHidden | None = None
    ) -> list[int]:
        """The tokens of a prompt without images. If it `begins` a sequence, text gets the model's special tokens.
        `at` and `on_hidden`: as for TextSide.chat_ids().
        """
        if isinstance(prompt, str | ChatPrompt):
            return self._text_ids(prompt, begins=begins, at=at, on_hidden=on_hidden)
        if isinstance(prompt, InfillPrompt):
            ids = infill_ids(self._tokenizer, prompt, begins=begins)
            self.require_room(len(ids))
            return ids
        if isinstance(prompt, PromptParts):
            return [token for piece in self._pieces(prompt, begins=begins) for token in piece.ids]
        if not isinstance(prompt, Sequence | np.ndarray) or isinstance(prompt, bytes | bytearray | str):
            raise invalid("prompt", f"{type(prompt).__name__}, expected text, token ids or a ChatPrompt")
        if len(prompt) > self._max_context:
            raise self._too_long(len(prompt))  # before it is looked at: it may be of any length
        refuse(token_violations("token_ids", prompt, self._n_tokens))
        tokens: list[int] = []
        for _, piece in token_pieces(prompt):
            tokens += map(int, piece)
        return tokens

    def rendered(self, chat: ChatPrompt) -> RenderedPrompt:
        """A conversation as text, and its tokens part by part."""
        if not has_images(chat):
            rendered = self._text.render(chat)
            parts = self._tokenizer.encode_parts(rendered.spans, add_special_tokens=False)
            return RenderedPrompt(rendered.text, parts)
        images = self._require_images(chat)
        planned, spans = self._planned_chat(chat, images)
        ids = self._tokenizer.encode_spans(spans, add_special_tokens=False)
        whole = grow_spans([TokenPiece(ids, has_images=True)], planned)
        return RenderedPrompt("".join(span.text for span in spans), iter([whole]), planned.spans)

    def require_room(self, n_prompt: int) -> None:
        """Raises CONTEXT_TOO_LONG for a prompt that does not fit the context.

        The engine refuses such a run too. Here nothing has begun.
        """
        if n_prompt > self._max_context:
            raise self._too_long(n_prompt)

    def require_outputs(self, n_prompt: int, most: int | None) -> None:
        """Raises CONTEXT_TOO_LONG as the engine does, before images are decoded."""
        room = self.room_after(n_prompt)
        if most is not None and most > room:
            words = f"{n_prompt} tokens leave room for {room} outputs in the context of {self._max_context}"
            raise make_error("CONTEXT_TOO_LONG", f"{words}, max_tokens is {most}", self._lengths(n_prompt))

    def room_after(self, n_prompt: int) -> int:
        """The most outputs after a prompt. The last one is not evaluated, so it needs no position."""
        return self._max_context - n_prompt + 1

    def require_fitting(self, prompt: Prompt) -> None:
        """Raises CONTEXT_TOO_LONG if a text cannot fit, judged by its size alone; takes microseconds."""
        texts = prompt.texts() if isinstance(prompt, InfillPrompt) else (prompt,) if isinstance(prompt, str) else ()
        if n_bytes := sum(len(text.encode(errors="replace")) for text in texts):
            n_tokens = self._tokenizer.least_tokens(n_bytes)
            if n_tokens > self._max_context:
                raise self._too_long(n_tokens, "at least ")

    def _text_ids(
        self, prompt: str | ChatPrompt, *, begins: bool, at: float | None, on_hidden: OnHidden | None
    ) -> list[int]:
        """The tokens of a text or a conversation. Encoding stops when they exceed the context."""
        try:
            if isinstance(prompt, str):
                spans = [TextSpan(prompt, parses_special_tokens=False)]
                return self._tokenizer.encode_spans(spans, add_special_tokens=begins, most=self._max_context)
            _require_first(begins)
            return self._text.chat_ids(prompt, most=self._max_context, at=at, on_hidden=on_hidden)
        except TooManyTokens as error:
            raise self._too_long(error.n_tokens, "at least ") from None

    def _require_images(self, prompt: Prompt) -> ModelImages:
        """The images of the model. Raises why it does not take those of a prompt."""
        paths = [path for path, _ in images_of(prompt)]
        if self._images is None:
            reason, words = self._without_images
            raise make_error(reason, f"{paths[0]}: {words}", {"feature": paths[0]})
        refuse(number_violations(paths, self._images.reader))
        return self._images

    def _with_images(self, prompt: Prompt, *, begins: bool, at: float | None, on_hidden: OnHidden | None) -> ReadPrompt:
        images = self._require_images(prompt)
        spans: list[TextSpan] = []
        if isinstance(prompt, ChatPrompt):
            _require_first(begins)
            planned, spans = self._planned_chat(prompt, images, at, on_hidden)
        else:
            planned = plan_images(images, prompt)
        most = self._max_context - planned.n_extra_tokens
        if most < 1:
            raise self._too_long(planned.n_extra_tokens + 1, "at least ")
        try:
            if isinstance(prompt, PromptParts):
                pieces = self._pieces(prompt, begins=begins, images=planned, most=most)
            else:
                ids = self._tokenizer.encode_spans(spans, add_special_tokens=False, most=most)
                pieces = [TokenPiece(ids, has_images=True)]
        except TooManyTokens as error:
            raise self._too_long(planned.n_extra_tokens + error.n_tokens, "at least ") from None
        ids = grow_spans(pieces, planned)
        self.require_room(len(ids))
        return ReadPrompt(ids, planned)

    def _planned_chat(
        self, chat: ChatPrompt, images: ModelImages, at: float | None = None, on_hidden: OnHidden | None = None
    ) -> tuple[PromptImages, list[TextSpan]]:
        """The images of a conversation, and its text with their layouts."""
        planned = plan_images(images, chat)
        return planned, with_layouts(self._text.chat_spans(chat, at, on_hidden), planned)

    def _pieces(
        self, prompt: PromptParts, *, begins: bool, images: PromptImages | None = None, most: int | None = None
    ) -> list[TokenPiece]:
        """The tokens of a prompt's parts: texts and images between lists of ids are tokenized together."""
        has_ids = any(not isinstance(part, str | Image) for part in prompt.parts)
        layouts = iter(() if images is None else images.layout_texts())
        pieces: list[TokenPiece] = []
        spans: list[TextSpan] = []

        def end_text() -> None:
            if spans:
                ids = self._tokenizer.encode_spans(spans, add_special_tokens=begins and not has_ids, most=most)
                pieces.append(TokenPiece(ids, has_images=True))
                spans.clear()

        for part in prompt.parts:
            if isinstance(part, str):
                spans.append(TextSpan(part, parses_special_tokens=False))
            elif isinstance(part, Image):
                spans.append(next(layouts))
            else:
                end_text()
                pieces.append(TokenPiece(self.ids(part, begins=False)))
        end_text()
        return pieces

    def _too_long(self, n_tokens: int, least: str = "") -> Error:
        words = f"a prompt of {least}{n_tokens} tokens exceeds the context of {self._max_context}"
        return make_error("CONTEXT_TOO_LONG", words, self._lengths(n_tokens))

    def _lengths(self, n_prompt: int) -> dict[str, str]:
        return {"prompt_tokens": str(n_prompt), "max_context_tokens": str(self._max_context)}


def _require_first(begins: bool) -> None:
    if not begins:
        raise invalid("prompt", "a chat, expected text or tokens: the session holds tokens already")
