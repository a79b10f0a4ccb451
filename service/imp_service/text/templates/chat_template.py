"""A model's chat template, compiled once. Of the text it renders, only its own text can become special tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from jinja2 import Template, TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError, TemplateRuntimeError, UndefinedError

from imp_service.api.chat_prompt import ChatPrompt
from imp_service.text.errors import FieldInvalid, NoChatTemplate, TemplateFailed, TemplateInvalid
from imp_service.text.limits import TextLimits
from imp_service.text.templates.budget import Budget
from imp_service.text.templates.chat_prompt import find_violations, template_variables, with_empty_content
from imp_service.text.templates.environment import DATE, RaisedByTemplate, TemplateEnvironment, dates
from imp_service.text.templates.template_text import TemplateText, cut_text, join_printed
from imp_service.text.tokens.metadata import TEMPLATE_KEY
from imp_service.text.tokens.segments import TextSpan
from imp_service.text.tokens.tokenizer import Tokenizer

_MAX_MESSAGE_BYTES = 200
_QUOTED = re.compile(r"'([^']*)'")
_TYPE_NAMES = frozenset({"dict object", "list object", "str object", "int object", "None"})
# Unicode's noncharacters. One that the conversation does not contain marks the end of its last message.
_NONCHARACTERS = tuple(chr(point) for point in range(0xFDD0, 0xFDF0))


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A prompt. `text` is the concatenated `spans`; each span says whether it may contain special tokens."""

    text: str
    spans: tuple[TextSpan, ...]


class ChatTemplate:
    """Immutable once built; renders on any thread. Rendering takes time: keep it off an event loop."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str],
        *,
        key: str = TEMPLATE_KEY,
        limits: TextLimits | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """`special_tokens` are variables such as bos_token. Their text counts as written by the template.

        `key` names the template in errors.
        """
        self._source = source
        self._limits = limits or TextLimits()
        self._special_tokens = {name: TemplateText.trusted(text) for name, text in special_tokens.items()}
        environment = TemplateEnvironment(now)
        self._template = _compile(environment, source, key, self._limits)
        # Unknown filters and tests: a rendering that reaches one fails.
        self.warnings = tuple(f"{key}: {words}" for words in environment.unknown_names)

    @classmethod
    def from_metadata(
        cls,
        metadata: Mapping[str, object],
        tokenizer: Tokenizer,
        *,
        key: str = TEMPLATE_KEY,
        limits: TextLimits | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> ChatTemplate:
        """The template under a key of a model file. Raises `NoChatTemplate` if there is none."""
        source = metadata.get(key)
        if source is None:
            raise NoChatTemplate("chat", "the model has no chat template")
        if isinstance(source, bytes):
            try:
                source = source.decode()
            except UnicodeDecodeError as error:
                raise TemplateInvalid(key, "not UTF-8") from error
        if not isinstance(source, str):
            raise TemplateInvalid(key, f"expected a string, found {type(source).__name__}")
        return cls(source, tokenizer.roles, key=key, limits=limits, now=now)

    @property
    def source(self) -> str:
        """The template's own text."""
        return self._source

    def render(self, chat: ChatPrompt, *, in_parts: bool = False, at: float | None = None) -> RenderedChat:
        """The prompt. Raises `FieldInvalid` for an invalid conversation, `TemplateFailed` if rendering fails.

        `in_parts`: the template gets each message's content as a list of parts. `at`: the time that it may write, in
        seconds since 1970; None: now.
        """
        for violation in find_violations(chat):
            raise violation
        variables = template_variables(chat, in_parts=in_parts) | self._special_tokens
        if at is not None:
            variables[DATE] = dates(lambda: datetime.fromtimestamp(at))
        marker = _mark_end(chat, variables) if chat.continue_final_message else None
        text = self._run_with_nulls(variables)
        if marker is not None:
            if text.count(marker) != 1:
                raise TemplateFailed("chat", "the template does not render the final message once, to continue it")
            text = cut_text(text, 0, text.index(marker))
        spans = tuple(TextSpan(part, trusted) for part, trusted in text.spans())
        return RenderedChat("".join(span.text for span in spans), spans)

    def _run_with_nulls(self, variables: dict[str, object]) -> TemplateText:
        """Renders. A template that fails on messages without content gets empty content."""
        try:
            return self._run(variables)
        except TemplateFailed:
            filled = with_empty_content(variables)
            if filled is None:
                raise
            return self._run(filled)

    def _run(self, variables: dict[str, object]) -> TemplateText:
        context = self._template.new_context(variables)
        context.budget = Budget(self._limits)  # type: ignore[attr-defined]
        try:
            return join_printed(self._measured(self._template.root_render_func(context)))
        except TemplateFailed:
            raise
        except RaisedByTemplate as error:
            raise TemplateFailed("chat", _shown(error.message or "")) from error
        except (UndefinedError, SecurityError, TemplateRuntimeError) as error:
            raise TemplateFailed("chat", self._without_quotes(error)) from error
        except RecursionError as error:
            raise TemplateFailed("chat", "nested too deep") from error
        except Exception as error:
            # Its message may quote the conversation.
            raise TemplateFailed("chat", f"{type(error).__name__} in the template") from error

    def _measured(self, pieces: Iterator[str]) -> Iterator[str]:
        n_bytes = 0
        for piece in pieces:
            n_bytes += len(piece.encode())
            if n_bytes > self._limits.render_bytes:
                raise TemplateFailed("chat", f"more than {self._limits.render_bytes} bytes")
            yield piece

    def _without_quotes(self, error: TemplateError) -> str:
        """The library's message, unless it quotes text that may be the conversation's: text that the template lacks."""
        message = error.message or ""
        is_own = all(quote in self._source or quote in _TYPE_NAMES for quote in _QUOTED.findall(message))
        return _shown(message) if message and is_own else f"{type(error).__name__} in the template"


