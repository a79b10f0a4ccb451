"""Writes one little story: a cast, an opening, a few facts, a plot, an ending."""

import random

from .spin import capitalize_sentences, expand
from .story_plots import ABOUT, ENDINGS, OPENINGS, PLOTS
from .story_words import draw_cast


def write_story(rng: random.Random) -> tuple[str, dict[str, str]]:
    """Return a story and its cast; paragraphs are separated by an empty line."""
    cast = draw_cast(rng)
    plot = PLOTS[rng.choice(list(PLOTS))]
    opening = [rng.choice(OPENINGS), *rng.sample(ABOUT, rng.choice([1, 2, 2]))]
    if "{friend}" in opening[0]:
        opening = opening[:1] + ["They [did everything together|met every day {where}|lived next door to each other]."]
    ending = rng.choice(ENDINGS)
    last = [[*plot[-1], ending]] if rng.random() < 0.5 else [plot[-1], [ending]]
    paragraphs = [opening, *plot[:-1], *last]
    written = [" ".join(expand(sentence, cast, rng) for sentence in paragraph) for paragraph in paragraphs]
    return capitalize_sentences("\n\n".join(written)), cast
