"""The known name that is nearest to an unknown one."""

from collections.abc import Iterable
from difflib import SequenceMatcher

from imp_service.config.table import Section, keys_of
from imp_service.config.toml import KeyPath, write_path

# Below this a name counts as another word, not as a slip of the finger.
_ALIKE = 0.6


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one[:64].lower(), other.lower(), autojunk=False).ratio()


def nearest(word: str, known: Iterable[str]) -> str:
    return max(known, key=lambda name: _likeness(word, name))


def nearest_key(root: Section, siblings: Iterable[str], path: KeyPath) -> str:
    """The key that `path`, unknown from its last name on, was most likely meant to be: a sibling, else a key of that
    name in another section, else whatever looks most alike."""
    last = path[-1]
    sibling = nearest(last, siblings)
    if _likeness(last, sibling) >= _ALIKE:
        return write_path((*path[:-1], sibling))
    everywhere = [known for known, _ in keys_of(root)]
    best = max(everywhere, key=lambda known: (_likeness(last, known[-1]), _likeness(".".join(path), ".".join(known))))
    return write_path(best) if _likeness(last, best[-1]) >= _ALIKE else write_path((*path[:-1], sibling))
