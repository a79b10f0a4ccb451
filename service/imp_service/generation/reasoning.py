"""The most tokens of a generation's reasoning: what the engine must know of the model's markers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.api.options import GenerationRequest
from imp_service.core import Marker, Section, SectionBudget, make_error
from imp_service.generation.limits import MOST_OUTPUTS
from imp_service.generation.text_side import BUDGET, NO_REASONING, TextSide
from imp_service.text.channels.call_constraint import CallConstraint
from imp_service.text.channels.dialect import Reasoning
from imp_service.text.channels.find_dialect import opens_reasoning
from imp_service.text.channels.marker_steps import steps_anywhere, steps_at_start

if TYPE_CHECKING:
    from imp_service.text import Tokenizer
    from imp_service.text.tokens.detokenizer import TokenTable

NO_BUDGET = SectionBudget()
# The end of a prompt shows whether it opens the reasoning.
LAST_TOKENS = 32


def reasoning_budget(request: GenerationRequest, text: TextSide, prompt_ids: Sequence[int]) -> SectionBudget:
    """The budget of a request. Raises NOT_SUPPORTED_BY_MODEL if the model's family writes no reasoning."""
    most = request.max_reasoning_tokens
    if most is None:
        return NO_BUDGET
    section = text.reasoning_section
    if section is None:
        raise make_error("NOT_SUPPORTED_BY_MODEL", f"{BUDGET}: {NO_REASONING}", {"feature": BUDGET})
    constraint = request.constraint
    if constraint is not None and not (isinstance(constraint, CallConstraint) and constraint.in_reasoning):
        return NO_BUDGET  # it allows no reasoning
    is_open = opens_reasoning(text.dialect, prompt_end(text.tokenizer, prompt_ids))
    return SectionBudget(section, min(most, MOST_OUTPUTS), is_open=is_open)


def prompt_end(tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> str:
    """The end of a prompt, with its special tokens."""
    return tokenizer.decode(prompt_ids[-LAST_TOKENS:], special_tokens=True)


def section_of(reasoning: Reasoning, tokenizer: Tokenizer, table: TokenTable) -> Section:
    """The section of a model's outputs between its markers. Looks at every token, which takes a moment."""
    shown = [b"" if token in table.special else data for token, data in enumerate(table.token_bytes)]
    begin, end = reasoning.begin.text.encode(), reasoning.end.text.encode()
    steps = steps_anywhere(begin, shown) if reasoning.recurs else steps_at_start(begin, shown)
    return Section(
        Marker(len(begin), steps, is_first=not reasoning.recurs),
        Marker(len(end), steps_anywhere(end, shown)),
        _closings(tokenizer, end),
        recurs=reasoning.recurs,
    )


def _closings(tokenizer: Tokenizer, end: bytes) -> list[list[int]]:
    """The tokens of the marker, or of what is left of it after each number of its bytes.

    If the marker is one token, it is written whole: the model knows no other spelling.
    """
    whole = _written(tokenizer, end.decode())
    if len(whole) == 1:
        return [whole] * len(end)
    is_cut_in_character = [byte & 0xC0 == 0x80 for byte in end]
    return [whole if is_cut else _written(tokenizer, end[n:].decode()) for n, is_cut in enumerate(is_cut_in_character)]


def _written(tokenizer: Tokenizer, text: str) -> list[int]:
    ids = tokenizer.encode(text, add_special_tokens=False, parse_special_tokens=True)
    return ids if len(ids) == 1 or not tokenizer.table.adds_space_prefix else tokenizer.encode_rest(text)
