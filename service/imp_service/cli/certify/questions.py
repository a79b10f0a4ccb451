"""The questions of a certificate: facts hidden in a long text, and those of a file."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imp_service.core.bench.json_lines import json_lines
from imp_service.core.errors import field_invalid

NAMES = (
    "Ada",
    "Bela",
    "Cyra",
    "Dario",
    "Edda",
    "Fadil",
    "Gesa",
    "Hanno",
    "Ilse",
    "Jomo",
    "Kaya",
    "Leif",
    "Mina",
    "Nuri",
)
THINGS = ("apple", "basket", "candle", "drum", "engine", "feather", "hammer", "jacket", "kettle", "ladder", "mirror")
PLACES = ("Oslo", "Porto", "Quito", "Riga", "Sofia", "Turin", "Ulm", "Varna", "Wuhan", "Xalapa", "Yalta", "Zadar")
WEATHER = ("It rained", "The sun shone", "Snow fell", "The wind rose", "Fog came up", "It was calm")
# Other facts of the same kind in the text.
N_DISTRACTORS = 4

CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Question:
    """A text and a question about it. The answer is right if it has one of the words."""

    kind: str
    prompt: str
    answers: Sequence[str]


def needles(n: int, n_tokens: int, count: CountTokens) -> Iterator[Question]:
    """A number in a text about other things, at depths that are evenly spread."""
    for i in range(n):
        numbers = random.Random(i)
        names = numbers.sample(NAMES, 1 + N_DISTRACTORS)
        codes = [str(code) for code in numbers.sample(range(10_000, 99_999), len(names))]
        hidden = [f"The code of {name} is {code}." for name, code in zip(names, codes, strict=True)]
        places = [(i + 0.5) / n, *(numbers.random() for _ in range(N_DISTRACTORS))]
        question = f"What is the code of {names[0]}? Answer with the code alone."
        text = _hide(hidden, places, _idle_sentences(numbers), n_tokens - count(question), count)
        yield Question("needle", f"{text}\n\n{question}", (codes[0],))


def facts(n: int, n_tokens: int, count: CountTokens) -> Iterator[Question]:
    """One of many facts, asked for in other words: all of the text is of one kind."""
    for i in range(n):
        numbers = random.Random(1_000_000 + i)
        start, end = numbers.sample(PLACES, 2)
        who, what = f"{numbers.choice(NAMES)} {i + 1}", numbers.choice(THINGS)
        hidden = [f"{who} carried a {what} from {start} to {end}."]
        question = f"To which city did {who} carry a {what}? Answer with the city alone."
        text = _hide(hidden, [(i + 0.5) / n], _journeys(numbers, i + 2), n_tokens - count(question), count)
        yield Question("fact", f"{text}\n\n{question}", (end,))


def read_questions(path: Path) -> list[Question]:
    """The questions of a file of JSON lines: {"prompt": …, "answers": […]}."""
    questions = []
    for place, line in json_lines(path, "questions"):
        is_object = isinstance(line, dict) and isinstance(line.get("prompt"), str)
        answers = line.get("answers") if is_object else None
        if not isinstance(answers, list) or not answers or not all(isinstance(each, str) and each for each in answers):
            raise field_invalid(
                "questions", f"{place}: expected an object with prompt, a text, and answers, a list of texts"
            )
        questions.append(Question("question", line["prompt"], tuple(answers)))
    return questions


def _idle_sentences(numbers: random.Random) -> Iterator[str]:
    """Sentences about nothing that is asked for."""
    for day in itertools.count(1):
        who, what, where = numbers.choice(NAMES), numbers.choice(THINGS), numbers.choice(PLACES)
        yield f"{numbers.choice(WEATHER)} in {where} on day {day}, and {who} looked for a {what}."


def _journeys(numbers: random.Random, first: int) -> Iterator[str]:
    """Facts like the one that is asked for, about others."""
    for number in itertools.count(first):
        start, end = numbers.sample(PLACES, 2)
        yield f"{numbers.choice(NAMES)} {number} carried a {numbers.choice(THINGS)} from {start} to {end}."


def _hide(
    hidden: Sequence[str], places: Sequence[float], sentences: Iterator[str], n_tokens: int, count: CountTokens
) -> str:
    """A text of at most about n_tokens, with each hidden sentence at its place between 0 and 1."""
    text, left = [next(sentences)], n_tokens - count(" ".join(hidden))
    while (missing := left - count(" ".join(text))) >= (each := count(text[-1]) + 1):
        text += itertools.islice(sentences, max(1, missing // (2 * each)))
    n_sentences = len(text)
    for place, one in sorted(zip(places, hidden, strict=True), reverse=True):
        text.insert(round(place * n_sentences), one)
    return " ".join(text)
