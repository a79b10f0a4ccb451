"""How the spelling of an added token is found in a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import AddedToken


@dataclass(frozen=True, slots=True)
class MatchRule:
    """The flags that the tokenizer library has for an added token."""

    # The token takes the white space before it, or after it, out of the text.
    strips_left: bool = False
    strips_right: bool = False
    # A letter or digit on either side makes it text.
    is_whole_word: bool = False
    # It is looked for in the normalized text.
    is_normalized: bool = False


AS_SPELLED = MatchRule()
# By token id; ids that are missing are found as they are spelled.
MatchRules = Mapping[int, MatchRule]


def library_token(text: str, match_rule: MatchRule, *, special: bool = False) -> AddedToken:
    """The library's object for a spelling."""
    return AddedToken(
        text,
        lstrip=match_rule.strips_left,
        rstrip=match_rule.strips_right,
        single_word=match_rule.is_whole_word,
        normalized=match_rule.is_normalized,
        special=special,
    )
