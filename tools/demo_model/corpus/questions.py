"""Writes single questions with their answers: sums, calendar, lists, counting, facts, JSON objects."""

import json
import random

from .descriptions import list_topics
from .spin import expand
from .story_words import PLACES
from .tables import facts, pairs, words

Turn = tuple[str, str]  # question, answer

_PLUS = "[What is {a} plus {b}?|What is {a} + {b}?|{a} + {b}|{a} + {b} =|How much is {a} plus {b}?|Add {a} and {b}.]"
_MINUS = "[What is {a} minus {b}?|What is {a} - {b}?|{a} - {b}|How much is {a} minus {b}?]"
_TIMES = "[What is {a} times {b}?|What is {a} x {b}?|How much is {a} times {b}?]"
_ANIMAL_QUESTIONS = [
    ("What does a {animal} eat?", "A {animal} eats {food}."),
    ("What [sound|noise] does a {animal} make?", "A {animal} says: {sound}!"),
    ("What is a baby {animal} called?", "A baby {animal} is called a {young}."),
    ("Where does a {animal} live?", "A {animal} lives in {home}."),
]
_JSON = "[Give me a JSON object describing|Write a JSON object for|Describe in JSON|Give me JSON for|Describe as JSON:]"
_JSON_PLAIN = "Give me a JSON object describing"


def animal_facts() -> dict[str, list[str]]:
    """Returns animal -> sound, young, home, food, looks, note."""
    return facts("animals: sound, young, home, food, looks, note")


def small_sum_turn(rng: random.Random) -> Turn:
    return sum_turn(rng, largest=10)


def sum_turn(rng: random.Random, largest: int = 20) -> Turn:
    a, b = rng.randint(0, largest), rng.randint(0, largest)
    kind = rng.random()
    if kind < 0.6:
        question, in_words, in_signs = _PLUS, f"{a} plus {b} is {a + b}.", f"{a} + {b} = {a + b}"
    elif kind < 0.85:
        a, b = max(a, b), min(a, b)
        question, in_words, in_signs = _MINUS, f"{a} minus {b} is {a - b}.", f"{a} - {b} = {a - b}"
    else:
        a, b = a % 11, b % 11
        question, in_words, in_signs = _TIMES, f"{a} times {b} is {a * b}.", f"{a} times {b} is {a * b}."
    asked = expand(question, {"a": str(a), "b": str(b)}, rng)
    return asked, in_words if any(word in asked for word in ("plus", "minus", "times", "Add")) else in_signs


def calendar_turn(rng: random.Random) -> Turn:
    names, what = rng.choice([(words("days"), "day"), (words("months"), "month")])
    at = rng.randrange(len(names))
    if rng.random() < 0.7:
        return f"What {what} comes after {names[at]}?", f"{names[(at + 1) % len(names)]} comes after {names[at]}."
    return f"What {what} comes before {names[at]}?", f"{names[at - 1]} comes before {names[at]}."


def list_turn(rng: random.Random) -> Turn:
    topic, known = rng.choice(list(list_topics().items()))
    count = rng.randint(2, min(5, len(known)))
    items = rng.sample(known, count)
    if topic == "seasons":
        question = ["What are the seasons?", "Name the four seasons."][rng.randrange(2)]
        return question, "The four seasons are spring, summer, autumn and winter."
    question = expand(f"[Name|List|Tell me|Give me] {words('numbers')[count]} {topic}.", {}, rng)
    if rng.random() < 0.5:
        return question, "\n".join(f"{i}. {item}" for i, item in enumerate(items, 1))
    return question, f"{', '.join(items[:-1])} and {items[-1]}."


def count_turn(rng: random.Random) -> Turn:
    last = rng.randint(3, 20)
    if rng.random() < 0.5:
        return f"Count to {last}.", ", ".join(str(n) for n in range(1, last + 1))
    return f"Count to {words('numbers')[last]}.", ", ".join(words("numbers")[1 : last + 1])


def fact_turn(rng: random.Random) -> Turn:
    kind = rng.randrange(7)
    animal = rng.choice(list(animal_facts()))
    if kind == 0:
        thing, color = rng.choice(list(pairs("colors of things").items()))
        return f"What color is {thing}?", f"{thing[0].upper()}{thing[1:]} is {color}."
    if kind == 1:
        pair = rng.choice(list(pairs("opposites").items()))
        one, other = pair if rng.random() < 0.5 else pair[::-1]
        return f"What is the opposite of {one}?", f"The opposite of {one} is {other}."
    if kind == 2:
        country, city = rng.choice(list(pairs("capitals").items()))
        return f"What is the capital of {country}?", f"The capital of {country} is {city}."
    sound, young, home, food, _, _ = animal_facts()[animal]
    values = {"animal": animal, "sound": sound, "young": young, "home": home, "food": food}
    question, answer = _ANIMAL_QUESTIONS[kind - 3]
    return expand(question, values, rng), expand(answer, values, rng)


def _json_animal(rng: random.Random) -> tuple[str, dict[str, object]]:
    animal = rng.choice(list(animal_facts()))
    _, young, _, food, _, _ = animal_facts()[animal]
    color = rng.choice(["black", "white", "brown", "gray"])
    foods = food.replace(",", " and").split(" and ")
    name, age = rng.choice(words("pets")), rng.randint(1, 12)
    return f"a {animal}", {"kind": animal, "name": name, "color": color, "age": age, "young": young, "food": foods}


def _json_object(rng: random.Random) -> tuple[str, dict[str, object]]:
    """Returns the subject, and the object that describes it."""
    kind = rng.randrange(6)
    name = rng.choice(words("girls") + words("boys"))
    if kind <= 2:
        return _json_animal(rng)
    if kind == 3:
        age, city = rng.randint(6, 80), rng.choice(list(pairs("capitals").values()))
        return "a person", {"name": name, "age": age, "city": city, "likes": rng.sample(words("foods"), 2)}
    if kind == 4:
        title = f"The {rng.choice(words('colors')).title()} {rng.choice(list(PLACES)).title()}"
        pages = rng.randint(5, 40) * 10
        return "a book", {"title": title, "author": name, "pages": pages, "new": rng.random() < 0.5}
    fruit, color = rng.choice(words("list of fruits")), rng.choice(["red", "green", "yellow"])
    weight = rng.randint(1, 30) * 10
    return "a fruit", {"name": fruit, "color": color, "weight": weight, "ripe": rng.random() < 0.7}


def json_turn(rng: random.Random) -> Turn:
    what, value = _json_object(rng)
    question = _JSON if rng.random() < 0.5 else _JSON_PLAIN
    return expand(question + " {what}[|.]", {"what": what}, rng), json.dumps(value)