def _compile(environment: TemplateEnvironment, source: str, key: str, limits: TextLimits) -> Template:
    n_bytes = len(source.encode("utf-8", "surrogatepass"))
    if n_bytes > limits.template_bytes:
        raise TemplateInvalid(key, f"{n_bytes} bytes, limit {limits.template_bytes}")
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as error:
        raise TemplateInvalid(key, f"line {error.lineno}: {_shown(error.message or '')}") from error
    except (TemplateError, RecursionError, MemoryError, SyntaxError, ValueError) as error:
        raise TemplateInvalid(key, f"cannot be compiled: {type(error).__name__}") from error


def _mark_end(chat: ChatPrompt, variables: dict[str, object]) -> str:
    """Appends a character to the final message that occurs nowhere else. The prompt ends at that character."""
    everything = repr(chat)
    marker = next(
        (char for char in _NONCHARACTERS if char not in everything and _escaped(char) not in everything), None
    )
    if marker is None:
        raise FieldInvalid("chat.messages", "hold every noncharacter of U+FDD0 to U+FDEF")
    messages = variables["messages"]
    assert isinstance(messages, list)
    content = messages[-1].get("content", "")
    messages[-1] = {**messages[-1], "content": _ended(content, marker)}
    return marker


def _ended(content: str | list[dict[str, str]], marker: str) -> str | list[dict[str, str]]:
    """The content with a mark at its end. A template may write something between two parts, so it is no part."""
    if isinstance(content, str):
        return content + marker
    *parts, last = content or [{"type": "text", "text": ""}]
    return [*parts, {**last, "text": last["text"] + marker}]


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}"


def _shown(message: str) -> str:
    """A template's message on one line: control characters are escaped, and it has at most 200 bytes."""
    line = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message)
    return line.encode("utf-8", "replace")[:_MAX_MESSAGE_BYTES].decode("utf-8", "ignore")
