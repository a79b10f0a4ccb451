"""Writes short plain descriptions: the weather, animals, places, days, recipes, letters, sums and lists."""

import random

from .facts import ANIMAL_FACTS, DAYS, LISTS, MONTHS, NUMBERS
from .spin import capitalize_sentences, expand
from .story_words import BOYS, COLORS, FOODS, GIRLS, PLACES, THINGS, draw_cast

WEATHER = {
    "sunny": "The sun is [shining|bright] and there [is not a cloud in the sky|are only a few small clouds]. [It is a good day to go outside|It is a good day for a walk in the {place}|Take a hat with you].",
    "rainy": "Dark clouds [hang over|cover] the {place}, and the rain [has been falling since morning|falls softly on the roofs]. [Do not forget your umbrella|It is a good day to stay inside and read a book].",
    "windy": "A strong wind blows from the [north|south|east|west], and the leaves [dance in the air|fly over the {place}]. [It is a good day to fly a kite|Hold on to your hat].",
    "snowy": "Snow [is falling|fell all night], and the {place} is [white and quiet|covered in white]. [Wear your warmest coat|The children are building a snowman].",
    "foggy": "A thick fog lies over the {place}, and you [cannot see the road|can hardly see the trees]. [Please drive slowly|It will clear in the afternoon].",
    "stormy": "There is thunder over the {place}, and lightning [flashes in the dark sky|can be seen from far away]. [Stay inside and close the windows|The storm will pass before the evening].",
    "cloudy": "The sky is gray, and the sun [hides behind the clouds|shows itself only for a moment]. [It may rain later|It should be brighter tomorrow].",
}
TEMPERATURES = {
    "sunny": "warm", "rainy": "cool", "windy": "fresh", "snowy": "very cold", "foggy": "cold", "stormy": "warm and heavy", "cloudy": "mild",
}  # fmt: skip


def describe_weather(rng: random.Random) -> str:
    kind, next_kind = rng.sample(list(WEATHER), 2)
    values = {
        "place": rng.choice(list(PLACES)), "kind": kind, "next": next_kind, "feel": TEMPERATURES[kind],
        "day": rng.choice(DAYS), "degrees": str({"snowy": -5, "sunny": 24}.get(kind, 12) + rng.randint(-3, 4)),
    }  # fmt: skip
    text = (
        "[The weather today is {kind} and {feel}.|The weather today is {kind}.|Today it is {kind} and {feel}.] " + WEATHER[kind]
        + "[| The temperature is {degrees} degrees.] [Tomorrow it will be {next}.|Tomorrow will be {next}, and {day} too."
        "|In the evening it will be {next}.]"
    )
    return expand(text, values, rng)


def describe_animal(rng: random.Random, animal: str) -> str:
    _, young, home, food, looks, note = ANIMAL_FACTS[animal]
    values = {"animal": animal, "young": young, "home": home, "food": food, "looks": looks, "note": note}
    return expand(
        "[A {animal} is an animal with {looks}.|A {animal} has {looks}.] [It lives in {home} and eats {food}."
        "|It eats {food} and lives in {home}.] A baby {animal} is called a {young}. The {animal} {note}.",
        values,
        rng,
    )


def describe_place(rng: random.Random) -> str:
    cast = draw_cast(rng)
    return capitalize_sentences(expand(
        "The {place} is a [quiet|beautiful|busy|peaceful] place. [In the morning|In spring|On {day}s], you can [see|find] "
        "[many people|birds and flowers|children at play] there. {name} goes there every day with {his} {kin}. They like to "
        "[sit|walk|rest] {where} and eat {food}. [There is an old {color} bench|There is a little {color} house], and on it "
        "someone has painted a {other_color} {thing}. [In the evening|When the sun goes down], the {place} becomes "
        "[silent|dark and still], and only the [wind|owl|water] can be heard.",
        cast | {"day": rng.choice(DAYS)},
        rng,
    ))  # fmt: skip


