"""Writes short plain descriptions: the weather, animals, places, days, recipes, letters, sums and lists."""

import random

from .spin import capitalize_sentences, expand
from .story_words import PLACES, draw_cast
from .tables import facts, pairs, sections, template, words

_DEGREES = {"snowy": -5, "sunny": 24}
_ORDINARY_DEGREES = 12
_PLURALS = {"box": "boxes"}  # plurals that need more than an s


def list_topics() -> dict[str, list[str]]:
    """Returns the lists of things: topic -> items."""
    prefix = "list of "
    return {name.removeprefix(prefix): words(name) for name in sections("words") if name.startswith(prefix)}


def describe_weather(rng: random.Random) -> str:
    feels = pairs("weather: how it feels")
    kind, next_kind = rng.sample(list(feels), 2)
    values = {
        "place": rng.choice(list(PLACES)),
        "kind": kind,
        "next": next_kind,
        "feel": feels[kind],
        "day": rng.choice(words("days")),
        "degrees": str(_DEGREES.get(kind, _ORDINARY_DEGREES) + rng.randint(-3, 4)),
    }
    return expand(template("weather").replace("{sky}", template(f"weather {kind}")), values, rng)


def describe_animal(rng: random.Random, animal: str) -> str:
    _, young, home, food, looks, note = facts("animals: sound, young, home, food, looks, note")[animal]
    values = {"animal": animal, "young": young, "home": home, "food": food, "looks": looks, "note": note}
    return expand(template("animal"), values, rng)


def _describe(name: str, rng: random.Random) -> str:
    """Returns a description made from only a cast and a date."""
    cast = draw_cast(rng) | {"day": rng.choice(words("days"))}
    if name == "day":
        cast["month"] = rng.choice(words("months"))
    return capitalize_sentences(expand(template(name), cast, rng))


def describe_place(rng: random.Random) -> str:
    return _describe("place", rng)


def describe_day(rng: random.Random) -> str:
    return _describe("day", rng)


def write_letter(rng: random.Random) -> str:
    return _describe("letter", rng)


def write_recipe(rng: random.Random) -> str:
    dish = rng.choice(words("dishes"))
    ingredients = rng.sample(words("ingredients"), 4)
    values = dict(zip(("first", "second", "third", "fourth"), ingredients, strict=True)) | {"food": dish}
    return expand(template("recipe"), values, rng)


def write_sums(rng: random.Random) -> str:
    lines = []
    for _ in range(rng.randint(4, 10)):
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        lines.append(f"{a} + {b} = {a + b}" if rng.random() < 0.7 else f"{max(a, b)} - {min(a, b)} = {abs(a - b)}")
    return "\n".join(lines)


def write_list(rng: random.Random) -> str:
    kind = rng.randrange(4)
    if kind <= 1:
        what, names = [("days of the week", words("days")), ("months of the year", words("months"))][kind]
        return f"The {what} are {', '.join(names[:-1])} and {names[-1]}."
    if kind == 2:
        first = rng.randint(0, 12)
        return ", ".join(words("numbers")[first : first + rng.randint(4, 9)])
    topic, items = rng.choice(list(list_topics().items()))
    chosen = rng.sample(items, rng.randint(3, min(6, len(items))))
    return f"Some {topic}:\n" + "\n".join(f"- {item}" for item in chosen)


def write_inventory(rng: random.Random) -> str:
    people, numbers = words("girls") + words("boys"), words("numbers")
    name = rng.choice(people)
    count, thing = rng.randint(2, 9), rng.choice(words("things"))
    given = rng.randint(1, count - 1)
    values = {
        "other": rng.choice([person for person in people if person != name]),
        "color": rng.choice(words("colors")),
        "food": rng.choice(words("foods")),
        "name": name,
        "plural": _PLURALS.get(thing, thing + "s"),
        "count": numbers[count],
        "given": numbers[given],
        "left": numbers[count - given],
    }
    return expand(template("inventory"), values, rng)


_WRITERS = [
    describe_place,
    describe_place,
    describe_day,
    describe_day,
    write_letter,
    write_recipe,
    write_sums,
    write_list,
    write_inventory,
]


def write_description(rng: random.Random) -> str:
    """Returns one description of a random kind: a quarter of them are about the weather."""
    kind = rng.randrange(12)
    if kind <= 2:
        return describe_weather(rng)
    if kind == 3:
        return describe_animal(rng, rng.choice(list(facts("animals: sound, young, home, food, looks, note"))))
    return rng.choice(_WRITERS)(rng)
