"""How many guesses a step verifies: the best number of the model of their worth, found from what happens."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from imp_service import _testing
from support.oracles.tolerances import DRAFT_RATE, STEP_COST

Cost = Callable[[int], float]

# The time of a step by its rows, in steps of one row: a 0.6B model on two cores, and costs that jump.
Q8_0 = {1: 1.0, 4: 1.17, 8: 1.18, 16: 1.74, 32: 3.97, 64: 7.9}
Q4_K = {1: 1.0, 4: 1.2, 8: 1.55, 16: 2.75, 32: 5.5, 64: 11.0}


def line(points: dict[int, float]) -> Cost:
    """The line through the points."""
    places = sorted(points)

    def cost(n_rows: int) -> float:
        below = max(place for place in places if place <= n_rows)
        above = min((place for place in places if place >= n_rows), default=below)
        share = 0.0 if above == below else (n_rows - below) / (above - below)
        return points[below] + share * (points[above] - points[below])

    return cost


def jump(at: int, to: float) -> Cost:
    """Rows are nearly free up to `at`, where the time jumps."""
    return lambda n_rows: (1.0 if n_rows < at else to) * (1 + 0.01 * n_rows)


COSTS = {"q8_0": line(Q8_0), "q4_k": line(Q4_K), **{f"jump at {at}": jump(at, 1.6) for at in (2, 5, 9, 17, 25)}}


def learned(cost: Cost, most: int = 64) -> _testing.RowCosts:
    """Row costs that have seen many steps of every number of rows."""
    costs = _testing.RowCosts()
    for n_rows in range(1, most + 1):
        for _ in range(200):
            costs.add(n_rows, 0, 1e6 * cost(n_rows))
    return costs


def falling(rng: random.Random) -> list[float]:
    survivals, survival = [], 1.0
    for _ in range(rng.randrange(6)):
        survival *= rng.choice([rng.random(), 1.0, 0.9])
        survivals.append(survival)
    return survivals


def random_costs(rng: random.Random) -> _testing.RowCosts:
    value, table = 1.0, []
    for _ in range(64):
        table.append(value)
        value += rng.choice([0.0, 0.02, 0.3, 1.0]) * rng.random()
    return learned(lambda n_rows: table[n_rows - 1])


@dataclass(frozen=True)
class Case:
    """A planned step: the survivals of its sequences' guesses, and the price of making one."""

    costs: _testing.RowCosts
    survivals: list[list[float]]
    prices: list[float]
    n_outputs: int
    n_rows: int
    n_free: int

    def chosen(self) -> tuple[int, ...]:
        """The choice under test."""
        return tuple(
            _testing.chosen_depths(self.survivals, self.prices, self.n_outputs, self.n_rows, 0, self.n_free, self.costs)
        )

    def time(self, chosen: tuple[int, ...]) -> float:
        made = sum(n * price for n, price in zip(chosen, self.prices, strict=True))
        return self.costs.step_ns(self.n_rows + sum(chosen)) + made * self.costs.step_ns(1)

    def rate(self, chosen: tuple[int, ...]) -> float:
        """Expected outputs in a time."""
        outputs = sum(sum(each[:n]) for each, n in zip(self.survivals, chosen, strict=True))
        return (self.n_outputs + outputs) / self.time(chosen)

    def keeps_others_waiting(self, chosen: tuple[int, ...]) -> bool:
        """Whether a sequence or a prompt without guesses waits more than a quarter longer."""
        has_mates = self.n_rows > self.n_outputs or sum(n > 0 for n in chosen) < self.n_outputs
        return sum(chosen) > 0 and has_mates and self.time(chosen) > 1.25 * self.costs.step_ns(self.n_rows)

    def best(self) -> tuple[int, ...]:
        """The best of all allocations, whoever waits."""
        allocations = itertools.product(*(range(len(each) + 1) for each in self.survivals))
        return max((each for each in allocations if sum(each) <= self.n_free), key=self.rate)


def random_case(rng: random.Random, prices: list[float]) -> Case:
    n_outputs = len(prices) + rng.choice([0, 0, 1, 5])
    return Case(
        costs=random_costs(rng), survivals=[falling(rng) for _ in prices], prices=prices, n_outputs=n_outputs,
        n_rows=n_outputs + rng.choice([0, 0, 24]), n_free=rng.choice([0, 2, 30]),
    )  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(20))