def describe_day(rng: random.Random) -> str:
    cast = draw_cast(rng) | {"day": rng.choice(DAYS), "month": rng.choice(MONTHS)}
    return capitalize_sentences(expand(
        "[It was a {day} in {month}.|On {day}, {name} got up early.] {name} [washed {his} face|got dressed] and had {food} for "
        "breakfast. [Then|After that], {he} went to the {place} [to meet {friend}|to buy a {thing}|with {his} {kin}]. "
        "[At noon|In the afternoon], they [ate lunch {where}|played with a {color} {thing}|talked about the weather]. "
        "In the evening, {name} [read a book|wrote a letter|played a song] and went to bed at [eight|nine|ten] o'clock.",
        cast,
        rng,
    ))  # fmt: skip


def write_letter(rng: random.Random) -> str:
    cast = draw_cast(rng) | {"day": rng.choice(DAYS)}
    return capitalize_sentences(expand(
        "Dear {friend},\n\n[thank you for your letter|how are you|I hope you are well]. [I am writing from the {place}|We are staying "
        "near the {place}], {where}. [Yesterday|On {day}] we saw a {color} {thing} and [ate|bought] some {food}. "
        "My {kin} [says hello|sends you a kiss|is well]. [Please write soon|I hope to see you soon|Come and visit us in the summer].\n\n"
        "[Your friend|With love|Yours],\n{name}",
        cast,
        rng,
    ))  # fmt: skip


def write_recipe(rng: random.Random) -> str:
    food = rng.choice(["bread", "soup", "pancakes", "apple pie", "a cake", "a salad"])
    things = rng.sample(["flour", "milk", "eggs", "butter", "salt", "sugar", "apples", "carrots", "onions", "honey", "water"], 4)
    steps = expand(
        f"1. Take {things[0]}, {things[1]} and some {things[2]}.\n2. [Mix|Stir] them [well|slowly] in a [big|clean] bowl.\n"
        f"3. Add [a little|a spoon of] {things[3]}.\n4. [Bake|Cook] it for [ten|twenty|thirty] minutes.\n5. [Let it cool|Serve it warm] and enjoy!",
        {},
        rng,
    )
    return f"How to make {food}:\n\n{steps}"


def write_sums(rng: random.Random) -> str:
    lines = []
    for _ in range(rng.randint(4, 10)):
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        lines.append(f"{a} + {b} = {a + b}" if rng.random() < 0.7 else f"{max(a, b)} - {min(a, b)} = {abs(a - b)}")
    return "\n".join(lines)


def write_list(rng: random.Random) -> str:
    kind = rng.randrange(4)
    if kind == 0:
        return "The days of the week are " + ", ".join(DAYS[:-1]) + " and " + DAYS[-1] + "."
    if kind == 1:
        return "The months of the year are " + ", ".join(MONTHS[:-1]) + " and " + MONTHS[-1] + "."
    if kind == 2:
        first = rng.randint(0, 12)
        return ", ".join(NUMBERS[first : first + rng.randint(4, 9)])
    topic = rng.choice(list(LISTS))
    items = rng.sample(LISTS[topic], rng.randint(3, min(6, len(LISTS[topic]))))
    return f"Some {topic}:\n" + "\n".join(f"- {item}" for item in items)


def write_inventory(rng: random.Random) -> str:
    name = rng.choice(GIRLS + BOYS)
    count, thing = rng.randint(2, 9), rng.choice(THINGS)
    given = rng.randint(1, count - 1)
    plural = {"box": "boxes"}.get(thing, thing + "s")
    other = rng.choice([n for n in GIRLS + BOYS if n != name])
    return (
        f"{name} has {NUMBERS[count]} {rng.choice(COLORS)} {plural} and some {rng.choice(FOODS)}. {name} gives {NUMBERS[given]} of the "
        f"{plural} to {other}. Now {name} has {NUMBERS[count - given]} and {other} has {NUMBERS[given]}."
    )


def write_description(rng: random.Random) -> str:
    """Return one description of a random kind."""
    kind = rng.randrange(12)
    if kind <= 2:
        return describe_weather(rng)
    if kind == 3:
        return describe_animal(rng, rng.choice(list(ANIMAL_FACTS)))
    writers = [describe_place, describe_place, describe_day, describe_day, write_letter, write_recipe, write_sums, write_list]
    return rng.choice([*writers, write_inventory])(rng)
