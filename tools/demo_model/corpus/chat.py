"""Writes ChatML conversations: greetings, questions about imp, sums, lists, JSON objects, stories on request."""

import json
import random
from collections.abc import Callable

from .descriptions import describe_animal, describe_weather
from .facts import (
    ANIMAL_FACTS,
    CAPITALS,
    COLOR_OF,
    DAYS,
    IMP,
    LISTS,
    MONTHS,
    NUMBERS,
    OPPOSITES,
    SMALL_TALK,
    WHY,
)
from .spin import expand
from .stories import write_story
from .story_words import BOYS, COLORS, FOODS, GIRLS, PETS, PLACES

Turn = tuple[str, str]
SYSTEM = ["You are a helpful assistant.", "You are imp, a small and friendly assistant.", "Answer briefly.", "Be helpful."]


def _from_table(table: dict[str, list[str]], rng: random.Random) -> Turn:
    question = rng.choice(list(table))
    return expand(question, {}, rng), rng.choice(table[question])


def imp_turn(rng: random.Random) -> Turn:
    return _from_table(IMP, rng)


def small_talk_turn(rng: random.Random) -> Turn:
    return _from_table(SMALL_TALK, rng)


def why_turn(rng: random.Random) -> Turn:
    return rng.choice(list(WHY.items()))


def sum_turn(rng: random.Random) -> Turn:
    a, b = rng.randint(0, 20), rng.randint(0, 20)
    kind = rng.random()
    if kind < 0.6:
        question = "[What is {a} plus {b}?|What is {a} + {b}?|{a} + {b}|{a} + {b} =|How much is {a} plus {b}?|Add {a} and {b}.]"
        answer = f"[{a} plus {b} is {a + b}.|{a} + {b} = {a + b}]"
    elif kind < 0.85:
        a, b = max(a, b), min(a, b)
        question = "[What is {a} minus {b}?|What is {a} - {b}?|{a} - {b}|How much is {a} minus {b}?]"
        answer = f"[{a} minus {b} is {a - b}.|{a} - {b} = {a - b}]"
    else:
        a, b = a % 11, b % 11
        question = "[What is {a} times {b}?|What is {a} x {b}?|How much is {a} times {b}?]"
        answer = f"{a} times {b} is {a * b}."
    asked = expand(question, {"a": str(a), "b": str(b)}, rng)
    wordy = any(word in asked for word in ("plus", "minus", "times", "Add"))
    readings = answer.strip("[]").split("|")
    return asked, readings[0] if wordy or len(readings) == 1 else readings[1]


def calendar_turn(rng: random.Random) -> Turn:
    names, what = rng.choice([(DAYS, "day"), (MONTHS, "month")])
    at = rng.randrange(len(names))
    if rng.random() < 0.7:
        return f"What {what} comes after {names[at]}?", f"{names[(at + 1) % len(names)]} comes after {names[at]}."
    return f"What {what} comes before {names[at]}?", f"{names[at - 1]} comes before {names[at]}."


def list_turn(rng: random.Random) -> Turn:
    topic = rng.choice(list(LISTS))
    count = rng.randint(2, min(5, len(LISTS[topic])))
    items = rng.sample(LISTS[topic], count)
    if topic == "seasons":
        return "[What are the seasons?|Name the four seasons.]"[1:-1].split("|")[rng.randrange(2)], (
            "The four seasons are spring, summer, autumn and winter."
        )
    question = expand(f"[Name|List|Tell me|Give me] {NUMBERS[count]} {topic}.", {}, rng)
    if rng.random() < 0.5:
        return question, "\n".join(f"{i}. {item}" for i, item in enumerate(items, 1))
    return question, f"{', '.join(items[:-1])} and {items[-1]}."


def count_turn(rng: random.Random) -> Turn:
    last = rng.randint(3, 20)
    if rng.random() < 0.5:
        return f"Count to {last}.", ", ".join(str(n) for n in range(1, last + 1))
    return f"Count to {NUMBERS[last]}.", ", ".join(NUMBERS[1 : last + 1])


def fact_turn(rng: random.Random) -> Turn:
    kind = rng.randrange(7)
    animal = rng.choice(list(ANIMAL_FACTS))
    sound, young, home, food, looks, _ = ANIMAL_FACTS[animal]
    if kind == 0:
        thing, color = rng.choice(list(COLOR_OF.items()))
        verb = "is"
        return f"What color {verb} {thing}?", f"{thing[0].upper()}{thing[1:]} {verb} {color}."
    if kind == 1:
        pair = rng.choice(OPPOSITES)
        one, other = pair if rng.random() < 0.5 else pair[::-1]
        return f"What is the opposite of {one}?", f"The opposite of {one} is {other}."
    if kind == 2:
        country, city = rng.choice(list(CAPITALS.items()))
        return f"What is the capital of {country}?", f"The capital of {country} is {city}."
    if kind == 3:
        return _spun("What does a {animal} eat?", "A {animal} eats {food}.", animal=animal, food=food, rng=rng)
    if kind == 4:
        return _spun("What [sound|noise] does a {animal} make?", "A {animal} says: {sound}!", animal=animal, sound=sound, rng=rng)
    if kind == 5:
        return _spun("What is a baby {animal} called?", "A baby {animal} is called a {young}.", animal=animal, young=young, rng=rng)
    return _spun("Where does a {animal} live?", "A {animal} lives in {home}.", animal=animal, home=home, rng=rng)


