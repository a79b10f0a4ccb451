"""The rules of a generation and of its prompt, which are the same in every API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from imp_service.api.chat_prompt import InfillPrompt, PromptParts, images_of
from imp_service.api.errors import Violation
from imp_service.api.facts import findings
from imp_service.api.image import Image
from imp_service.api.options import GenerationRequest, Prompt
from imp_service.api.rules import Entries, LimitedCount, Name, Text, Texts, TokenIds
from imp_service.generation.infill import NO_INFILL
from imp_service.generation.prompt_images import LEFT_OUT, NOT_IN_MODEL, number_violations
from imp_service.generation.text_side import BUDGET, NO_REASONING
from imp_service.serving.prompt_cost import chat_bytes, reading_bytes
from imp_service.serving.refusal import Refusal
from imp_service.serving.rules.check import Finding
from imp_service.serving.served_model import ServedModel
from imp_service.text import ChatPrompt, ConstraintKind, ConstraintSpec
from imp_service.text.limits import TextLimits
from imp_service.text.templates.chat_prompt import MAX_MESSAGES, find_violations

MAX_MODEL_NAME_BYTES = 256
_TEXT = TextLimits()


class ServedRule(Protocol):
    """A rule of api.rules, or one that needs to know more of the served model."""

    def check(self, value: Any, path: str, served: ServedModel, /) -> Iterable[Finding]:
        """Yields what is wrong with the value; nothing if it is valid."""


class ModelName:
    """A name of the served model."""

    def check(self, value: str, path: str, served: ServedModel) -> Iterator[Finding]:
        n_bytes = len(value.encode())
        if n_bytes > MAX_MODEL_NAME_BYTES:
            yield Violation(path, f"{n_bytes} bytes, expected at most {MAX_MODEL_NAME_BYTES}")
        elif value not in served.names:
            names = ", ".join(served.names)
            yield Refusal("MODEL_NOT_SERVED", f"{path}: this model is not served here", {"served": names})


class ChatRule:
    """A conversation: the rules of imp_service.text, and the size of all its texts."""

    def check(self, value: ChatPrompt, path: str, served: ServedModel) -> Iterator[Finding]:
        if too_many := list(MESSAGES.check(value.messages, f"{path}.messages", served)):
            yield from too_many  # not read one by one
            return
        for error in find_violations(value, path):
            yield Violation(error.path, error.message)
        n_bytes, most = chat_bytes(value), served.settings.limits.max_prompt_bytes
        if n_bytes > most:
            yield Violation(path, f"{n_bytes} bytes in all, expected at most {most}")
        yield from image_findings(value, path, served)


class PromptPartsRule:
    """A prompt in parts: the rules of a text and of token ids for each, and the size of all texts."""

    def check(self, value: PromptParts, path: str, served: ServedModel) -> Iterator[Finding]:
        if too_many := list(PARTS_COUNT.check(value.parts, f"{path}.parts", served)):
            yield from too_many  # not read one by one
            return
        for i, part in enumerate(value.parts):
            if not isinstance(part, str | Image):
                yield from PROMPT_IDS.check(part, f"{path}.parts[{i}].token_ids", served)
        n_bytes, most = reading_bytes(value, renders_quickly=True), served.settings.limits.max_prompt_bytes
        if n_bytes > most:
            yield Violation(path, f"{n_bytes} bytes in all, expected at most {most}")
        yield from image_findings(value, path, served)


class GapRule:
    """A text with a gap: the size of all texts, and whether the model fills gaps."""

    def check(self, value: InfillPrompt, path: str, served: ServedModel) -> Iterator[Finding]:
        if not served.fills_gaps:
            yield Refusal("NOT_SUPPORTED_BY_MODEL", f"{path}: {NO_INFILL}", {"feature": path})
        if too_many := list(FILES.check(value.files, f"{path}.files", served)):
            yield from too_many  # not read one by one
            return
        yield from PROMPT_BYTES.check(reading_bytes(value, renders_quickly=True), path, served)


def image_findings(prompt: Prompt, path: str, served: ServedModel) -> Iterator[Finding]:
    """Whether the model takes a prompt's images, and so many."""
    paths = [each for each, _ in images_of(prompt, path)]
    if paths and served.images is None:
        reason, words = NOT_IN_MODEL if served.settings.model.vision else LEFT_OUT
        yield Refusal(reason, f"{paths[0]}: {words}", {"feature": paths[0]})
    elif served.images is not None:
        yield from number_violations(paths, served.images)


class ConstraintRule:
    """A constraint of a kind that the model supports, and the size of its texts."""

    def check(self, value: ConstraintSpec, path: str, served: ServedModel) -> Iterator[Finding]:
        path = f"{path}.{value.kind.value}"
        if value.kind.value not in served.constraints:
            yield Refusal("NOT_SUPPORTED_BY_MODEL", f"{path}: not supported by this model", {"feature": path})
        match value.kind:
            case ConstraintKind.CHOICES:
                yield from CHOICES.check(value.choices, f"{path}.values", served)
            case ConstraintKind.REGEX:
                yield from REGEX.check(value.source, path, served)
            case ConstraintKind.JSON_SCHEMA | ConstraintKind.GBNF:
                yield from CONSTRAINT_SOURCE.check(value.source, path, served)


def generation_findings(request: GenerationRequest, served: ServedModel, path: str = "") -> Iterator[Finding]:
    """Everything that is wrong with a request, but for its prompt."""
    yield from findings(request, served, path)
    if request.max_reasoning_tokens is not None and not served.reasons:
        where = f"{path}.{BUDGET}" if path else BUDGET
        yield Refusal("NOT_SUPPORTED_BY_MODEL", f"{where}: {NO_REASONING}", {"feature": where})
    if isinstance(request.constraint, ConstraintSpec):
        yield from CONSTRAINT.check(request.constraint, f"{path}.constraint" if path else "constraint", served)


REQUEST_ID, MODEL = Name(), ModelName()
MESSAGES, CHAT = Entries(1, MAX_MESSAGES), ChatRule()
PARTS_COUNT, PARTS = Entries(1, MAX_MESSAGES), PromptPartsRule()
FILES, INFILL = Entries(0, MAX_MESSAGES), GapRule()
PROMPT_TEXT = Text(1, "limits.max_prompt_bytes")
# All texts of a request with several prompts.
PROMPT_BYTES = LimitedCount("limits.max_prompt_bytes")
PROMPT_IDS = TokenIds(1)

CONSTRAINT = ConstraintRule()
CONSTRAINT_SOURCE = Text(1, "text.constraint_bytes")
REGEX = Text(1, "text.regex_bytes")
CHOICES = Texts((1, _TEXT.choices), Text(1, _TEXT.choice_bytes), "text.constraint_bytes")

MAX_INPUTS = 256
TOKENIZED_TEXT = Text(0, "limits.max_prompt_bytes")
TOKENIZED_TEXTS = Texts((1, MAX_INPUTS), TOKENIZED_TEXT, "limits.max_prompt_bytes")
# The ids of all lists together.
DETOKENIZED = Entries(0, 1024 * 1024)
