"""Prompts of random words for servers that take text and do not say which tokens they know."""

import random
from collections.abc import Awaitable, Callable

from .plan import PlanRefused

# Each word is one token in most vocabularies.
WORDS = (
    "the", "of", "and", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are", "as", "with", "his",
    "they", "at", "be", "this", "have", "from", "or", "one", "had", "by", "word", "but", "not", "what", "all", "were",
    "we", "when", "your", "can", "said", "there", "use", "an", "each", "which", "she", "do", "how", "their", "if",
    "will", "up", "other", "about", "out", "many", "then", "them", "these", "so", "some", "her", "would", "make",
    "like", "him", "into", "time", "has", "look", "two", "more", "write", "go", "see", "number", "no", "way", "could",
    "people", "my", "than", "first", "water", "been", "call", "who", "oil", "its", "now", "find", "long", "down",
    "day", "did", "get", "come", "made", "may", "part",
)  # fmt: skip

# Number of words in a prompt -> its number of tokens.
Count = Callable[[str], Awaitable[int]]


def words(n_words: int, *identity: int) -> str:
    draw = random.Random(",".join(map(str, identity)))
    return " ".join(draw.choices(WORDS, k=n_words))


async def words_for(n_tokens: int, count: Count) -> int:
    """The number of words for about so many tokens, including those that the server adds."""
    few, more = max(1, n_tokens // 8), max(2, n_tokens // 4)
    of_few, of_more = await count(words(few, 1)), await count(words(more, 2))
    per_word = (of_more - of_few) / (more - few)
    added = of_few - few * per_word
    if per_word <= 0 or n_tokens < added + per_word:
        shortest = await count(words(1, 3))
        raise PlanRefused(f"prompts of {n_tokens} tokens, expected more: one word makes {shortest} tokens there")
    n_words = max(1, round((n_tokens - added) / per_word))
    # A second estimate is closer, since words can have several tokens.
    per_word = max(1e-3, (await count(words(n_words, 4)) - added) / n_words)
    return max(1, round((n_tokens - added) / per_word))
