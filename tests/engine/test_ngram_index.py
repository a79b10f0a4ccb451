"""Prompt lookup: what the index of repeats guesses, against a search by brute force."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from imp_service._testing import LAST_MEDIA_TOKEN, IndexedTokens

from support.run.growth import LINEAR, growth

MAX_CANDIDATES, MAX_MATCH, SURE_MATCH, LOOK_AHEAD = 16, 64, 4, 24
CELL = LAST_MEDIA_TOKEN - 5
EDITED = 7  # the first class of guesses from an edited copy


class BruteForce:
    """The rules of the index, by comparing all places."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.source: int | None = None  # of the last guesses
        self.source_size = 0

    def longest_match(self) -> tuple[int, int]:
        """Returns its length and the place after it. The newest of equal ones wins."""
        t, best = self.tokens, (0, -1)
        ends = [end for end in range(len(t) - 2, 0, -1) if t[end - 1 : end + 1] == t[-2:]]
        for end in ends[:MAX_CANDIDATES]:
            length = 0
            while length < min(MAX_MATCH, end + 1) and t[end - length] == t[-1 - length]:
                length += 1
            if length > best[0]:
                best = (length, end + 1)
        return best

    def edited_copy(self) -> int | None:
        if self.source is None or len(self.tokens) <= self.source_size:
            return None
        left_at = self.source + len(self.tokens) - self.source_size - 1
        for at in range(left_at, min(left_at + LOOK_AHEAD, len(self.tokens) - 1)):
            if self.tokens[at] == self.tokens[-1]:
                return at + 1
        self.source = left_at if left_at < len(self.tokens) else None
        self.source_size = len(self.tokens)
        return None

    def propose(self, n: int) -> list[tuple[int, int]]:
        if len(self.tokens) < 2:
            return []
        length, source = self.longest_match()
        edited = self.edited_copy() if length < SURE_MATCH else None
        if edited is not None:
            source = edited
        if source < 0:
            return []
        self.source, self.source_size = source, len(self.tokens)
        # A source that ends repeats itself.
        follow = list(self.tokens)
        for i in range(n):
            follow.append(follow[source + i])
        confidence = min(6, max(length, 1).bit_length() - 1) + (EDITED if edited is not None else 0)
        return [(token, confidence) for token in follow[len(self.tokens) :]]

    def truncate(self, n: int) -> None:
        self.tokens = self.tokens[:n]
        if self.source_size > n:
            self.source = None


def index_of(tokens: Sequence[int]) -> IndexedTokens:
    index = IndexedTokens()
    index.extend(tokens)
    return index


def guessed(tokens: Sequence[int], n: int = 4) -> list[int]:
    return [token for token, _ in index_of(tokens).propose(n)]


FILE = list(range(100, 160))


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], []),
        ([1], []),
        ([1, 2], []),
        ([1, 2, 3, 1], []),  # one equal token is no repeat
        ([1, 2, 3, 4, 5, 1, 2], [3, 4, 5, 1]),
        ([7, 7], []),
        ([7, 7, 7], [7, 7, 7, 7]),  # a period of one token
        ([1, 2, 3, 1, 2, 3, 1, 2], [3, 1, 2, 3]),
        ([1, 2, 8, 1, 2, 9, 1, 2], [9, 1, 2, 9]),  # of equal matches the newest
        ([5, 1, 2, 8, 6, 1, 2, 9, 5, 1, 2], [8, 6, 1, 2]),  # a longer match wins over a newer one
        ([*FILE, 1, *FILE[:10]], FILE[10:14]),
    ],
)
def test_spc_12_what_follows_a_repeat_is_guessed(tokens: list[int], expected: list[int]) -> None:
    assert guessed(tokens) == expected


