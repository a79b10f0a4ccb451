"""Text and tokens: tokenizer, chat template, streaming text, stop strings, constraints. Knows no engine and no RPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imp_service.api.chat_prompt import ChatMessage, ChatPrompt
from imp_service.api.constraint_spec import ConstraintKind, ConstraintSpec
from imp_service.text.errors import (
    FieldInvalid,
    NativePanic,
    NoChatTemplate,
    TemplateFailed,
    TemplateInvalid,
    TextError,
    TokenizerInvalid,
    TooManyTokens,
    UnknownPreTokenizer,
)
from imp_service.text.limits import TextLimits
from imp_service.text.stop_matcher import StopStrings
from imp_service.text.templates.choice import TemplateChoice
from imp_service.text.text_stream import NO_STOP, StopRules, StreamMark, TextDelta, TextStream
from imp_service.text.tokens.segments import TextSpan
from imp_service.text.tokens.tokenizer import Encoding, Tokenizer

if TYPE_CHECKING:
    from imp_service.text.constraints.compiler import ConstraintCompiler
    from imp_service.text.constraints.program import ConstraintProgram
    from imp_service.text.constraints.state import Ahead, ConstraintState
    from imp_service.text.templates.chat_template import ChatTemplate, RenderedChat

__all__ = [
    "NO_STOP",
    "Ahead",
    "ChatMessage",
    "ChatPrompt",
    "ChatTemplate",
    "ConstraintCompiler",
    "ConstraintKind",
    "ConstraintProgram",
    "ConstraintSpec",
    "ConstraintState",
    "Encoding",
    "FieldInvalid",
    "NativePanic",
    "NoChatTemplate",
    "RenderedChat",
    "StopRules",
    "StopStrings",
    "StreamMark",
    "TemplateChoice",
    "TemplateFailed",
    "TemplateInvalid",
    "TextDelta",
    "TextError",
    "TextLimits",
    "TextSpan",
    "TextStream",
    "Tokenizer",
    "TokenizerInvalid",
    "TooManyTokens",
    "UnknownPreTokenizer",
]

# jinja2 and llguidance take a tenth of a second to import. A plain continuation of a text needs neither.
_MODULES = {
    "Ahead": "constraints.state",
    "ChatTemplate": "templates.chat_template",
    "RenderedChat": "templates.chat_template",
    "ConstraintCompiler": "constraints.compiler",
    "ConstraintProgram": "constraints.program",
    "ConstraintState": "constraints.state",
}


def __getattr__(name: str) -> Any:
    """Names whose modules are imported when they are first used."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"imp_service.text.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'imp_service.text' has no attribute {name!r}")