def test_spc_24_the_depths_are_the_best_of_all_allocations(seed: int) -> None:
    """Brute force finds nothing better, for random survivals, costs, and numbers of sequences without guesses."""
    rng = random.Random(seed)
    n_compared = 0
    for _ in range(15):
        case = random_case(rng, [0.0] * rng.randrange(1, 4))
        chosen, best = case.chosen(), case.best()
        assert not case.keeps_others_waiting(chosen)
        if not case.keeps_others_waiting(best):
            assert case.rate(chosen) == pytest.approx(case.rate(best), rel=DRAFT_RATE)
            n_compared += sum(best) > 0
    assert n_compared > 2


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(10))
def test_spc_24_guesses_that_cost_something_are_weighed_with_their_cost(seed: int) -> None:
    """One of two sequences has a drafter that computes."""
    rng = random.Random(seed)
    for _ in range(15):
        case = random_case(rng, [0.0, rng.choice([0.02, 0.1, 0.5])])
        chosen, best = case.chosen(), case.best()
        assert not case.keeps_others_waiting(chosen)
        if not case.keeps_others_waiting(best):
            assert case.rate(chosen) == pytest.approx(case.rate(best), rel=DRAFT_RATE)


@pytest.mark.long
def test_spc_24_more_survival_never_drafts_less_and_more_cost_never_more() -> None:
    def depth(share: float, slope: float) -> int:
        costs = learned(lambda n_rows: 1 + slope * (n_rows - 1))
        (chosen,) = _testing.chosen_depths([[share**i for i in range(1, 33)]], [0.0], 1, 1, 0, 63, costs)
        return chosen

    for slope in (0.02, 0.1, 0.4):
        by_share = [depth(share, slope) for share in (0.0, 0.1, 0.3, 0.6, 0.8, 0.9, 0.99)]
        assert by_share == sorted(by_share) and by_share[0] == 0 < by_share[-1]
    for share in (0.3, 0.6, 0.9):
        by_slope = [depth(share, slope) for slope in (0.0, 0.02, 0.1, 0.4, 2.0)]
        assert by_slope == sorted(by_slope, reverse=True) and by_slope[-1] == 0


class Text:
    """Rounds of one sequence whose guesses are right with a probability, in a world where steps have a cost."""

    def __init__(self, cost: Cost, seed: int, most: int = 32) -> None:
        self._cost = cost
        self._most = most
        self._rng = random.Random(seed)
        self.sequences = _testing.ControlledSequences(1)
        # The prompt: its rows cost what a row among many does.
        self.sequences.costs.add_prompt(512, 512 * 1e6 * (cost(64) - cost(32)) / 32)
        self.depths: list[int] = []

    def run(self, share: float, n_rounds: int) -> float:
        """Runs so many rounds; returns the outputs for each unit of time."""
        outputs, time = 0, 0.0
        for _ in range(n_rounds):
            guesses = [] if self.sequences.backoff_left(0) or not self.sequences.may_draft(0) else [1] * self._most
            (depth,) = self.sequences.choose([(0, guesses)], n_outputs=1, n_rows=1)
            n_right = self.right_of(depth, share)
            spent = self._cost(1 + depth)
            self.sequences.add_rounds([n_right], work_ns=1e6 * spent * self._rng.uniform(0.95, 1.05))
            outputs += 1 + n_right
            time += spent
            self.depths.append(depth)
        return outputs / time

    def right_of(self, depth: int, share: float) -> int:
        for n_right in range(depth):
            if self._rng.random() >= share:
                return n_right
        return depth


def best_fixed(cost: Cost, share: float, most: int = 32) -> float:
    """The rate of the best fixed depth."""
    return max(sum(share**i for i in range(depth + 1)) / cost(1 + depth) for depth in range(most + 1))


@pytest.mark.few(4)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("kind", COSTS)
def test_spc_25_the_control_finds_the_depth(kind: str, share: float) -> None:
    """After 128 rounds it is within 5 % of the best fixed depth; where nothing is right it stops within 64 rounds."""
    cost, rates, n_rounds = COSTS[kind], [], 1500
    for seed in range(3):
        text = Text(cost, seed)
        text.run(share, 128)
        if share == 0 and cost(2) > 1.04:
            assert sum(depth > 0 for depth in text.depths[64:]) <= 2
        rates.append(text.run(share, n_rounds))
    assert sum(rates) / len(rates) >= 0.95 * best_fixed(cost, share)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["q8_0", "q4_k"])
def test_spc_25_the_control_follows_a_change(kind: str) -> None:
    cost = COSTS[kind]
    for before, after in ((0.9, 0.0), (0.0, 0.9), (0.3, 0.9), (0.9, 0.3)):
        rates = []
        for seed in range(4):
            text = Text(cost, seed)
            text.run(before, 300)
            text.run(after, 128)
            rates.append(text.run(after, 400))
        assert sum(rates) / len(rates) >= 0.95 * best_fixed(cost, after), (before, after)


