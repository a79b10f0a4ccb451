"""Text and tokens: tokenizer, chat template, streaming text, stop strings, constraints. Knows no engine and no RPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imp_service.text.chat_prompt import ChatMessage, ChatPrompt
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
from imp_service.text.template_choice import TEMPLATE_KEY, TemplateChoice
from imp_service.text.text_stream import NO_STOP, StopRules, StreamMark, TextDelta, TextStream
from imp_service.text.tokenizer import Encoding, TextSpan, Tokenizer

if TYPE_CHECKING:
    from imp_service.text.chat_template import ChatTemplate, RenderedChat
    from imp_service.text.constraint import ConstraintCompiler
    from imp_service.text.constraint_grammar import ConstraintKind, ConstraintSpec
    from imp_service.text.constraint_program import ConstraintProgram
    from imp_service.text.constraint_state import ConstraintState

__all__ = [
    "NO_STOP",
    "TEMPLATE_KEY",
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

# jinja2 and llguidance cost a tenth of a second; who only continues a text needs neither.
_MODULES = {
    "ChatTemplate": "chat_template",
    "RenderedChat": "chat_template",
    "ConstraintCompiler": "constraint",
    "ConstraintKind": "constraint_grammar",
    "ConstraintProgram": "constraint_program",
    "ConstraintSpec": "constraint_grammar",
    "ConstraintState": "constraint_state",
}


def __getattr__(name: str) -> Any:
    """Names whose modules are imported when they are first used."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"imp_service.text.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'imp_service.text' has no attribute {name!r}")
