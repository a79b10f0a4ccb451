"""Writes one little story: a cast, an opening, a few facts, a plot, an ending."""

import random

from .spin import capitalize_sentences, expand
from .story_words import draw_cast
from .tables import sections


def write_story(rng: random.Random) -> tuple[str, dict[str, str]]:
    """Returns a story and its cast; paragraphs are separated by an empty line."""
    data = sections("stories")
    (openings,), (about,), (endings,) = data["openings"], data["about"], data["endings"]
    cast = draw_cast(rng)
    plot = data[rng.choice([name for name in data if name.startswith("plot ")])]
    opening = [rng.choice(openings), *rng.sample(about, rng.choice([1, 2, 2]))]
    ending = rng.choice(endings)
    last = [[*plot[-1], ending]] if rng.random() < 0.5 else [plot[-1], [ending]]
    paragraphs = [opening, *plot[:-1], *last]
    written = [" ".join(expand(sentence, cast, rng) for sentence in paragraph) for paragraph in paragraphs]
    return capitalize_sentences("\n\n".join(written)), cast
