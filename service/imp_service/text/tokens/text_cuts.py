"""Cuts a long text into parts. The tokens of the parts, in order, are the tokens of the whole text.

The tokenizer library takes some 100 bytes of memory for each byte of one text. Parts bound that, and they let a reader
stop where the tokens are too many.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tokenizers import pre_tokenizers

from imp_service.text.errors import native_boundary
from imp_service.text.tokens.piece_types import TokenType, VocabularyKind
from imp_service.text.tokens.vocabulary import Vocabulary

# Approximate number of characters of a part.
PART_CHARS = 8 * 1024
# How many words of a window must follow a cut: no pattern looks further ahead.
WORDS_BEYOND = 3
# Composition leaves a third of the bytes at least: the three letters of a Korean syllable, nine bytes, become three.
COMPOSED_BYTES = 3
_SPELLED = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
# By byte. A byte of a character beyond ASCII may be part of a letter.
_BYTES = [bytes((byte,)) for byte in range(256)]
_IS_ASCII_LETTER = np.array([byte.isalpha() for byte in _BYTES])
_MAY_BE_LETTER = np.array([byte.isalpha() or byte >= b"\x80" for byte in _BYTES])
_IS_TEXT = np.array([byte != b"\0" and not byte.isspace() for byte in _BYTES])


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a text, and the text that the library gets for it."""

    text: str
    encoded: str
    # Whether a vocabulary that puts a space before texts puts one before this part.
    takes_prefix: bool = True


