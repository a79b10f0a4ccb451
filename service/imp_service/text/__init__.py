"""Text and tokens: tokenizer, chat template, streaming text, stop strings, constraints. Knows no engine and no RPC."""

from imp_service.text.chat_prompt import ChatMessage, ChatPrompt
from imp_service.text.chat_template import ChatTemplate, RenderedChat
from imp_service.text.constraint import ConstraintCompiler, ConstraintKind, ConstraintSpec
from imp_service.text.constraint_state import ConstraintProgram, ConstraintState
from imp_service.text.errors import (
    FieldInvalid,
    NativePanic,
    NoChatTemplate,
    TemplateFailed,
    TemplateInvalid,
    TextError,
    TokenizerInvalid,
    UnknownPreTokenizer,
)
from imp_service.text.limits import TextLimits
from imp_service.text.stop_matcher import StopStrings
from imp_service.text.text_stream import NO_STOP, StopRules, StreamMark, TextDelta, TextStream
from imp_service.text.tokenizer import Encoding, TextSpan, Tokenizer

__all__ = [
    "NO_STOP",
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
    "TemplateFailed",
    "TemplateInvalid",
    "TextDelta",
    "TextError",
    "TextLimits",
    "TextSpan",
    "TextStream",
    "Tokenizer",
    "TokenizerInvalid",
    "UnknownPreTokenizer",
]
