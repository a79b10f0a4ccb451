"""Which parts of a recursive definition can come to an end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Set
from typing import TypeVar

Key = TypeVar("Key")


def find_endless(needs: Mapping[Key, Set[Key]], ends: Callable[[Key, Set[Key]], bool]) -> list[Key]:
    """The keys that never end, in order.

    `ends` says whether a key ends, given the keys that are known to; a key is asked again when one that it needs
    turns out to end.
    """
    needed_by: dict[Key, list[Key]] = {key: [] for key in needs}
    for key, needed in needs.items():
        for other in needed:
            needed_by[other].append(key)
    ending: set[Key] = set()
    waiting = deque(needs)
    is_waiting = set(needs)
    while waiting:
        key = waiting.popleft()
        is_waiting.discard(key)
        if not ends(key, ending):
            continue
        ending.add(key)
        for other in needed_by[key]:
            if other not in ending and other not in is_waiting:
                is_waiting.add(other)
                waiting.append(other)
    return [key for key in needs if key not in ending]
