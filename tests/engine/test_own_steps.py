"""A tenant that shared steps slow down gets steps of its own. A simulated device gives each step its time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from imp_service import _testing
from support.engine.scheduler_bench import generate, make_bench

MS = 1_000_000
# The time of a step by its rows.
Device = Callable[[int], int]


def slow_with_rows(n_rows: int) -> int:
    """A small model on few cores: 24 rows take four times as long as one."""
    return 10 * MS * max(6, n_rows) // 6


def equal_for_all(n_rows: int) -> int:
    """A large model: a step takes as long as reading the weights."""
    return 100 * MS


def run(
    bench: _testing.SchedulerBench, tenant_of: dict[int, str], device: Device, n_steps: int, now: int = 1
) -> tuple[Counter[str], int]:
    """Runs steps; returns the tokens of each tenant, and the time."""
    tokens: Counter[str] = Counter()
    begin = now
    for _ in range(n_steps):
        rows = bench.next_step(now)["rows"]
        tokens.update(tenant_of[name] for name, _, _ in rows)
        now += device(sum(n for _, n, _ in rows))
        bench.advance()
    return tokens, now - begin


@pytest.mark.parametrize(("n_others", "each"), [(60, 12), (60, 64), (13, 12), (200, 12)])
def test_sch_7_one_stream_keeps_half_of_its_pace_beside_many_of_another_tenant(n_others: int, each: int) -> None:
    bench = make_bench(decode_per_tenant=each, max_running=256)
    tenant_of = generate(bench, a=n_others, b=1)
    run(bench, tenant_of, slow_with_rows, 200)
    tokens, time = run(bench, tenant_of, slow_with_rows, 2000, now=10**12)
    pace_alone = time / slow_with_rows(1)
    assert 0.48 <= tokens["b"] / pace_alone <= 0.56
    # The other tenant keeps its half of the time too.
    n_rows = min(n_others, max(each, 2 * each - 1))
    assert tokens["a"] >= 0.44 * n_rows * time / slow_with_rows(n_rows)


def test_sch_7_who_computes_many_rows_as_fast_as_one_gives_hardly_a_step_away() -> None:
    bench = make_bench()
    tenant_of = generate(bench, a=60, b=1)
    tokens, _ = run(bench, tenant_of, equal_for_all, 2000)
    assert tokens["b"] == 2000
    assert tokens["a"] >= 0.97 * 2000 * 23


@pytest.mark.parametrize("device", [slow_with_rows, equal_for_all])
def test_sch_7_tenants_with_equal_demand_share_every_step(device: Device) -> None:
    bench = make_bench()
    tenant_of = generate(bench, **{f"t{i}": 1 for i in range(20)})
    tokens, _ = run(bench, tenant_of, device, 500)
    assert set(tokens.values()) == {500}


def test_sch_7_no_bound_of_rows_means_no_steps_of_its_own() -> None:
    bench = make_bench(decode_per_tenant=0)
    tenant_of = generate(bench, a=60, b=1)
    tokens, _ = run(bench, tenant_of, slow_with_rows, 500)
    assert tokens == {"a": 500 * 60, "b": 500}


def test_sch_7_the_time_of_a_step_of_its_own_is_measured_again() -> None:
    """For a while the device takes long even for one row. Afterwards the stream has its half again."""
    bench = make_bench()
    tenant_of = generate(bench, a=60, b=1)
    run(bench, tenant_of, slow_with_rows, 300)
    run(bench, tenant_of, equal_for_all, 300, now=10**12)
    run(bench, tenant_of, slow_with_rows, 300, now=10**13)
    tokens, time = run(bench, tenant_of, slow_with_rows, 2000, now=10**14)
    assert tokens["b"] >= 0.48 * time / slow_with_rows(1)


def test_sch_7_a_pause_of_the_process_changes_nothing_for_long() -> None:
    bench = make_bench()
    tenant_of = generate(bench, a=60, b=1)
    run(bench, tenant_of, slow_with_rows, 300)
    bench.next_step(10**12)
    bench.advance()
    tokens, time = run(bench, tenant_of, slow_with_rows, 600, now=10**13)
    assert 0.45 <= tokens["b"] * slow_with_rows(1) / time <= 0.6


@pytest.mark.parametrize("n_shared", [0, 1])
def test_sch_7_right_guesses_of_a_step_of_its_own_are_part_of_the_pace(n_shared: int) -> None:
    """A step of its own verifies seven right guesses of the stream, a shared step fewer."""
    bench = make_bench()
    tenant_of = generate(bench, a=60, b=1)
    n_outputs, now, begin = 0, 1, 0
    for step in range(2400):
        if step == 400:
            n_outputs, begin = 0, now
        rows = bench.next_step(now)["rows"]
        n_right = 7 if len(rows) == 1 else n_shared
        now += slow_with_rows(sum(n for _, n, _ in rows) + n_right)
        bench.advance()
        for name in [name for name, _, _ in rows if tenant_of[name] == "b"]:
            bench.count_right_guesses(name, n_right)
            n_outputs += 1 + n_right
    assert 0.46 <= n_outputs / 8 * slow_with_rows(8) / (now - begin) <= 0.56


@pytest.mark.parametrize("seed", range(3))
def test_sch_7_with_random_demand_no_step_is_empty(seed: int) -> None:
    """Four tenants with few or many streams, in a cache that is too small for all of them."""
    rng = random.Random(seed)
    bench = make_bench(n_blocks=600, max_running=64)
    tenant_of: dict[int, str] = {}
    now = 1
    for _ in range(1500):
        if len(tenant_of) < 90:
            tenant = rng.choice("aaaaaaaabbcd")
            tenant_of[bench.enqueue(now, rng.randrange(1, 40), rng.randrange(1, 300), tenant=tenant)] = tenant
        rows = bench.next_step(now)["rows"]
        assert rows
        now += slow_with_rows(sum(n for _, n, _ in rows))
        for name in bench.advance():
            del tenant_of[name]
