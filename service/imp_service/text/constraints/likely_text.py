"""Guesses the next text of a constrained output: the text that the constraint forces, and the usual blanks in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from llguidance import LLMatcher

from imp_service.text.tokens.tokenizer import Tokenizer

# How the library writes a control token among bytes. No text has the byte 0xFF.
_CONTROL_TOKEN = re.compile(rb"\xff\[(\d+)\]")
_BLANKS = b" \n\r\t"
# The most bytes of a guess. A few tokens, which is what a step verifies, have fewer.
_MOST_BYTES = 256
# The texts of a constraint come again and again: keys, the ends of enumerated words.
_N_KEPT = 1024
# The most places with optional blanks in one guess: each costs a mask.
_MOST_BLANK_PLACES = 12
# The last outputs, in which earlier blanks are looked for.
_N_RECENT = 256


class LikelyText:
    """Guesses for one vocabulary. May be used from any thread.

    JSON allows blanks between its parts, so a constraint forces hardly more than the inside of a key. If the constraint
    allows only blanks and one other byte, the guess continues with that byte. The blanks before it are copied from the
    last place in the output with the same bytes around them. If there is no such place, a space follows each colon and
    comma, unless an earlier colon had none.
    """

    def __init__(self, tokenizer: Tokenizer, pieces: Sequence[bytes]) -> None:
        self._tokenizer = tokenizer
        self._pieces = pieces
        ids = {piece: token for token, piece in enumerate(pieces) if len(piece) == 1}
        # Bytes that have a token of their own, and these tokens.
        self._bytes = np.array([byte for byte in range(256) if bytes([byte]) in ids], dtype=np.uint8)
        self._ids = np.array([ids[bytes([byte])] for byte in self._bytes.tolist()], dtype=np.int64)
        # In free text most bytes are allowed. A few of them show that, before all are looked at.
        self._common = [ids[bytes([byte])] for byte in b"et12" if bytes([byte]) in ids]
        self._token_of = {byte: ids[bytes([byte])] for byte in self._bytes.tolist()}
        self._encoded = lru_cache(maxsize=_N_KEPT)(self._encode)

    def after(self, matcher: LLMatcher, mask: bytes, outputs: Sequence[int]) -> tuple[int, ...]:
        """The guessed tokens after these outputs. `mask` is that of the next output. The matcher does not change."""
        text = self._text_after(matcher, mask, outputs)
        return self._encoded(text) if text else ()

    def _text_after(self, matcher: LLMatcher, mask: bytes, outputs: Sequence[int]) -> bytes:
        text = matcher.compute_ff_bytes()
        if not text and self._sole_nonblank(mask) is None:
            return b""
        before = b"".join([self._pieces[token] for token in outputs[-_N_RECENT:]])
        n_consumed = self._consume(matcher, text)
        try:
            for _ in range(_MOST_BLANK_PLACES):
                # A control token is no text, and cannot be taken byte by byte.
                if n_consumed < len(text) or matcher.is_accepting():
                    break
                byte = self._sole_nonblank(matcher.compute_bitmask() if n_consumed else mask)
                if byte is None:
                    break
                more = _blanks_between(before + text, byte) + byte
                n_more = self._consume(matcher, more)
                n_consumed += n_more
                if n_more < len(more):
                    break
                text += more
                forced = matcher.compute_ff_bytes()
                n_consumed += self._consume(matcher, forced)
                text += forced
        finally:
            matcher.rollback(n_consumed)
        return text

    def _consume(self, matcher: LLMatcher, text: bytes) -> int:
        """Feeds the text to the matcher byte by byte; returns how many bytes the constraint allows."""
        tokens = [self._token_of.get(byte, -1) for byte in text]
        if not tokens or -1 in tokens:
            return 0
        return matcher.try_consume_tokens(tokens)

    def _sole_nonblank(self, mask: bytes) -> bytes | None:
        """The byte, if the mask allows exactly one byte that is not a blank; else None."""
        if sum([mask[token >> 3] >> (token & 7) & 1 for token in self._common]) > 1:
            return None
        bits = np.frombuffer(mask, dtype=np.uint8)[self._ids >> 3] >> (self._ids & 7) & 1
        allowed = self._bytes[bits.astype(bool)].tobytes().translate(None, _BLANKS)
        return allowed if len(allowed) == 1 else None

    def _encode(self, raw: bytes) -> tuple[int, ...]:
        """The tokens of these bytes, up to the first incomplete character."""
        tokens: list[int] = []
        for index, part in enumerate(_CONTROL_TOKEN.split(raw[:_MOST_BYTES])):
            if index % 2:
                tokens.append(int(part))
                continue
            text, is_whole = _characters(part)
            tokens += self._tokenizer.encode_rest(text)
            if not is_whole:
                break
        return tuple(tokens)


def _blanks_between(text: bytes, byte: bytes) -> bytes:
    """The blanks to insert between the end of `text` and `byte`.

    Copies them from the last place where the same two bytes (else the same one) came before blanks and this byte.
    """
    for n_same in (2, 1):
        ending = text[-n_same:]
        place = text.rfind(ending, 0, len(text) - 1)
        while place >= 0 and len(ending) == n_same:
            rest = text[place + n_same :].lstrip(_BLANKS)
            if rest.startswith(byte):
                return text[place + n_same : len(text) - len(rest)]
            place = text.rfind(ending, 0, place + n_same - 1)
    if text[-1:] not in (b":", b","):
        return b""
    colon = text.rfind(b'":', 0, len(text) - 1)
    return b" " if colon < 0 or text[colon + 2 : colon + 3] in _BLANKS else b""


def _characters(raw: bytes) -> tuple[str, bool]:
    """The complete characters at the beginning, and whether that is everything."""
    try:
        return raw.decode(), True
    except UnicodeDecodeError as error:
        return raw[: error.start].decode(), False
