"""Refuses patterns of a tokenizer.json whose time grows faster than the text."""

from __future__ import annotations

import math
import time

from tokenizers import Regex, pre_tokenizers

from imp_service.text.errors import NativePanic, native_boundary

# Published patterns that take quadratic time, and ones that match the same in linear time.
FASTER = {r"\s+$": r"(?<!\s)\s+$"}
# The repeated texts of the probes; the published patterns differ in how long they take on such runs.
_PROBES = ("a", " ", "1", "\n", ".", "A", "aA", "a ", " \n", "\u00e9", "\u4e16", "'")
# Follows the run, so that a pattern that must match to the end fails.
_OTHER = "\x01"
# Short texts first: with an exponential pattern, 4 characters more take 16 times as long.
_SHORT = range(8, 33, 4)
_SHORT_SECONDS = 0.02
_LONG = (2_048, 8_192)
# A shorter time is no harm.
_LEAST_SECONDS = 0.02
_MOST_SLOPE = 1.5


def is_superlinear(pattern: str) -> bool:
    """Whether a run of some kind of character takes more than linear time. The library must know the pattern."""
    splitter = pre_tokenizers.Split(Regex(pattern), "isolated")
    return any(_grows(splitter, probe) for probe in _PROBES)


def _grows(splitter: pre_tokenizers.PreTokenizer, probe: str) -> bool:
    if any(_seconds(splitter, probe * n + _OTHER) > _SHORT_SECONDS for n in _SHORT):
        return True
    shorter, longer = (min(_seconds(splitter, probe * n + _OTHER) for _ in range(2)) for n in _LONG)
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
