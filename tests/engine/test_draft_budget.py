"""Guesses never cost more than their budget, whatever is right and whatever rows, masks and drafters cost."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from imp_service import _testing

Cost = Callable[[int], float]

STEP_NS = 1e6
FEWEST_OUTPUTS = 16
LEAST_SPEED = 0.97

COSTS: dict[str, Cost] = {
    "nearly free": lambda n: 1 + 0.01 * (n - 1),
    "q8_0": lambda n: 1 + 0.057 * (n - 1),
    "a step each": float,
    "jump at 2": lambda n: 1.0 if n < 2 else 1.9,
    "jump at 5": lambda n: 1 + 0.01 * (n - 1) + 0.95 * (n >= 5),
    "jump at 17": lambda n: 1 + 0.02 * (n - 1) + 0.95 * (n >= 17),
}


class Decoding:
    """Sequences that decode together with scripted guesses, in a world where steps have a cost.

    `mask`: what the text side takes for a mask, in steps of one row; the sequence is constrained then.
    """

    def __init__(self, cost: Cost, *, n_sequences: int = 1, seed: int = 0, mask: float = 0, lookup: float = 0) -> None:
        self._cost, self._n, self._mask, self._lookup = cost, n_sequences, mask, lookup
        self._rng = random.Random(seed)
        self.control = _testing.ControlledSequences(n_sequences)
        for confidence in range(16):
            self.control.set_prior(0, confidence, 0.9, 0.95)  # far too confident
        self.plain = cost(n_sequences) + mask
        # After each step: outputs of all sequences, and the time so far.
        self.course: list[tuple[int, float]] = [(0, 0.0)]
        self.n_guesses = 0

    def run(self, share: float, n_outputs: int, most: int = 32) -> None:
        """Until there are so many more outputs. Each guess is right with this probability."""
        end = self.course[-1][0] + n_outputs * self._n
        while self.course[-1][0] < end:
            self.step([share] * self._n, most)

    def step(self, shares: Sequence[float], most: int = 32) -> None:
        may_draft = [self.control.may_draft(i) and not self.control.backoff_left(i) for i in range(self._n)]
        given = [self._given(i, most) if self._mask else most for i in range(self._n)]
        options = [(0, [1] * n if may else []) for n, may in zip(given, may_draft, strict=True)]
        depths = self.control.choose(options, n_outputs=self._n, n_rows=self._n)
        n_right = [self._right_of(depth, share) for depth, share in zip(depths, shares, strict=True)]
        took = self._cost(self._n + sum(depths))
        draft = self._lookup * any(may_draft)
        self.control.add_rounds(
            n_right, work_ns=STEP_NS * took * self._rng.uniform(0.96, 1.04), draft_ns=STEP_NS * draft
        )
        if self._mask and given[0]:
            self.control.add_answered(0, n_right[0])
        outputs, time = self.course[-1]
        waited = self._mask * (given[0] + 2 if given[0] else 1) if self._mask else 0.0
        self.course.append((outputs + self._n + sum(n_right), time + took + draft + waited))
        self.n_guesses += sum(depths)

    def _given(self, sequence: int, most: int) -> int:
        """The text side is asked, and gives all that it is asked for: for n guesses it computes n + 2 masks."""
        n = self.control.n_to_ask(sequence, min(most, 8))
        self.control.add_wait(sequence, n, n, STEP_NS * self._mask * (n + 2 if n else 1))
        return n

    def _right_of(self, depth: int, share: float) -> int:
        for n_right in range(depth):
            if self._rng.random() >= share:
                return n_right
        return depth

    def slowest(self) -> float:
        """The least speed, compared with no guesses, up to any step."""
        return min(
            outputs / self._n * self.plain / time
            for outputs, time in self.course
            if outputs >= FEWEST_OUTPUTS * self._n
        )


def test_spc_33_guesses_without_a_budget_would_be_slower() -> None:
    """The comparison fails for a sequence that tries one guess in each step and is never right."""
    decoding = Decoding(COSTS["q8_0"])
    decoding.course += [(n, n * COSTS["q8_0"](2)) for n in range(1, 100)]
    assert decoding.slowest() < LEAST_SPEED


@pytest.mark.few(5)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("kind", COSTS)
def test_spc_33_a_cold_start_is_never_slower(kind: str, share: float) -> None:
    """From the first output on, with shares that are far too confident and row costs that nobody has measured."""
    for seed in range(4):
        decoding = Decoding(COSTS[kind], seed=seed)
        decoding.run(share, 1000)
        assert decoding.slowest() >= LEAST_SPEED
        assert decoding.n_guesses > 0


@pytest.mark.parametrize("kind", COSTS)
def test_spc_33_a_change_of_the_text_is_never_slower(kind: str) -> None:
    """What was always right is never right from some output on, and the other way round."""
    for seed in range(4):
        decoding = Decoding(COSTS[kind], seed=seed)
        for share in (1.0, 0.0, 0.6, 0.0, 1.0, 0.3, 0.0):
            decoding.run(share, random.Random(seed).choice([17, 60, 200]))
        assert decoding.slowest() >= LEAST_SPEED


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", COSTS)
def test_spc_33_an_adversary_is_never_slower(kind: str) -> None:
    """Guesses are right until the control trusts them, and then wrong for as long as it does."""
    decoding = Decoding(COSTS[kind])
    for i in range(3000):
        before = decoding.n_guesses
        decoding.step([1.0 if i % 50 < 6 else 0.0])
        if decoding.n_guesses == before:
            decoding.step([1.0])
    assert decoding.slowest() >= LEAST_SPEED


@pytest.mark.few(5)
@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("n_sequences", [2, 4, 16])
def test_spc_33_several_sequences_are_never_slower(kind: str, n_sequences: int) -> None:
    for share in (0.0, 0.3, 0.9):
        decoding = Decoding(COSTS[kind], n_sequences=n_sequences)
        decoding.run(share, 400)
        assert decoding.slowest() >= LEAST_SPEED


@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_spc_33_many_short_answers_are_never_slower_together(share: float) -> None:
    """The server has a budget too, which new sequences do not renew."""
    decoding = Decoding(COSTS["q8_0"])
    for _ in range(100):
        decoding.run(share, 8)
        decoding.control.reset(0)
    assert decoding.slowest() >= LEAST_SPEED


@pytest.mark.few(6)
@pytest.mark.parametrize("mask", [0.01, 0.1, 0.6, 3.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_spc_33_masks_are_paid_too(mask: float, share: float) -> None:
    """A constrained sequence, whose masks cost a hundredth of a step up to three steps."""
    for kind in ("nearly free", "q8_0", "a step each"):
        decoding = Decoding(COSTS[kind], mask=mask)
        decoding.run(share, 1000)
        assert decoding.slowest() >= LEAST_SPEED
        if share == 1 and kind != "a step each" and mask < 1:
            assert decoding.course[-1][0] * decoding.plain / decoding.course[-1][1] > 1.2


@pytest.mark.parametrize("lookup", [0.001, 0.02, 0.3])
def test_spc_33_the_time_of_looking_for_guesses_is_paid_too(lookup: float) -> None:
    """Where it costs more than the budget allows, guesses are not looked for in most steps."""
    decoding = Decoding(COSTS["q8_0"], lookup=lookup)
    decoding.run(0.0, 2000)
    assert decoding.slowest() >= LEAST_SPEED


def test_spc_33_a_step_that_had_to_wait_is_paid_too() -> None:
    """On a device that runs ahead, a sequence that may draft holds the next step back."""
    control = _testing.ControlledSequences(1)
    for _ in range(100):
        control.choose([(0, [])], n_outputs=1, n_rows=1)
        control.add_rounds([0], work_ns=STEP_NS)
    n_held_back = 0
    for _ in range(1000):
        is_armed = control.may_draft(0)
        n_held_back += is_armed
        control.choose([(0, [])], n_outputs=1, n_rows=1)
        control.add_rounds([0], work_ns=STEP_NS * (1.2 if is_armed else 1.0), is_held_back=is_armed)
    assert 0 < n_held_back * 0.2 < 1100 * (1 / LEAST_SPEED - 1)
    assert control.costs.step_ns(1) == pytest.approx(STEP_NS), "the steps that waited do not count as plain ones"


def draft_time(
    n_outputs: int, *, start_cost: float, n_ahead: int = 1000, n_had: int | None = None, share: float = 0.9
) -> float:
    """The time of a drafter that has to evaluate something before its first guess, until the sequence begins to gain.

    It begins in chunks of a quarter of a step, and a guess costs a tenth of one. `n_had`: of the sequence, which is one
    of many then; None: all outputs are its own.
    """
    control = _testing.ControlledSequences(1)
    control.set_prior(0, 1, share, share)
    spent = 0.0
    for n in range(n_outputs):
        lacking = start_cost - spent
        (depth,) = control.choose(
            [(0, [1] * 4 if control.may_draft(0) else [])], n_outputs=1, n_rows=1, guess_cost=0.1, start_cost=lacking,
            n_had=n if n_had is None else n_had, n_ahead=n_ahead,
        )  # fmt: skip
        begun = min(lacking, 0.25) if depth else 0.0
        # The drafter has no guess before it has evaluated all.
        control.choose([(0, [])], n_outputs=1, n_rows=1)
        control.add_rounds([0], work_ns=STEP_NS, draft_ns=STEP_NS * begun)
        spent += begun
        if spent >= start_cost:
            break
    return spent


def test_spc_33_a_drafter_starts_only_where_it_can_pay() -> None:
    """A draft model evaluates the prompt of a sequence only if what it may gain is more, and the server can pay it."""
    assert draft_time(400, start_cost=4, n_ahead=1000) == 4
    assert draft_time(400, start_cost=4, n_ahead=3) == 0, "too few outputs are left"
    assert draft_time(100, start_cost=8, n_ahead=1000) == 0, "the server cannot pay it yet"
    assert draft_time(190, start_cost=4, n_ahead=1000, share=0.02) == 0, "it could not gain anything"


def test_spc_33_a_trial_starts_only_where_its_sequence_can_pay() -> None:
    """A draft model that seems useless is tried again, but its sequence loses at most 3 % of its time."""
    assert draft_time(1000, start_cost=4, share=0.02) == 4
    assert draft_time(1000, start_cost=4, n_had=134, share=0.02) == 4
    assert draft_time(1000, start_cost=4, n_had=133, share=0.02) == 0, "the sequence cannot pay it yet"
