"""The rules of a generation's values, which are the same in every API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from imp_service.api.errors import Violation
from imp_service.generation.validate import (
    MAX_SALT_BYTES,
    SEQUENCES,
    TOP_LOGPROBS,
    Bounds,
    drafter_violations,
    tool_choice_violations,
)
from imp_service.serving.prompt_cost import chat_bytes
from imp_service.serving.refusal import Refusal
from imp_service.serving.rules.kinds import (
    AtMost,
    Entries,
    Feature,
    Finding,
    Limit,
    ModelName,
    Name,
    Number,
    Rule,
    Seconds,
    Text,
    Texts,
    TokenIds,
)
from imp_service.serving.served_model import ServedModel
from imp_service.text import ChatPrompt
from imp_service.text.limits import TextLimits
from imp_service.text.templates.chat_prompt import MAX_MESSAGES, find_violations

_TEXT = TextLimits()


class Drafters(Rule):
    """A choice among the server's drafters: those that are there."""

    def check(self, value: Sequence[str], path: str, served: ServedModel) -> Iterator[Finding]:
        wrong = list(drafter_violations(value, path))
        yield from wrong
        missing = next((name for name in value if name not in served.drafters), None)
        if missing is not None and not wrong:
            yield Refusal("FEATURE_DISABLED", f"{path}: {missing} is not served here", {"feature": path})


class Chat(Rule):
    """A conversation: the rules of imp_service.text, and the size of all its texts."""

    def check(self, value: ChatPrompt, path: str, served: ServedModel) -> Iterator[Finding]:
        for error in find_violations(value, path):
            yield Violation(error.path, error.message)
        n_bytes, most = chat_bytes(value), served.settings.limits.max_prompt_bytes
        if n_bytes > most:
            yield Violation(path, f"{n_bytes} bytes in all, expected at most {most}")


class ConstraintKind(Rule):
    """A kind of constraint that the model supports."""

    def check(self, value: str, path: str, served: ServedModel) -> Iterator[Finding]:
        if value not in served.constraints:
            yield Refusal("NOT_SUPPORTED_BY_MODEL", f"{path}: not supported by this model", {"feature": path})


class ToolChoice(Rule):
    """Whether the model calls a tool, and which one."""

    def check(self, value: str, path: str, served: ServedModel) -> Iterator[Finding]:
        yield from tool_choice_violations(value, path)


def prompt_bytes(served: ServedModel) -> float:
    """The most bytes of a prompt."""
    return served.settings.limits.max_prompt_bytes


def up_to(most: int) -> Limit:
    """The same limit whatever the settings."""
    return lambda served: most


REQUEST_ID, MODEL = Name(), ModelName()
# The messages of a conversation are counted first: too many are not read one by one.
CHAT_MESSAGES, CHAT = Entries(1, MAX_MESSAGES), Chat()
PROMPT_TEXT = Text(1, prompt_bytes)
# All texts of a request with several prompts.
PROMPT_BYTES = AtMost(prompt_bytes, "limits.max_prompt_bytes")
PROMPT_IDS = TokenIds((1, None))
SALT = Text(0, up_to(MAX_SALT_BYTES))
TOOL_CHOICE = ToolChoice()
N_SEQUENCES = Number(SEQUENCES)

DRAFTERS = Drafters()
MAX_TOKENS = AtMost(lambda served: served.settings.limits.max_tokens, "limits.max_tokens")
TIME_LIMIT = Seconds(0, lambda served: served.settings.limits.request_time.total_seconds(), above=True)

CONSTRAINT_KIND = ConstraintKind()
CONSTRAINT_SOURCE = Text(1, lambda served: served.settings.text.constraint_bytes)
REGEX = Text(1, lambda served: served.settings.text.regex_bytes)
CHOICES = Texts(
    (1, _TEXT.choices), Text(1, up_to(_TEXT.choice_bytes)), lambda served: served.settings.text.constraint_bytes
)

N_TOP_LOGPROBS = Number(TOP_LOGPROBS)
PROMPT_LOGPROBS = Feature(
    lambda served: served.settings.features.prompt_logprobs, bool, "features.prompt_logprobs is off"
)
CHUNK_TOKENS = Number(Bounds(1, 1024, whole=True))
CHUNK_DELAY = Seconds(0, up_to(10))

MAX_INPUTS = 256
TOKENIZED_TEXT = Text(0, prompt_bytes)
TOKENIZED_TEXTS = Texts((1, MAX_INPUTS), TOKENIZED_TEXT, prompt_bytes)
# The ids of all lists together.
DETOKENIZED = Entries(0, 1024 * 1024)