def test_spc_25_rounds_that_gain_nothing_stop_a_sequence_for_longer_and_longer() -> None:
    """The guesses seem worth it again and again, and the review finds that they are not."""
    sequences = _testing.ControlledSequences(1)
    for _ in range(200):
        sequences.costs.add(1, 0, 1e6)
        sequences.costs.add(2, 0, 1.04e6)
    stops: list[int] = []
    for i in range(3000):
        backoff = sequences.backoff_left(0)
        if backoff and (not stops or stops[-1] < backoff):
            stops.append(backoff)
        (depth,) = sequences.choose([(0, [] if backoff else [i % 14])], n_outputs=1, n_rows=1)
        sequences.add_rounds([int(depth > 0 and i % 25 == 0)], work_ns=1.04e6 if depth else 1e6)
    assert stops[0] == 256
    assert all(later == 2 * earlier for earlier, later in itertools.pairwise(stops))
    sequences.reset(0)
    assert sequences.backoff_left(0) == 0


def test_spc_25_mates_that_do_not_draft_wait_at_most_a_quarter_longer() -> None:
    costs = learned(line(Q4_K))
    certain = [1.0] * 32
    alone = _testing.chosen_depths([certain], [0.0], 1, 1, 0, 63, costs)
    beside = _testing.chosen_depths([certain], [0.0], 2, 2, 0, 62, costs)
    assert 0 < beside[0] < alone[0]
    assert costs.step_ns(2 + beside[0]) <= 1.25 * costs.step_ns(2)


def test_spc_25_many_sequences_spend_no_more_on_trials_than_one() -> None:
    n = 16
    sequences = _testing.ControlledSequences(n)
    cost = line(Q8_0)
    n_guesses = []
    for _ in range(3000):
        chosen = sequences.choose([(0, [1] * 8)] * n, n_outputs=n, n_rows=n)
        sequences.add_rounds([0] * n, work_ns=1e6 * cost(n + sum(chosen)))
        n_guesses.append(sum(chosen))
    assert sum(n_guesses[100:]) <= 2 * len(n_guesses) / 64


@pytest.mark.parametrize("ns", [0.0, -5.0, float("nan"), float("inf"), 1e300])
def test_spc_26_senseless_times_leave_costs_that_can_be_compared(ns: float) -> None:
    costs = _testing.RowCosts()
    for n_rows in (1, 3, 9, 70):
        costs.add(n_rows, 1e9, ns)
        costs.add_prompt(512, ns)
    values = [costs.step_ns(n_rows) for n_rows in range(1, 130)]
    assert all(0 < value < float("inf") for value in values)
    assert values == sorted(values)


def test_spc_25_the_cost_of_the_cache_is_told_from_that_of_rows() -> None:
    """Steps take 1 ms, 0.05 ms a row and 100 ns for each token in the cache."""
    rng = random.Random(0)
    costs = _testing.RowCosts()
    for _ in range(600):
        n_rows, n_held = rng.choice([1, 2, 4, 8]), rng.randrange(20_000)
        costs.add(n_rows, n_held, 1e6 + 5e4 * n_rows + 100 * n_held)
    for n_rows in (1, 4, 8):
        for n_held in (0, 10_000, 20_000):
            assert costs.step_ns(n_rows, n_held) == pytest.approx(1e6 + 5e4 * n_rows + 100 * n_held, rel=STEP_COST)


def test_spc_25_one_slow_step_does_not_spoil_a_cost() -> None:
    costs = learned(line(Q8_0), most=8)
    costs.add(12, 0, 100e6)
    assert costs.step_ns(12) < 2e6


def test_spc_25_a_wrong_share_of_the_cache_does_not_hide_what_guesses_cost() -> None:
    """The times of 64 rows grew by chance while their caches did. Then 16 rows have eight times as many tokens.

    The numbers are those of a run in which guesses of 16 sequences seemed to be free.
    """
    costs = _testing.RowCosts()
    for n_held in range(500, 1900, 64):
        costs.add(64, n_held, 300e6 + 200e3 * (n_held - 500))
    for _ in range(16):
        costs.add(1, 0, 75e6)
    assert costs.step_ns(16, 8000) > 500e6
    for step in range(8):
        costs.add(16, 8000 + 16 * step, 110e6)
        if step >= 1:  # from then on guesses may be chosen
            assert costs.baseline_ns(16, 8016 + 16 * step) == pytest.approx(110e6, rel=STEP_COST)
    # What was not measured follows from the other times.
    assert costs.baseline_ns(8, 8000) == costs.step_ns(8, 8000)