class TextCuts:
    """The places where the texts of one vocabulary may be cut. May be used from any thread.

    A cut before a space between two letters is safe if no token contains such a place: no merge reaches across it, and
    neither a pattern of words nor a normalizer looks across it. The same holds for the place after a single line feed.
    If a text has no such place, the pre-tokenizer finds the ends of words.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        pre_tokenizer: pre_tokenizers.PreTokenizer | None,
        *,
        cuts_prefix: bool = True,
        adds_prefix: bool = False,
    ) -> None:
        """`cuts_prefix`: the library puts a space before every part, whether it takes a prefix or not.

        `adds_prefix`: it puts none there.
        """
        self._cuts_prefix = cuts_prefix and not adds_prefix and vocabulary.adds_space_prefix
        self._adds_prefix = adds_prefix and vocabulary.adds_space_prefix
        self._places = _places(vocabulary) if vocabulary.cut_rules.is_allowed else None
        self._words = pre_tokenizer if vocabulary.cut_rules.has_plain_words else None
        self._composes = vocabulary.cut_rules.composes
        self._spellings = _spellings(vocabulary)
        self._longest_spelling = max(map(len, self._spellings), default=0)

    def parts(self, text: str, n_chars: int = PART_CHARS) -> Iterator[str]:
        """The text in parts of about `n_chars`; a segment without a place to cut stays whole."""
        begin = 0
        while begin < len(text):
            end = self._next(text, begin, n_chars) if len(text) - begin > 2 * n_chars else len(text)
            yield text[begin:end]
            begin = end

    def joined(self, pending: list[str], *, takes_prefix: bool) -> Iterator[TextPart]:
        """The pending texts as one part, if there are any. Clears the pending texts.

        If the library would put a space before a part that takes no prefix, the part's own first space is left out.
        """
        text = encoded = "".join(pending)
        pending.clear()
        if self._cuts_prefix and not takes_prefix:
            encoded = text[1:]
        elif self._adds_prefix and takes_prefix:
            encoded = " " + text
        if text:
            yield TextPart(text, encoded, takes_prefix)

    def _next(self, text: str, begin: int, n_chars: int) -> int:
        if self._places is not None:
            found = self._places.search(text, begin + n_chars, begin + 2 * n_chars)
            if found is not None:
                return found.end()
        if self._words is not None:
            for n_window in (2 * n_chars, 8 * n_chars):
                cut = self._cut_at_word(text, begin, n_window)
                if cut is not None:
                    return cut
        if self._places is not None:
            found = self._places.search(text, begin + n_chars)
            if found is not None:
                return found.end()
        return len(text)

    def _cut_at_word(self, text: str, begin: int, n_window: int) -> int | None:
        """Returns the end of a word without a blank on either side; the word is not among the last ones of the window.

        The window begins at a word, because otherwise its first words might not be words of the text.
        """
        assert self._words is not None  # narrows
        window = text[begin : begin + n_window]
        looked_at = text[begin : begin + n_window + self._longest_spelling]
        if any(spelling in looked_at for spelling in self._spellings):
            return None
        if self._composes and not unicodedata.is_normalized("NFC", window):
            return None
        with native_boundary("tokenizers"):
            ends = [end for _, (_, end) in self._words.pre_tokenize_str(window)]
        for end in reversed(ends[:-WORDS_BEYOND]):
            if not window[end - 1].isspace() and not window[end].isspace():
                return begin + end
        return None


def _places(vocabulary: Vocabulary) -> re.Pattern[str] | None:
    """A pattern of the places where a cut is safe, judged by the vocabulary alone; None if there are none."""
    spelled = _spelled(vocabulary)
    # Next to such a token the library starts a new text, and adds a space to it.
    if vocabulary.adds_space_prefix and any(token == b" " or _has_letter_at_an_end(token) for token in spelled):
        return None
    if vocabulary.removes_extra_spaces and not vocabulary.adds_space_prefix:
        return None
    if not (vocabulary.has_all_bytes or vocabulary.cut_rules.splits_at_spaces):
        return None
    joined = np.frombuffer(b"\0" + b"\0".join(vocabulary.token_bytes) + b"\0", np.uint8)
    spaces = (joined[1:-1] == ord(" ")).nonzero()[0] + 1
    before, after = joined[spaces - 1], joined[spaces + 1]
    if (_IS_ASCII_LETTER[before] & _IS_ASCII_LETTER[after]).any():
        return None
    has_others = (_MAY_BE_LETTER[before] & _MAY_BE_LETTER[after]).any()
    letter = "[A-Za-z]" if has_others else r"[^\W\d_]"
    places = [rf"(?<={letter})(?= {letter})"]
    strips_left = any(match_rule.strips_left for match_rule in vocabulary.match_rules.values())
    keeps_feeds = not (vocabulary.adds_space_prefix or vocabulary.removes_extra_spaces or strips_left)
    feeds = (joined[:-1] == ord("\n")).nonzero()[0]
    if keeps_feeds and not _IS_TEXT[joined[feeds + 1]].any():
        places.append(r"(?<=\S\n)(?=\S)")
    return re.compile("|".join(places))


def _has_letter_at_an_end(token: bytes) -> bool:
    return any(end.isalpha() or end >= b"\x80" for end in (token[:1], token[-1:]))


def _spellings(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Tokens that are found in a text before it is split into words."""
    return tuple(token.decode("utf-8", "replace") for token in _spelled(vocabulary) if token)


def _spelled(vocabulary: Vocabulary) -> list[bytes]:
    token_ids = np.isin(vocabulary.types, _SPELLED).nonzero()[0].tolist()
    return [vocabulary.token_bytes[token_id] for token_id in token_ids]


def most_token_bytes(vocabulary: Vocabulary) -> int:
    """The most bytes of text that one token can cover; 0 if no bound is known."""
    is_lossless = vocabulary.kind is VocabularyKind.BYTE_LEVEL or (
        vocabulary.kind is not VocabularyKind.WORD_PIECE
        and not vocabulary.character_map
        and not vocabulary.removes_extra_spaces
        # Otherwise one unknown token covers any number of characters.
        and vocabulary.has_all_bytes
    )
    # A token that strips white space covers any number of blanks.
    strips = any(match_rule.strips_left or match_rule.strips_right for match_rule in vocabulary.match_rules.values())
    if not is_lossless or strips or not vocabulary.cut_rules.is_allowed:
        return 0
    shrinks = COMPOSED_BYTES if vocabulary.cut_rules.composes else 1
    return shrinks * max(map(len, vocabulary.token_bytes))
