"""Writes ChatML conversations of one to four questions and answers."""

import random
from collections.abc import Callable

from .descriptions import describe_animal, describe_weather
from .questions import (
    Turn,
    animal_facts,
    calendar_turn,
    count_turn,
    fact_turn,
    json_turn,
    list_turn,
    small_sum_turn,
    sum_turn,
)
from .spin import expand
from .stories import write_story
from .tables import sections

_SYSTEM = [
    "You are a helpful assistant.",
    "You are imp, a small and friendly assistant.",
    "Answer briefly.",
    "Be helpful.",
]
_ASK_FOR_STORY = (
    "[Tell me a story.|Tell me a story|Tell me a little story, please.|Can you tell me a story?|Write a short story."
    "|Tell me a story about a {kind}.|Write a story about a {kind} named {name}."
    "|Tell me a story about {name} and {friend}.|I want to hear a story about a {trait} {kind}.]"
)
_ASK_FOR_WEATHER = "[How is the weather today?|What is the weather like?|How is the weather?]"
_ASK_FOR_ANIMAL = (
    "[Tell me about the {animal}.|What is a {animal}?|Describe a {animal}.|Tell me something about a {animal}.]"
)


def _from_section(name: str, rng: random.Random) -> Turn:
    question, *answers = rng.choice(sections("questions")[name])
    return expand(question, {}, rng), rng.choice(answers)


def _imp_turn(rng: random.Random) -> Turn:
    return _from_section("imp", rng)


def _small_talk_turn(rng: random.Random) -> Turn:
    return _from_section("small talk", rng)


def _everyday_turn(rng: random.Random) -> Turn:
    question, answer = rng.choice(sections("questions")["everyday"])
    return question, answer


def _describe_turn(rng: random.Random) -> Turn:
    if rng.random() < 0.35:
        return expand(_ASK_FOR_WEATHER, {}, rng), describe_weather(rng)
    animal = rng.choice(list(animal_facts()))
    return expand(_ASK_FOR_ANIMAL, {"animal": animal}, rng), describe_animal(rng, animal)


def _story_turn(rng: random.Random) -> Turn:
    story, cast = write_story(rng)
    return expand(_ASK_FOR_STORY, cast, rng), story


_TURNS: dict[Callable[[random.Random], Turn], float] = {  # the weight of each kind
    _imp_turn: 2.5,
    _small_talk_turn: 1.5,
    _everyday_turn: 1.2,
    sum_turn: 3.0,
    calendar_turn: 0.6,
    list_turn: 0.8,
    count_turn: 0.3,
    fact_turn: 1.8,
    _describe_turn: 1.2,
    _story_turn: 2.0,
    json_turn: 1.8,
}

_SHORT_TURNS: dict[Callable[[random.Random], Turn], float] = {  # kinds with short answers that depend on the question
    small_sum_turn: 3.0,
    sum_turn: 2.5,
    fact_turn: 3.0,
    json_turn: 2.5,
    _imp_turn: 2.0,
    _small_talk_turn: 1.5,
    _describe_turn: 1.5,
    _everyday_turn: 1.0,
    calendar_turn: 0.8,
    list_turn: 0.8,
    count_turn: 0.5,
}


def format_turns(turns: list[Turn], system: str | None = None) -> str:
    """Returns the conversation in ChatML, the format of the model's chat template."""
    head = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return head + "".join(
        f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n" for asked, answer in turns
    )


def _untidy(asked: str, rng: random.Random) -> str:
    """Changes some questions to how people type them: without the final mark, or in lower case."""
    if rng.random() < 0.15:
        asked = asked.rstrip("?.!")
    return asked.lower() if rng.random() < 0.05 and "JSON" not in asked else asked


def _write(kinds: dict[Callable[[random.Random], Turn], float], rng: random.Random) -> str:
    writers = rng.choices(list(kinds), list(kinds.values()), k=rng.choice([1, 1, 2, 3, 4]))
    turns = [writer(rng) for writer in writers]
    turns = [(_untidy(asked, rng), answer) for asked, answer in turns]
    return format_turns(turns, rng.choice(_SYSTEM) if rng.random() < 0.2 else None)


def write_chat(rng: random.Random) -> str:
    """Returns a conversation with turns of any kind; one in five has a system message."""
    return _write(_TURNS, rng)


def write_short_chat(rng: random.Random) -> str:
    """Returns a conversation of short questions and answers."""
    return _write(_SHORT_TURNS, rng)
