"""Expands templates: `[a|b|c]` picks one branch (they nest), `{name}` is a value, `a` becomes `an` before a vowel."""

import random
import re
from collections.abc import Mapping

_INNERMOST = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeioAEIO](?!ne\b|ne-|uropean)|u(?!n[ia]|s[eu]|kul))")
_SENTENCE_START = re.compile(r"(^|[.!?] |\.\" |\n)([a-z])")  # not after `!"` and `?"`, because `said` may follow


def expand(template: str, values: Mapping[str, str], rng: random.Random) -> str:
    """Returns one random expansion of `template`; an unknown slot raises KeyError."""
    while True:
        template, replaced = _INNERMOST.subn(lambda match: rng.choice(match.group(1).split("|")), template)
        if not replaced:
            break
    while "{" in template:
        template = _SLOT.sub(lambda match: values[match.group(1)], template)
    return _ARTICLE.sub(r"\1n ", template)


def capitalize_sentences(text: str) -> str:
    """Changes the first letter of every sentence to upper case, so that a slot may begin a sentence."""
    return _SENTENCE_START.sub(lambda match: match.group(1) + match.group(2).upper(), text)
