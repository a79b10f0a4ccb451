"""A query and a document as one input of a reranker: two texts with ids around them, or a text that asks about both."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from imp_service.generation.input_lengths import LengthRule
from imp_service.text import TextSpan, Tokenizer
from imp_service.text.tokens.pair_form import PairForm


@dataclass(frozen=True, slots=True)
class InputPlan:
    """One input, ready for the engine."""

    ids: list[int]
    second_text: int | None = None  # tokens from here on have type 1
    is_cut: bool = False


class PairReader(ABC):
    """Makes inputs of pairs. May be used from any thread."""

    takes_instruction = False

    @abstractmethod
    def plan(
        self, pair: tuple[str, str], rule: LengthRule, index: int, *, most_of_document: int | None, instruction: str
    ) -> InputPlan:
        """One pair. Of one that is too long the document is cut."""


class FormedPairs(PairReader):
    """Two texts with the ids around them that the tokenizer's files state."""

    def __init__(self, tokenizer: Tokenizer, form: PairForm) -> None:
        self._tokenizer = tokenizer
        self._form = form
        # The query is that of many documents.
        self._ids_of_query = lru_cache(maxsize=8)(self._ids)

    def plan(
        self, pair: tuple[str, str], rule: LengthRule, index: int, *, most_of_document: int | None, instruction: str
    ) -> InputPlan:
        query, document = self._ids_of_query(pair[0]), self._ids(pair[1])
        kept = rule.cut(document[:most_of_document], self._form.n_added + len(query), index)
        ids, second_text = self._form.joined(query, kept)
        return InputPlan(ids, second_text, is_cut=len(kept) < len(document))

    def _ids(self, text: str) -> Sequence[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)


# What Qwen3-Reranker reads, as the pages of its models state it.
QWEN3_TEMPLATE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
# The key of a GGUF file with such a text.
TEMPLATE_KEY = "tokenizer.chat_template.rerank"
_INSTRUCT = re.compile(r"(.*<Instruct>: )([^\n]*)(\n.*)", re.DOTALL)


class TemplatePairs(PairReader):
    """A text with places for a query, a document and perhaps an instruction, none of which become special tokens."""

    def __init__(self, tokenizer: Tokenizer, template: str) -> None:
        """Raises ValueError if the text has no place for a query and a document behind it."""
        head, found, rest = template.partition("{query}")
        middle, has_document, tail = rest.partition("{document}")
        if not (found and has_document):
            raise ValueError("expected {query} and then {document}")
        self._tokenizer = tokenizer
        self._head, self._middle = head, middle
        self._place = _INSTRUCT.fullmatch(head)
        self.takes_instruction = self._place is not None
        self._tail = self._encoded([TextSpan(tail, True)])
        self._ids_before = lru_cache(maxsize=8)(self._encoded_before)

    def plan(
        self, pair: tuple[str, str], rule: LengthRule, index: int, *, most_of_document: int | None, instruction: str
    ) -> InputPlan:
        query, document = pair
        body = self._encoded([*self._before(query, instruction), TextSpan(document, False)])
        n_before = _n_alike(body, self._ids_before(query, instruction))
        before, rest = body[:n_before], body[n_before:]
        kept = rule.cut(rest[:most_of_document], n_before + len(self._tail), index)
        return InputPlan([*before, *kept, *self._tail], is_cut=len(kept) < len(rest))

    def _before(self, query: str, instruction: str) -> list[TextSpan]:
        head = [TextSpan(self._head, True)]
        if instruction and self._place is not None:
            before, _, after = self._place.groups()
            head = [TextSpan(before, True), TextSpan(instruction, False), TextSpan(after, True)]
        return [*head, TextSpan(query, False), TextSpan(self._middle, True)]

    def _encoded_before(self, query: str, instruction: str) -> list[int]:
        return self._encoded(self._before(query, instruction))

    def _encoded(self, spans: Sequence[TextSpan]) -> list[int]:
        return self._tokenizer.encode_spans(spans, add_special_tokens=False)


def _n_alike(ids: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens at the beginning are the same. The first word of a document may join the space before it."""
    pairs = zip(ids, others, strict=False)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(ids), len(others)))


def find_pair_reader(tokenizer: Tokenizer, metadata: Mapping[str, object], architecture: str) -> PairReader | None:
    """How a model reads pairs; None: neither its files nor imp say it."""
    template = metadata.get(TEMPLATE_KEY)
    if isinstance(template, str):
        try:
            return TemplatePairs(tokenizer, template)
        except ValueError:
            return None
    if architecture == "qwen3":
        return TemplatePairs(tokenizer, QWEN3_TEMPLATE)
    form = tokenizer.pair_form
    return None if form is None else FormedPairs(tokenizer, form)
