"""Finds special tokens that are spelled in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer, models, normalizers

from imp_service.text.errors import native_boundary
from imp_service.text.tokens.added_tokens import AS_SPELLED, MatchRule, library_token
from imp_service.text.tokens.piece_types import TokenType
from imp_service.text.tokens.special_tokens import WHITE_SPACE
from imp_service.text.tokens.text_cuts import TextPart
from imp_service.text.tokens.vocabulary import Vocabulary

_WORD = re.compile(r"\w")
_OTHER = "rest"
# The space that a normalizer puts before a segment, where a token begins with the segment's own first space.
_INSERTED = TextPart("", " ", takes_prefix=False)


@dataclass(frozen=True, slots=True)
class Found:
    """A special token, and the text that it takes the place of: its spelling and the blanks that it strips."""

    token_id: int
    text: str


class Splitter:
    """The special tokens of one vocabulary. May be used from any thread.

    The tokenizer library looks for the spellings: leftmost and longest, in one linear pass.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        normalizer: normalizers.Normalizer | None = None,
        *,
        types: Sequence[TokenType] = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED),
    ) -> None:
        """`normalizer` is the one that comes before tokens which are looked for in normalized text.

        `types` are those of the tokens to find: control tokens, and those that are found in any text.
        """
        spellings = _parsed_spellings(vocabulary, types)
        spellings.pop(_OTHER, None)
        self._match_rules = vocabulary.match_rules
        self._library = Tokenizer(models.WordLevel({_OTHER: 0}, unk_token=_OTHER))
        if normalizer is not None:
            self._library.normalizer = normalizer
        self._blanks = WHITE_SPACE if normalizer is None else _blanks_of(normalizer)
        self._library.add_tokens([library_token(text, self._match_rule(i)) for text, i in spellings.items()])
        # By the library's own ids; the segments between are its id 0.
        self._ids = (-1, *spellings.values())

    def split(self, text: str, *, before: str, after: str, begins_segment: bool) -> Iterator[Found | TextPart | str]:
        """The special tokens in a text, and what is between them. `before` and `after` are the text around it.

        `begins_segment`: the text is normalized apart from the text before it. Even if it is not, a normalized token at
        its beginning is found: the token may be the template's, after text of a caller.
        """
        with native_boundary("tokenizers"):
            found = self._library.encode(text, add_special_tokens=False)
        position, rest = 0, -1
        for split_id, (start, end) in zip(found.ids, found.offsets, strict=True):
            if split_id == 0:
                rest = start
                continue
            if self._match_rule(self._ids[split_id]).is_whole_word and (
                (start == 0 and _ends_as_word(before)) or (end == len(text) and _begins_as_word(after))
            ):
                continue
            if start > position:
                yield text[position:start]
            elif start == rest and (begins_segment or position):
                yield _INSERTED
            yield Found(self._ids[split_id], text[start:end])
            position = end
        if position < len(text):
            yield text[position:]

    def strips_left(self, token_id: int) -> str:
        """The characters that the token takes out of the text before it, also across the border of two spans."""
        return self._blanks_beside(token_id) if self._match_rule(token_id).strips_left else ""

    def strips_right(self, token_id: int) -> str:
        """The characters that the token takes out of the text after it."""
        return self._blanks_beside(token_id) if self._match_rule(token_id).strips_right else ""

    def ends_segment(self, token_id: int) -> bool:
        """The text after it is normalized apart from the text before it."""
        return not self._match_rule(token_id).is_normalized

    def _blanks_beside(self, token_id: int) -> str:
        """The white space of the text in which the token is searched."""
        return self._blanks if self._match_rule(token_id).is_normalized else WHITE_SPACE

    def _match_rule(self, token_id: int) -> MatchRule:
        return self._match_rules.get(token_id, AS_SPELLED)


def _blanks_of(normalizer: normalizers.Normalizer) -> str:
    """The white space that is still white space in normalized text."""
    kept = (blank for blank in WHITE_SPACE if set(normalizer.normalize_str(f"a{blank}a")) & set(WHITE_SPACE))
    return "".join(kept)


def _ends_as_word(text: str) -> bool:
    return bool(text) and _WORD.match(text[-1]) is not None


def _begins_as_word(text: str) -> bool:
    return _WORD.match(text) is not None


def _parsed_spellings(vocabulary: Vocabulary, types: Sequence[TokenType]) -> dict[str, int]:
    """The tokens to search if special tokens are parsed."""
    parsed = np.isin(vocabulary.types, types)
    spellings: dict[str, int] = {}
    for token_id in parsed.nonzero()[0].tolist():
        try:
            text = vocabulary.token_bytes[token_id].decode()
        except UnicodeDecodeError:
            continue
        if text:
            spellings.setdefault(text, token_id)
    return spellings
