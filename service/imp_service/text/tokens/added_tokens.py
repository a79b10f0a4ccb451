"""How the spelling of an added token is found in a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import AddedToken


@dataclass(frozen=True, slots=True)
class Matching:
    """The flags that the tokenizer library has for an added token."""

    # The token takes the white space before it, or behind it, out of the text.
    strips_left: bool = False
    strips_right: bool = False
    # A letter or digit on either side makes it text.
    is_whole_word: bool = False
    # It is looked for in the normalized text.
    is_normalized: bool = False


AS_SPELLED = Matching()
# By token id; ids that are missing are found as they are spelled.
Matchings = Mapping[int, Matching]


def library_token(text: str, matching: Matching, *, special: bool = False) -> AddedToken:
    """The library's object for a spelling."""
    return AddedToken(
        text,
        lstrip=matching.strips_left,
        rstrip=matching.strips_right,
        single_word=matching.is_whole_word,
        normalized=matching.is_normalized,
        special=special,
    )
