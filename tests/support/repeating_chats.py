"""Conversations whose answers repeat a part of the question: edits, lists, tables that go on, copied texts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

NAMES = ("Ada", "Bela", "Cyra", "Dario", "Edda", "Fadil", "Gesa", "Hanno", "Ilse", "Jomo", "Kaya", "Leif")
THINGS = ("apple", "basket", "candle", "drum", "engine", "feather", "garden", "hammer", "island", "jacket", "kettle")
PLACES = ("Oslo", "Porto", "Quito", "Riga", "Sofia", "Turin", "Ulm", "Varna", "Wuhan", "Xalapa", "Yalta", "Zadar")
TOPICS = ("rain", "bread", "a bridge", "the moon", "wool", "a clock", "salt", "a violin", "moss", "glass")


def _code_to_edit(rng: random.Random) -> str:
    old, new = rng.sample(THINGS, 2)
    lines = [f"def count_{old}s({old}s):", "    total = 0", f"    for {old} in {old}s:"]
    lines += [f"        if {old}.weight > {rng.randrange(90)}:", f"            total += {old}.price"]
    lines += [f"    print('{old}s', total)", "    return total"]
    return f"Rename {old} to {new} in this function. Write only the function.\n\n" + "\n".join(lines)


def _list_to_edit(rng: random.Random) -> str:
    rows = [f"- {name}: {rng.randrange(99)} {rng.choice(THINGS)}s" for name in rng.sample(NAMES, 7)]
    return f"Copy this list, and change only the number of line {rng.randrange(2, 7)}.\n\n" + "\n".join(rows)


def _records_to_continue(rng: random.Random) -> str:
    records = [
        {"name": rng.choice(NAMES), "place": rng.choice(PLACES), "age": rng.randrange(18, 90), "is_member": True}
        for _ in range(4)
    ]
    return "Continue these JSON records with three more.\n\n" + "\n".join(map(json.dumps, records))


def _text_to_copy(rng: random.Random) -> str:
    facts = [
        f"{rng.choice(NAMES)} carried {rng.randrange(2, 30)} {rng.choice(THINGS)}s from {start} to {end}."
        for start, end in (rng.sample(PLACES, 2) for _ in range(4))
    ]
    return "Repeat this text word for word.\n\n" + " ".join(facts)


def _question(rng: random.Random) -> str:
    """Nothing in it helps to guess the answer."""
    return f"Tell me a short story about {rng.choice(TOPICS)} and {rng.choice(NAMES)}."


KINDS: tuple[Callable[[random.Random], str], ...] = (
    _code_to_edit,
    _list_to_edit,
    _records_to_continue,
    _text_to_copy,
    _question,
)


def repeating_chats(n: int, seed: int) -> list[list[dict[str, str]]]:
    """Returns n conversations of one message each, of each kind in turn: the same for the same seed."""
    rng = random.Random(seed)
    return [[{"role": "user", "content": KINDS[i % len(KINDS)](rng)}] for i in range(n)]
