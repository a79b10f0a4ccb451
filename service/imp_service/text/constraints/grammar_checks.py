"""Checks that grammars share: rules that never end, and how deep and how far a regular expression repeats."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Set
from typing import TypeVar

from imp_service.text.errors import FieldInvalid
from imp_service.text.limits import TextLimits

Key = TypeVar("Key")


def find_nonproductive(needs: Mapping[Key, Set[Key]], ends: Callable[[Key, Set[Key]], bool]) -> list[Key]:
    """The keys from which nothing finite can be derived (nonproductive rules), in order.

    `ends` returns whether a finite text follows from a key, given the keys known to have one. It is called again for a
    key when this becomes known of another key that it needs.
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


# The most characters of an expression with every counted repeat written out.
MAX_EXPANSION = 1 << 17
_COUNTED = re.compile(r"\{(\d{1,9})(?:(,)(\d{1,9})?)?\}")
_BRACED_ESCAPE = re.compile(r"\\[xuUpPN]\{[^}]*\}")
# Capturing or not, named, or with flags; look-around is left to the library, which names it.
_GROUP_HEAD = re.compile(r"\(\?(?:[a-zA-Z-]*:|P?<[A-Za-z_][^>]*>)")


def check_regex(source: str, path: str, limits: TextLimits) -> None:
    """Raises `FieldInvalid` with the offset of anything too large. Syntax errors are left to the library."""
    if not source:
        raise FieldInvalid(path, "empty")
    n_bytes = len(source.encode("utf-8", "surrogatepass"))
    if n_bytes > limits.regex_bytes:
        raise FieldInvalid(path, f"{n_bytes} bytes, limit {limits.regex_bytes}")
    # For each open group the size before it. `size` is that of the current sequence, `last` that of its last atom.
    before: list[int] = []
    size = last = position = 0
    while position < len(source):
        char = source[position]
        counted = _COUNTED.match(source, position)
        if counted is not None:
            times = _times(counted, position, path, limits)
            size += last * (times - 1) if times else 0
            last *= max(times, 1)
            position = counted.end()
        elif char == "(":
            if len(before) >= limits.nesting:
                raise FieldInvalid(path, f"offset {position}: nested more than {limits.nesting} deep")
            before.append(size)
            size = last = 0
            head = _GROUP_HEAD.match(source, position)
            position = head.end() if head is not None else position + 1
        elif char == ")":
            last = max(size, 1)
            size = last + (before.pop() if before else 0)
            position += 1
        else:
            if char not in "*+?|":
                last = 1
                size += 1
            position = _after_atom(source, position, path, limits)
        if size > MAX_EXPANSION:
            raise FieldInvalid(path, f"offset {position}: repeats expand to more than {MAX_EXPANSION} characters")


def _times(counted: re.Match[str], position: int, path: str, limits: TextLimits) -> int:
    times = int(counted[3] or counted[1])
    if max(times, int(counted[1])) > limits.repeat:
        raise FieldInvalid(path, f"offset {position}: repeat of {times}, limit {limits.repeat}")
    return times


def _after_atom(source: str, position: int, path: str, limits: TextLimits) -> int:
    if source[position] == "\\":
        braced = _BRACED_ESCAPE.match(source, position)
        return braced.end() if braced is not None else position + 2
    return _after_class(source, position, path, limits) if source[position] == "[" else position + 1


def _after_class(source: str, start: int, path: str, limits: TextLimits) -> int:
    """The position after a class; classes nest."""
    depth, position = 0, start
    while position < len(source):
        char = source[position]
        if char == "\\":
            position += 1
        elif char == "[":
            depth += 1
            if depth > limits.nesting:
                raise FieldInvalid(path, f"offset {position}: nested more than {limits.nesting} deep")
            # A bracket right after the opening one is a member.
            if source.startswith("^", position + 1):
                position += 1
            if source.startswith("]", position + 1):
                position += 1
        elif char == "]":
            depth -= 1
            if depth == 0:
                return position + 1
        position += 1
    return position


def quote_for_regex(text: str) -> str:
    """An expression that matches exactly this text."""
    return "".join(char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}" for char in text)
