"""The prompts of an embedding model, which come before a text: those of sentence-transformers' configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from imp_service.api.errors import Violation
from imp_service.text import TextSpan

_PREFIX = "sentence_transformers."
_PROMPTS = f"{_PREFIX}prompts."
_DEFAULT = f"{_PREFIX}default_prompt_name"
# A prompt with a place for what the vectors are for, as Qwen3-Embedding and e5-mistral have it.
_INSTRUCT = re.compile(r"(Instruct: )(.*)(\nQuery:.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TextPrompts:
    """The prompts by their names, and the one of requests that name none."""

    texts: Mapping[str, str]
    default: str = ""

    @property
    def takes_instruction(self) -> bool:
        """Some prompt has a place for an instruction."""
        return bool(self._with_place)

    @property
    def _with_place(self) -> Sequence[str]:
        return [name for name, text in self.texts.items() if _INSTRUCT.fullmatch(text)]

    def violations(self, name: str, instruction: str) -> list[Violation]:
        """What is wrong with the options of a request."""
        if name and name not in self.texts:
            known = f"expected one of {', '.join(self.texts)}" if self.texts else "this model has no prompts"
            return [Violation("prompt_name", f"{name!r:.80}, {known}")]
        if instruction and not (self._with_place if not name else _INSTRUCT.fullmatch(self.texts[name])):
            owner = f"the prompt {name}" if name else "this model"
            return [Violation("instruction", f"set, but {owner} has no place for it")]
        return []

    def spans(self, name: str, instruction: str) -> list[TextSpan]:
        """What comes before a text. Special tokens in the model's own words are tokens, those in others are text."""
        chosen = name or (self._with_place[0] if instruction else self.default)
        text = self.texts.get(chosen, "")
        found = _INSTRUCT.fullmatch(text) if instruction else None
        if found is not None:
            before, _, after = found.groups()
            return [TextSpan(before, True), TextSpan(instruction, False), TextSpan(after, True)]
        return [TextSpan(text, True)] if text else []


def read_text_prompts(metadata: Mapping[str, object]) -> TextPrompts:
    """The prompts that the files of a model name."""
    found = {
        key.removeprefix(_PROMPTS): text
        for key, text in metadata.items()
        if key.startswith(_PROMPTS) and isinstance(text, str)
    }
    default = metadata.get(_DEFAULT)
    return TextPrompts(found, default if isinstance(default, str) and default in found else "")
