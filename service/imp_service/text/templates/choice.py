"""Chooses a chat template: the one that the settings name, or else by whether the conversation has tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from imp_service.api.chat_prompt import ChatPrompt
from imp_service.text.errors import TemplateInvalid
from imp_service.text.limits import TextLimits
from imp_service.text.templates.chat_prompt import offers_tools
from imp_service.text.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from imp_service.text.templates.chat_template import ChatTemplate

TEMPLATE_KEY = "tokenizer.chat_template"
NAME_OVERRIDE = "model.overrides.chat_template_name"
FILE_OVERRIDE = "model.overrides.chat_template"
# Where a file has several: the one that it names for conversations with tools.
_TOOLS_KEY = f"{TEMPLATE_KEY}.tool_use"


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
        self._metadata = metadata if file is None else {FILE_OVERRIDE: file}
        self._tokenizer = tokenizer
        self._limits = limits
        self._outcomes: dict[str, ChatTemplate | TemplateInvalid] = {}
        self.is_named = file is not None or name is not None
        if file is not None:
            self._default = self._with_tools = FILE_OVERRIDE
        elif name is not None:
            self._default = self._with_tools = _key_of(name, metadata)
        else:
            self._default = TEMPLATE_KEY
            self._with_tools = _TOOLS_KEY if _TOOLS_KEY in metadata else TEMPLATE_KEY

    def of(self, chat: ChatPrompt) -> ChatTemplate:
        """The template of a conversation; raises NoChatTemplate or TemplateInvalid."""
        return self.with_tools if self._with_tools != self._default and offers_tools(chat) else self.default

    @property
    def source(self) -> str | None:
        """The source of the template for conversations without tools, even if it does not compile; None if missing."""
        source = self._metadata.get(self._default)
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
        templates = [self.default] if self._default in self._metadata else []
        if self._with_tools != self._default:
            templates.append(self.with_tools)
        return [words for template in templates for words in template.warnings]

    def _compiled(self, key: str) -> ChatTemplate:
        """The template under a key, compiled once, even if that fails. Two threads at once may both compile it."""
        outcome = self._outcomes.get(key)
        if outcome is None:
            outcome = self._outcomes[key] = self._compile(key)
        if isinstance(outcome, TemplateInvalid):
            raise TemplateInvalid(outcome.path, outcome.message)
        return outcome

    def _compile(self, key: str) -> ChatTemplate | TemplateInvalid:
        from imp_service.text.templates.chat_template import ChatTemplate

        try:
            return ChatTemplate.from_metadata(self._metadata, self._tokenizer, key=key, limits=self._limits)
        except TemplateInvalid as error:
            return error


def _key_of(name: str, metadata: Mapping[str, object]) -> str:
    key = TEMPLATE_KEY if name == "default" else f"{TEMPLATE_KEY}.{name}"
    if key not in metadata:
        prefix = f"{TEMPLATE_KEY}."
        names = [each.removeprefix(prefix) for each in metadata if each.startswith(prefix)]
        known = [*(["default"] if TEMPLATE_KEY in metadata else []), *sorted(names)]
        raise TemplateInvalid(NAME_OVERRIDE, f"{name}: no such template, known: {', '.join(known) or 'none'}")
    return key
