"""Draws the cast of a story: a hero, a friend, a relative, places and things, named so that they stay consistent."""

import random

from .tables import pairs, words

PLACES = pairs("places, and where one is in them")
KIN = pairs("relatives, and their pronouns")
PRONOUNS = {"she": ("she", "her", "her"), "he": ("he", "him", "his")}
_SMALL_NUMBERS = ["two", "three", "four", "five", "six", "seven"]


def _person(rng: random.Random, taken: str, animal: bool) -> tuple[str, str, str]:
    """Returns (name, kind, subject pronoun) of someone whose name is not `taken`."""
    pronoun = rng.choice(["she", "he"])
    if animal:
        names, kind = words("pets"), rng.choice(words("animals"))
    else:
        names, kind = (words("girls"), "girl") if pronoun == "she" else (words("boys"), "boy")
    return rng.choice([name for name in names if name != taken]), kind, pronoun


def draw_cast(rng: random.Random) -> dict[str, str]:
    """Draws the value of every slot. Pronouns are {he him his}; the prefix f is for the friend, k for the relative."""
    animal = rng.random() < 0.5
    name, kind, pronoun = _person(rng, "", animal)
    friend, friend_kind, friend_pronoun = _person(rng, name, animal)
    while friend_kind == kind and animal:
        friend_kind = rng.choice(words("animals"))
    kin = rng.choice(list(KIN))
    place, other_place = rng.sample(list(PLACES), 2)
    color, other_color = rng.sample(words("colors"), 2)
    cast = {
        "name": name,
        "kind": kind,
        "friend": friend,
        "friend_kind": friend_kind,
        "kin": kin,
        "the_name": f"{name} the {kind}" if animal else name,
        "the_friend": f"{friend} the {friend_kind}" if animal else friend,
        "trait": rng.choice(words("traits")),
        "friend_trait": rng.choice(words("traits")),
        "feeling": rng.choice(words("feelings")),
        "place": place,
        "where": PLACES[place],
        "other_place": other_place,
        "color": color,
        "other_color": other_color,
        "thing": rng.choice(words("things")),
        "food": rng.choice(words("foods")),
        "hidden": rng.choice(words("hiding places")),
        "number": rng.choice(_SMALL_NUMBERS),
    }
    for prefix, subject in (("", pronoun), ("f", friend_pronoun), ("k", KIN[kin])):
        cast[prefix + "he"], cast[prefix + "him"], cast[prefix + "his"] = PRONOUNS[subject]
    return cast