@pytest.mark.parametrize(
    ("copied", "expected"),
    [
        ([*FILE[:20], 900, FILE[21]], FILE[22:26]),  # one token replaced
        ([*FILE[:20], FILE[25]], FILE[26:30]),  # five left out
        ([*FILE[:20], 900, 901, 902, FILE[20]], FILE[21:25]),  # three added
    ],
)
def test_spc_12_a_copy_with_an_edit_goes_on_after_it(copied: list[int], expected: list[int]) -> None:
    index = index_of([*FILE, 1])
    for token in copied:
        found = index.propose(4)
        index.extend([token])
    found = index.propose(4)
    assert [token for token, _ in found] == expected
    assert all(confidence >= EDITED for _, confidence in found)
    # Without the guesses before the edit, one token after it is no repeat.
    assert guessed([*FILE, 1, *copied]) == []


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, 3, *[CELL] * 9, 5, 1, 2], [3]),
        ([1, 2, *[CELL] * 9, 5, 1, 2], []),
        ([*[CELL] * 9, 1, 2, 3, 4, 5, 6, 7, *[CELL] * 9, 1, 2], [3, 4, 5, 6]),
        ([8, *[CELL] * 9, 5, 8, *[CELL] * 9, 6], []),
        ([3, *[CELL] * 9, 5, 6, 7, 3, *[CELL] * 9, 5], [6, 7, 3]),
    ],
)
def test_med_14_a_list_of_guesses_ends_before_a_cell_of_a_medium(tokens: list[int], expected: list[int]) -> None:
    assert guessed(tokens) == expected


def test_spc_12_longer_matches_are_surer() -> None:
    found = [index_of([*FILE, 1, *FILE[:n]]).propose(1)[0][1] for n in (2, 3, 4, 7, 8, 16, 32)]
    assert found == [1, 1, 2, 2, 3, 4, 5]
    longest = index_of([7] * 200).propose(1)
    assert longest == [(7, 6)]


@pytest.mark.parametrize("n_words", [2, 3, 5, 30])
def test_spc_12_equals_brute_force_on_random_histories(n_words: int) -> None:
    """Drawing, guessing and cutting in random order. Few words make many repeats, more of them edited copies."""
    rng = random.Random(n_words)
    n_guesses = 0
    for _ in range(150):
        index, slow = IndexedTokens(rng.choice([0, 300])), BruteForce()
        for _ in range(rng.randrange(5, 60)):
            match rng.choice(("draw", "draw", "draw", "copy", "guess", "guess", "cut")):
                case "draw":
                    new = [rng.randrange(n_words) for _ in range(rng.randrange(1, 4))]
                case "copy" if len(slow.tokens) > 3:
                    at = rng.randrange(len(slow.tokens))
                    new = slow.tokens[at : at + rng.randrange(1, 90)]
                case "cut":
                    n = rng.randrange(len(slow.tokens) + 2)
                    index.truncate(n)
                    slow.truncate(n)
                    continue
                case _:
                    n = rng.randrange(1, 12)
                    found = index.propose(n)
                    assert found == slow.propose(n), slow.tokens
                    n_guesses += len(found)
                    continue
            index.extend(new)
            slow.tokens += new
            assert len(index) == len(slow.tokens)
    assert n_guesses > 500


def test_spc_12_truncating_undoes_adding() -> None:
    rng = random.Random(7)
    tokens = [rng.randrange(6) for _ in range(400)]
    for n in range(0, 400, 23):
        index = index_of(tokens)
        index.truncate(n)
        fresh = index_of(tokens[:n])
        for each in (index, fresh):
            each.extend(tokens[: 400 - n])
        assert index.propose(20) == fresh.propose(20)


@pytest.mark.long
@pytest.mark.parametrize("tokens", [[7], [1, 2], [*range(63), 99]], ids=["one token", "two tokens", "near misses"])
def test_spc_12_the_time_is_linear_whatever_the_tokens(tokens: list[int]) -> None:
    text = (tokens * (300_000 // len(tokens) + 1))[:300_000]
    assert growth(lambda n: IndexedTokens(n).generate(text[:n], 4), 30_000) < LINEAR


def test_hon_1_the_oracle_sees_other_rules() -> None:
    """A newer, shorter match would give other guesses."""
    slow = BruteForce()
    slow.tokens = [5, 1, 2, 8, 6, 1, 2, 9, 5, 1, 2]
    newest = max(i + 2 for i, pair in enumerate(pairwise(slow.tokens[:-1])) if pair == (1, 2))
    assert slow.propose(1)[0][0] != slow.tokens[newest]
