"""How a model reads and writes text: tokenizer, chat template and constraints, from its file and the settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, cast

from imp_service.config import ConfigError
from imp_service.config.settings import Settings, TextSettings
from imp_service.text import ChatPrompt, FieldInvalid, TemplateChoice, TextLimits, Tokenizer
from imp_service.text.directory.recognize import is_directory
from imp_service.text.limits import KIB
from imp_service.text.templates.chat_prompt import find_violations
from imp_service.text.templates.choice import FILE_OVERRIDE

if TYPE_CHECKING:
    from imp_service.api.constraint_spec import Constraint
    from imp_service.core import Section
    from imp_service.text import ConstraintCompiler, ConstraintProgram, ConstraintSpec, RenderedChat, TextSpan
    from imp_service.text.channels.call_constraint import CallConstraint
    from imp_service.text.channels.dialect import Dialect
    from imp_service.text.channels.written_tools import WrittenTools
    from imp_service.text.tokens.detokenizer import TokenTable


# What a model that generates text may do besides: fill a gap, bound its reasoning, decide between labels.
INFILL, REASONING_BUDGET, DECISIONS = "infill", "reasoning_budget", "decisions"
# The field that bounds reasoning, and why a model may not take it.
BUDGET = "max_reasoning_tokens"
NO_REASONING = "the model's family writes no reasoning (model.overrides.dialect can name one that does)"

# Thread time of a quick rendering for each KiB of its text, and how many in a row show that a template is quick.
_QUICK_SECONDS = 0.0005
_N_QUICK = 8


class TextSide:
    """May be used from any thread. Immutable, except for what it learns about the speed of the chat template."""

    def __init__(
        self,
        metadata: Mapping[str, object],
        settings: Settings,
        vocab_size: int,
        make_tokenizer: Callable[[], Tokenizer] | None = None,
    ) -> None:
        """`vocab_size` is the number of the model's embedding rows."""
        self._vocab_size = vocab_size
        self._limits = text_limits(settings.text)
        # Made once, with the first constraint.
        self._compiler: ConstraintCompiler | None = None
        self._making = Lock()
        self._n_quick = 0
        self.tokenizer = build_tokenizer(metadata, settings) if make_tokenizer is None else make_tokenizer()
        self.tokenizer.require_rows(vocab_size)
        overrides = settings.model.overrides
        self.templates = TemplateChoice(
            metadata,
            self.tokenizer,
            self._limits,
            file=None if overrides.chat_template is None else _read_template(overrides.chat_template, self._limits),
            name=overrides.chat_template_name,
        )
        self.is_plain_by_settings = overrides.dialect == "plain"
        self._named_dialect = None if overrides.dialect is None else _named_dialect(overrides.dialect)

    def chat_ids(
        self,
        chat: ChatPrompt,
        *,
        most: int | None = None,
        at: float | None = None,
        on_hidden: Callable[[], None] | None = None,
    ) -> list[int]:
        """The tokens of a conversation. The template writes the special tokens; those in messages stay text.

        `at`: the time that the template writes, in seconds since 1970; None: now. `on_hidden` is called if the text
        lacks a tool that the conversation offers. Raises TooManyTokens as soon as there are more than `most`.
        """
        return self.tokenizer.encode_spans(self.chat_spans(chat, at, on_hidden), add_special_tokens=False, most=most)

    def chat_spans(
        self, chat: ChatPrompt, at: float | None = None, on_hidden: Callable[[], None] | None = None
    ) -> Sequence[TextSpan]:
        """The text of a conversation, as its template writes it. `at` and `on_hidden`: as for chat_ids()."""
        rendered = self.render(chat, at)
        if on_hidden is not None and chat.tools_json and _lacks_tools(rendered.text, chat):
            on_hidden()
        return rendered.spans

    def render(self, chat: ChatPrompt, at: float | None = None) -> RenderedChat:
        """The text of a conversation, written by its template. Where the template has no place for tools, imp writes
        them into a message.
        """
        if not chat.tools_json and not any(each.tool_calls_json or each.role == "tool" for each in chat.messages):
            return self._rendered(chat, at)
        for violation in find_violations(chat):
            raise violation
        written = self.written_tools
        return self._rendered(chat if written is None else written.rewritten(chat), at)

    @cached_property
    def _needs_parts(self) -> bool:
        """Whether the template shows only contents that are lists of parts."""
        from imp_service.text.channels.find_dialect import needs_parts

        def render(chat: ChatPrompt, *, in_parts: bool) -> str:
            return self.templates.of(chat).render(chat, in_parts=in_parts).text

        return needs_parts(partial(render, in_parts=False), partial(render, in_parts=True))

    def _rendered(self, chat: ChatPrompt, at: float | None = None) -> RenderedChat:
        """What the template itself writes."""
        in_parts = self._needs_parts
        began, n_bytes = time.thread_time(), 0
        try:
            rendered = self.templates.of(chat).render(chat, in_parts=in_parts, at=at)
            n_bytes = len(rendered.text)
            return rendered
        finally:
            is_quick = time.thread_time() - began <= _QUICK_SECONDS * max(1, n_bytes / KIB)
            self._n_quick = self._n_quick + 1 if is_quick else 0

    @property
    def renders_quickly(self) -> bool:
        """Whether an event loop may render a short conversation: the last renderings were all quick."""
        return self._n_quick >= _N_QUICK

    @cached_property
    def dialect(self) -> Dialect:
        """How the model writes reasoning and tool calls. The first use renders a conversation, which takes a moment."""
        from imp_service.text.channels.find_dialect import find_dialect

        return find_dialect(lambda chat: self._rendered(chat).text, self.tokenizer, self._named_dialect)

    def capabilities(self, *, has_head: bool) -> tuple[str, ...]:
        """What a model with this text does besides generating it: DECISIONS and others. `has_head`: it generates."""
        found = {
            INFILL: self.tokenizer.infill is not None,
            REASONING_BUDGET: self.dialect.reasoning is not None,
            DECISIONS: True,
        }
        return tuple(name for name, is_there in found.items() if has_head and is_there)

    @cached_property
    def written_tools(self) -> WrittenTools | None:
        """How imp tells the model about tools. None: the chat template does."""
        from imp_service.text.channels.dialects import GENERIC
        from imp_service.text.channels.find_dialect import shows_system, shows_tools
        from imp_service.text.channels.written_tools import WrittenTools, writes_json

        def render(chat: ChatPrompt) -> str:
            return self._rendered(chat).text

        forms = self.dialect.forms
        if forms and (shows_tools(render) or not writes_json(forms[0])):
            return None
        return WrittenTools(self.dialect if forms else GENERIC, shows_system(render))

    @cached_property
    def reasoning_section(self) -> Section | None:
        """The reasoning of the model's outputs; None if its dialect has none. The first use takes a moment."""
        from imp_service.generation.reasoning import section_of

        reasoning = self.dialect.reasoning
        return None if reasoning is None else section_of(reasoning, self.tokenizer, self.channel_table)

    @property
    def calls_dialect(self) -> Dialect:
        """How the model writes calls in a conversation with tools."""
        return self.dialect if self.written_tools is None else self.written_tools.dialect

    @cached_property
    def channel_table(self) -> TokenTable:
        """The tokenizer's table with the dialect's framing as text."""
        return self._visible(self.dialect)

    @cached_property
    def calls_table(self) -> TokenTable:
        """The same for a conversation with tools."""
        return self.channel_table if self.calls_dialect is self.dialect else self._visible(self.calls_dialect)

    def _visible(self, dialect: Dialect) -> TokenTable:
        from imp_service.text.channels.channel_stream import visible

        return visible(self.tokenizer.table, dialect, self.tokenizer.eos_ids)

    def compile(self, constraint: Constraint) -> ConstraintProgram:
        """The constraint compiled for this vocabulary. Raises FieldInvalid, also if no text fits it."""
        program = self._made_compiler().compile(_compilable(constraint))
        if not any(program.start().mask()):
            raise FieldInvalid(constraint.path, "matches no text that this model can write")
        return program

    def find(self, constraint: Constraint) -> ConstraintProgram | None:
        """The program if the constraint was compiled before, else None. Does not wait."""
        compiler = self._compiler
        return None if compiler is None else compiler.find(_compilable(constraint))

    def close(self) -> None:
        """Ends the compilation that runs. Its caller gets FieldInvalid."""
        with self._making:
            if self._compiler is not None:
                self._compiler.close()

    @property
    def template_source(self) -> str | None:
        """The text of the chat template, or None."""
        return self.templates.source

    def _made_compiler(self) -> ConstraintCompiler:
        from imp_service.text import ConstraintCompiler

        with self._making:
            if self._compiler is None:
                self._compiler = ConstraintCompiler(self.tokenizer, vocab_size=self._vocab_size, limits=self._limits)
            return self._compiler


