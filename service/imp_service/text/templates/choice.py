"""Chooses a chat template: the one that the settings name, or else by whether the conversation has tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from imp_service.api.chat_prompt import ChatPrompt
from imp_service.text.directory.recognize import is_directory
from imp_service.text.directory.templates import DEFAULT, Sources, read_templates
from imp_service.text.errors import NoChatTemplate, TemplateInvalid
from imp_service.text.limits import TextLimits
from imp_service.text.templates.chat_prompt import offers_tools
from imp_service.text.tokens.metadata import TEMPLATE_KEY
from imp_service.text.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from imp_service.text.templates.chat_template import ChatTemplate

NAME_OVERRIDE = "model.overrides.chat_template_name"
FILE_OVERRIDE = "model.overrides.chat_template"
# The name of the template for conversations with tools, if a model has several templates.
_TOOLS = "tool_use"


class TemplateChoice:
    """Any thread may use it. Templates are compiled at their first use, or by compile_all()."""

    def __init__(
        self,
        metadata: Mapping[str, object],
        tokenizer: Tokenizer,
        limits: TextLimits,
        *,
        file: bytes | None = None,
        name: str | None = None,
    ) -> None:
        """`file` is the content of a template that replaces all of the model's; `name` chooses one of them."""
        self._tokenizer = tokenizer
        self._limits = limits
        self._outcomes: dict[str, ChatTemplate | TemplateInvalid] = {}
        self.is_named = file is not None or name is not None
        self._sources = read_sources(metadata) if file is None else {DEFAULT: (FILE_OVERRIDE, file)}
        if file is not None:
            name = DEFAULT
        elif name is not None:
            _require(name, self._sources)
        self._default = DEFAULT if name is None else name
        self._with_tools = _TOOLS if name is None and _TOOLS in self._sources else self._default

    def of(self, chat: ChatPrompt) -> ChatTemplate:
        """The template of a conversation; raises NoChatTemplate or TemplateInvalid."""
        return self.with_tools if self._with_tools != self._default and offers_tools(chat) else self.default

    @property
    def is_empty(self) -> bool:
        """The model has no template at all."""
        return not self._sources

    @property
    def sources_in_use(self) -> list[bytes]:
        """The sources of the templates that conversations may need, even of those that do not compile."""
        names = dict.fromkeys((self._default, self._with_tools))
        found = [self._sources[name][1] for name in names if name in self._sources]
        return [source if isinstance(source, bytes) else str(source).encode(errors="replace") for source in found]

    @property
    def source(self) -> str | None:
        """The source of the template for conversations without tools, even if it does not compile; None if missing."""
        _, source = self._sources.get(self._default, ("", None))
        if isinstance(source, bytes):
            return source.decode("utf-8", "replace")
        return source if isinstance(source, str) else None

    @property
    def default(self) -> ChatTemplate:
        """The template for conversations without tools."""
        return self._compiled(self._default)

    @property
    def with_tools(self) -> ChatTemplate:
        """The template for conversations with tools."""
        return self._compiled(self._with_tools)

    def compile_all(self) -> list[str]:
        """Compiles the templates that conversations may need, and returns warnings. Raises TemplateInvalid."""
        templates = [self.default] if self._default in self._sources else []
        if self._with_tools != self._default:
            templates.append(self.with_tools)
        return [words for template in templates for words in template.warnings]

    def _compiled(self, name: str) -> ChatTemplate:
        """The template of a name, compiled once, even if that fails. Two threads at once may both compile it."""
        outcome = self._outcomes.get(name)
        if outcome is None:
            outcome = self._outcomes[name] = self._compile(name)
        if isinstance(outcome, TemplateInvalid):
            raise TemplateInvalid(outcome.path, outcome.message)
        return outcome

    def _compile(self, name: str) -> ChatTemplate | TemplateInvalid:
        from imp_service.text.templates.chat_template import ChatTemplate

        if self._sources and name not in self._sources:
            known = ", ".join(sorted(self._sources))
            raise NoChatTemplate(
                "chat", f"the model has no default chat template; {NAME_OVERRIDE} selects one of: {known}"
            )
        place, source = self._sources.get(name, (TEMPLATE_KEY, None))
        try:
            return ChatTemplate.from_metadata({place: source}, self._tokenizer, key=place, limits=self._limits)
        except TemplateInvalid as error:
            return error


def read_sources(metadata: Mapping[str, object]) -> Sources:
    """The templates of a model, by name."""
    if is_directory(metadata):
        return read_templates(metadata)
    prefix = f"{TEMPLATE_KEY}."
    named = {key.removeprefix(prefix): (key, source) for key, source in metadata.items() if key.startswith(prefix)}
    return {DEFAULT: (TEMPLATE_KEY, metadata[TEMPLATE_KEY]), **named} if TEMPLATE_KEY in metadata else named


def _require(name: str, sources: Sources) -> None:
    if name not in sources:
        known = sorted(sources, key=lambda each: (each != DEFAULT, each))
        raise TemplateInvalid(NAME_OVERRIDE, f"{name}: no such template, known: {', '.join(known) or 'none'}")