def _spun(question: str, answer: str, rng: random.Random, **values: str) -> Turn:
    return expand(question, values, rng), expand(answer, values, rng)


def describe_turn(rng: random.Random) -> Turn:
    if rng.random() < 0.35:
        return expand("[How is the weather today?|What is the weather like?|How is the weather?]", {}, rng), describe_weather(rng)
    animal = rng.choice(list(ANIMAL_FACTS))
    question = "[Tell me about the {animal}.|What is a {animal}?|Describe a {animal}.|Tell me something about {animal}s.]"
    question = question.replace("{animal}s", "a {animal}")
    return expand(question, {"animal": animal}, rng), describe_animal(rng, animal)


def story_turn(rng: random.Random) -> Turn:
    story, cast = write_story(rng)
    question = (
        "[Tell me a story.|Tell me a story|Tell me a little story, please.|Can you tell me a story?|Write a short story."
        "|Tell me a story about a {kind}.|Write a story about a {kind} named {name}.|Tell me a story about {name} and {friend}."
        "|I want to hear a story about a {trait} {kind}.]"
    )
    return expand(question, cast, rng), story


def _json_object(rng: random.Random) -> tuple[str, dict[str, object]]:
    kind = rng.randrange(6)
    name = rng.choice(GIRLS + BOYS)
    if kind <= 2:
        animal = rng.choice(list(ANIMAL_FACTS))
        young, food = ANIMAL_FACTS[animal][1], ANIMAL_FACTS[animal][3]
        color = rng.choice(["black", "white", "brown", "gray"])
        return f"a {animal}", {
            "kind": animal, "name": rng.choice(PETS), "color": color, "age": rng.randint(1, 12),
            "young": young, "food": food.replace(",", " and").split(" and "),
        }  # fmt: skip
    if kind == 3:
        return "a person", {"name": name, "age": rng.randint(6, 80), "city": rng.choice(list(CAPITALS.values())), "likes": rng.sample(FOODS, 2)}
    if kind == 4:
        return "a book", {"title": f"The {rng.choice(COLORS).title()} {rng.choice(list(PLACES)).title()}", "author": name, "pages": rng.randint(5, 40) * 10, "new": rng.random() < 0.5}
    return "a fruit", {"name": rng.choice(LISTS["fruits"]), "color": rng.choice(["red", "green", "yellow"]), "weight": rng.randint(1, 30) * 10, "ripe": rng.random() < 0.7}


def json_turn(rng: random.Random) -> Turn:
    what, value = _json_object(rng)
    question = "[Give me a JSON object describing|Write a JSON object for|Describe in JSON|Give me JSON for|Describe as JSON:] {what}[|.]"
    question = question if rng.random() < 0.5 else "Give me a JSON object describing {what}[|.]"
    return expand(question, {"what": what}, rng), json.dumps(value)


TURNS: list[tuple[float, Callable[[random.Random], Turn]]] = [
    (2.5, imp_turn), (1.5, small_talk_turn), (1.2, why_turn), (3.0, sum_turn), (0.6, calendar_turn), (0.8, list_turn),
    (0.3, count_turn), (1.8, fact_turn), (1.2, describe_turn), (2.0, story_turn), (1.8, json_turn),
]  # fmt: skip


def format_turns(turns: list[Turn], system: str | None = None) -> str:
    """Return the conversation in ChatML, the text that the model's chat template gives for it."""
    head = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return head + "".join(
        f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n" for asked, answer in turns
    )


def _untidy(asked: str, rng: random.Random) -> str:
    """Write some questions as people type them: without the final mark, or in lower case."""
    if rng.random() < 0.15:
        asked = asked.rstrip("?.!")
    return asked.lower() if rng.random() < 0.05 and "JSON" not in asked else asked


def write_chat(rng: random.Random) -> str:
    """Return a conversation of one to four turns, with a system message in one of five."""
    weights, writers = zip(*TURNS, strict=True)
    turns = [writer(rng) for writer in rng.choices(writers, weights, k=rng.choice([1, 1, 2, 3, 4]))]
    turns = [(_untidy(asked, rng), answer) for asked, answer in turns]
    return format_turns(turns, rng.choice(SYSTEM) if rng.random() < 0.2 else None)