def build_tokenizer(metadata: Mapping[str, object], settings: Settings) -> Tokenizer:
    """The file's tokenizer, with the settings' overrides. May be called on any thread."""
    overrides = settings.model.overrides
    if is_directory(metadata):
        n_rows = metadata.get("vocab_size")
        rows = n_rows if isinstance(n_rows, int) else None
        return Tokenizer.from_directory(
            metadata, n_rows=rows, pre=overrides.pre_tokenizer, end_ids=overrides.eos_token_ids
        )
    return Tokenizer.from_metadata(metadata, pre=overrides.pre_tokenizer, end_ids=overrides.eos_token_ids)


def _lacks_tools(text: str, chat: ChatPrompt) -> bool:
    """Whether a prompt has the name of a tool only where its messages have it."""
    from imp_service.text.channels.tools import read_tools

    # A template may write letters outside of ASCII in another way.
    names = [tool.name for tool in read_tools(chat.tools_json) if tool.name.isascii()]
    said = "\0".join(f"{each.text}\0{each.tool_calls_json}\0{each.name}" for each in chat.messages)
    return any(text.count(name) <= said.count(name) for name in names)


def _named_dialect(name: str) -> Dialect:
    from imp_service.text.channels.find_dialect import named_dialect

    return named_dialect(name)


def _read_template(path: str, limits: TextLimits) -> bytes:
    """The bytes of the file that the settings name, up to one byte beyond the limit of a template."""
    try:
        with Path(path).open("rb") as file:
            return file.read(limits.template_bytes + 1)
    except OSError as error:
        raise ConfigError(FILE_OVERRIDE, f"{path}: {error.strerror}") from None


def text_limits(settings: TextSettings) -> TextLimits:
    """The bounds of the settings' section [text] for imp_service.text."""
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
        compile_bytes=settings.compile_bytes,
        cache_bytes=settings.cache_bytes,
    )


def _compilable(constraint: Constraint) -> ConstraintSpec | CallConstraint:
    """A request has a ConstraintSpec; resolving its tools may replace that by a CallConstraint."""
    return cast("ConstraintSpec | CallConstraint", constraint)
