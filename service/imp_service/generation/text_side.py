"""A model's text side, built once from its file and the settings: tokenizer, chat template, constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.config.settings import Settings
from imp_service.config.settings import TextBounds as TextSettings
from imp_service.text import ChatPrompt, FieldInvalid, NoChatTemplate, TextLimits, Tokenizer

if TYPE_CHECKING:
    from imp_service.text import ChatTemplate, ConstraintCompiler, ConstraintProgram, ConstraintSpec

TEMPLATE_KEY = "tokenizer.chat_template"


class TextSide:
    """Immutable; may be used from any thread."""

    def __init__(
        self,
        metadata: Mapping[str, object],
        settings: Settings,
        vocab_size: int,
        eos_tokens: Sequence[int],
        make_tokenizer: Callable[[], Tokenizer] | None = None,
    ) -> None:
        """`vocab_size` are the model's embedding rows."""
        self._metadata = metadata
        self._settings = settings
        self._vocab_size = vocab_size
        self._eos_tokens = frozenset(eos_tokens)
        self._limits = text_limits(settings.text)
        self.tokenizer = Tokenizer.from_metadata(metadata) if make_tokenizer is None else make_tokenizer()
        self.tokenizer.require_rows(vocab_size)

    def chat_ids(self, chat: ChatPrompt) -> list[int]:
        """A conversation's tokens. The template writes the special tokens; those in messages stay text."""
        return self.tokenizer.encode_spans(self.template.render(chat).spans, add_special_tokens=False)

    def compile(self, constraint: ConstraintSpec) -> ConstraintProgram:
        """The constraint made ready for this vocabulary; raises FieldInvalid, also where it allows nothing at all."""
        program = self._compiler.compile(constraint)
        if not any(program.start().mask()):
            raise FieldInvalid(constraint.path, "matches no text that this model can write")
        return program

    @property
    def template_source(self) -> str | None:
        """The chat template's text; None where the model has none."""
        try:
            return self.template.source
        except NoChatTemplate:
            return None

    @cached_property
    def template(self) -> ChatTemplate:
        """The file's chat template, or the one the settings name."""
        from imp_service.text import ChatTemplate

        metadata = dict(self._metadata)
        path = self._settings.model.overrides.chat_template
        if path is not None:
            metadata[TEMPLATE_KEY] = Path(path).read_bytes()
        return ChatTemplate.from_metadata(metadata, self.tokenizer, limits=self._limits)

    @cached_property
    def _compiler(self) -> ConstraintCompiler:
        from imp_service.text import ConstraintCompiler

        return ConstraintCompiler(
            self.tokenizer, vocab_size=self._vocab_size, eos_ids=self._eos_tokens, limits=self._limits
        )


def text_limits(settings: TextSettings) -> TextLimits:
    """The bounds of [text] as the text room takes them."""
    return TextLimits(
        template_iterations=settings.template_iterations,
        template_operand_bytes=settings.template_operand_bytes,
        template_bytes=settings.template_bytes,
        template_ms=int(settings.template_time.total_seconds() * 1000),
        render_bytes=settings.render_bytes,
        constraint_bytes=settings.constraint_bytes,
        regex_bytes=settings.regex_bytes,
        nesting=settings.nesting,
        compile_ms=int(settings.compile_time.total_seconds() * 1000),
        cache_bytes=settings.cache_bytes,
    )
