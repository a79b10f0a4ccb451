"""Refuses patterns of a tokenizer.json whose time grows faster than the text."""

from __future__ import annotations

import math
import re
import time

from tokenizers import Regex, pre_tokenizers

from imp_service.text.errors import NativePanic, native_boundary

# Published patterns that take quadratic time, and ones that match the same in linear time.
FASTER = {r"\s+$": r"(?<!\s)\s+$"}
# The repeated texts of the probes; the published patterns differ in how long they take on such runs.
_PROBES = ("a", " ", "1", "\n", ".", "A", "aA", "a ", " \n", "\u00e9", "\u4e16", "'")
# What is no character of the text: classes, and the names of groups and properties.
_NOTATION = re.compile(r"\\[pP]\{[^}]*\}|\\x\{?[0-9A-Fa-f]*\}?|\\.|\(\?[^:)]*[:)]|\{[\d,]*\}", re.DOTALL)
_MOST_OWN, _MOST_NAMED = 16, 256
# Follows the run, so that a pattern that must match to the end fails.
_OTHER = "\x01"
# Short texts first, in small steps, so that no probe takes much longer than the one before it: with an exponential
# pattern, 4 characters more take 16 times as long, and with a polynomial one twice as many some power of 2.
_SHORT = (*range(8, 33, 4), 64, 128, 256, 512)
_SHORT_SECONDS = 0.02
_LONG = (2_048, 8_192)
# A shorter time is no harm.
_LEAST_SECONDS = 0.02
_MOST_SLOPE = 1.5


def is_superlinear(pattern: str, *, end: float = math.inf) -> bool:
    """Whether a run of some kind of character takes more than linear time. The library must know the pattern.

    A pattern whose probes are not done at `end`, on the clock of this thread, does too: it is slow on every text.
    """
    splitter = pre_tokenizers.Split(Regex(pattern), "isolated")
    named = _named_by(pattern)
    probes = dict.fromkeys((*_PROBES, *named[:_MOST_OWN]))
    # The library tries no place of a text that lacks a character which every match has.
    tail = _OTHER + "".join(named)
    return any(_grows(splitter, probe, tail) or time.thread_time() > end for probe in probes)


def _named_by(pattern: str) -> list[str]:
    """The characters that the pattern names, without those of its notation."""
    named = dict.fromkeys(character for character in _NOTATION.sub("", pattern) if character.isalnum())
    return list(named)[:_MOST_NAMED]


def _grows(splitter: pre_tokenizers.PreTokenizer, probe: str, tail: str) -> bool:
    if any(_seconds(splitter, probe * n + tail) > _SHORT_SECONDS for n in _SHORT):
        return True
    shorter, longer = (min(_seconds(splitter, probe * n + tail) for _ in range(2)) for n in _LONG)
    slope = math.log(longer / shorter) / math.log(_LONG[1] / _LONG[0])
    return longer > _LEAST_SECONDS and slope > _MOST_SLOPE


def _seconds(splitter: pre_tokenizers.PreTokenizer, text: str) -> float:
    begin = time.thread_time()
    try:
        with native_boundary("tokenizers"):
            splitter.pre_tokenize_str(text)
    except NativePanic:  # so many attempts that the library gives up
        return math.inf
    return time.thread_time() - begin
