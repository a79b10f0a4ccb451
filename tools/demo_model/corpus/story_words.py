"""The words that fill the stories: heroes, friends, places and things, drawn together so that a story stays consistent."""

import random

GIRLS = "Anna Lily Mia Rosa Clara Nora Ella Ruby Ida Maya Sara Tilly Zoe Hanna Ivy Lena".split()
BOYS = "Tom Ben Max Leo Sam Finn Oscar Jack Noah Theo Hugo Eli Paul Otto Will Adam".split()
PETS = "Pip Bramble Momo Pepper Biscuit Dot Hazel Fern Rusty Olly Nutmeg Bean Willow Sunny Moss Button".split()
ANIMALS = "rabbit fox mouse bear cat dog hedgehog squirrel duck frog owl otter badger mole pony goat".split()
TRAITS = "curious brave kind clever cheerful quiet gentle shy busy patient".split()
FEELINGS = "happy glad proud excited thankful".split()
PLACES = {
    "forest": "under the tall green trees",
    "village": "among the small stone houses",
    "garden": "between the roses and the beans",
    "beach": "where the waves came in",
    "farm": "near the big red barn",
    "meadow": "where the wild flowers grew",
    "park": "by the old fountain",
    "market": "between the busy stalls",
    "river": "beside the slow brown water",
    "hill": "high above the valley",
    "lake": "where the water was calm and clear",
    "harbor": "next to the fishing boats",
}
COLORS = "red blue green yellow white purple orange silver golden".split()
THINGS = "kite ball boat hat scarf drum lantern key bell basket book whistle coin ring box wagon".split()
FOODS = ["bread", "honey", "apples", "berries", "soup", "cheese", "carrots", "pie", "nuts", "pancakes", "plums", "cake"]
KIN = {"mother": "she", "father": "he", "grandmother": "she", "grandfather": "he", "aunt": "she", "uncle": "he"}
HIDING = [
    "under a bush", "behind a rock", "in the tall grass", "under the old bridge",
    "behind the door", "in a hollow log", "at the foot of a tree", "beside the path",
]  # fmt: skip
PRONOUNS = {"she": ("she", "her", "her"), "he": ("he", "him", "his")}


def _person(rng: random.Random, taken: str, animal: bool) -> tuple[str, str, str]:
    """Return (name, kind, subject pronoun) of someone whose name is not `taken`."""
    pronoun = rng.choice(["she", "he"])
    if animal:
        names, kind = PETS, rng.choice(ANIMALS)
    else:
        names, kind = (GIRLS, "girl") if pronoun == "she" else (BOYS, "boy")
    return rng.choice([name for name in names if name != taken]), kind, pronoun


def draw_cast(rng: random.Random) -> dict[str, str]:
    """Draw every slot of a story: {name he him his kind}, the friend's with an f, the relative's with a k, and things."""
    animal = rng.random() < 0.5
    name, kind, pronoun = _person(rng, "", animal)
    friend, friend_kind, friend_pronoun = _person(rng, name, animal)
    while friend_kind == kind and animal:
        friend_kind = rng.choice(ANIMALS)
    kin = rng.choice(list(KIN))
    place, other_place = rng.sample(list(PLACES), 2)
    color, other_color = rng.sample(COLORS, 2)
    cast = {
        "name": name, "kind": kind, "friend": friend, "friend_kind": friend_kind, "kin": kin,
        "the_name": f"{name} the {kind}" if animal else name,
        "the_friend": f"{friend} the {friend_kind}" if animal else friend,
        "trait": rng.choice(TRAITS), "friend_trait": rng.choice(TRAITS), "feeling": rng.choice(FEELINGS),
        "place": place, "where": PLACES[place], "other_place": other_place,
        "color": color, "other_color": other_color,
        "thing": rng.choice(THINGS), "food": rng.choice(FOODS), "hidden": rng.choice(HIDING),
        "number": rng.choice(["two", "three", "four", "five", "six", "seven"]),
    }  # fmt: skip
    for prefix, subject in (("", pronoun), ("f", friend_pronoun), ("k", KIN[kin])):
        cast[prefix + "he"], cast[prefix + "him"], cast[prefix + "his"] = PRONOUNS[subject]
    return cast
