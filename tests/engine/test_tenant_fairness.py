"""Each tenant's share of a busy engine: rows of steps, running places, and the time of a step."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from imp_service import _core, _testing
from support.engine.scheduler_bench import EACH, generate, make_bench
from support.engine.script_engine import ScriptEngine
from support.oracles.script_oracle import Sampler, continuation, prompt_of

pytestmark = pytest.mark.usefixtures("ahead")
SEEDED = Sampler(temperature=0.9, seed=21)


def rows_of_steps(bench: _testing.SchedulerBench, n_steps: int) -> list[Counter[int]]:
    steps = []
    for _ in range(n_steps):
        steps.append(Counter({name: n for name, n, _ in bench.next_step(0)["rows"]}))
        bench.advance()
    return steps


def by_tenant(tenant_of: dict[int, str], rows: Counter[int]) -> Counter[str]:
    total: Counter[str] = Counter()
    for name, n in rows.items():
        total[tenant_of[name]] += n
    return total


def test_sch_3_sch_7_o18_sixty_generations_of_one_tenant_do_not_lengthen_the_steps_of_another() -> None:
    """The single generation has a row in every step of 24 rows; the sixty take turns for the other 23."""
    bench = make_bench()
    tenant_of = generate(bench, a=60, b=1)
    steps = rows_of_steps(bench, 60)
    assert {step.total() for step in steps} == {2 * EACH}
    assert all(by_tenant(tenant_of, step)["b"] == 1 for step in steps)
    turns = Counter(name for step in steps for name in step if tenant_of[name] == "a")
    assert set(turns.values()) == {23}


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        ({"a": 60}, {"a": 60}),  # alone
        ({"a": 10, "b": 3}, {"a": 10, "b": 3}),  # all fit
        ({"a": 60, "b": 60}, {"a": 60, "b": 60}),  # equal demand: nobody is slowed by another's excess
        ({"a": 60, "b": 30}, {"a": 30, "b": 30}),  # as many as the smallest demand
        ({"a": 60, "b": 40, "c": 1}, {"a": 17.5, "b": 17.5, "c": 1}),
        ({"a": 60, "b": 20, "c": 5, "d": 1}, {"a": 22, "b": 20, "c": 5, "d": 1}),  # others take what one leaves
    ],
)
def test_sch_7_rows_of_a_step_are_equal_parts_and_what_one_leaves_goes_to_others(
    wanted: dict[str, int], rows: dict[str, float]
) -> None:
    bench = make_bench()
    tenant_of = generate(bench, **wanted)
    total: Counter[str] = Counter()
    steps = rows_of_steps(bench, 40)
    for step in steps:
        total.update(by_tenant(tenant_of, step))
    assert {tenant: n / len(steps) for tenant, n in total.items()} == rows


def test_sch_7_without_a_bound_a_step_that_is_full_is_shared_all_the_same() -> None:
    """More sequences need a row than a step has: tenants get equal parts, and every sequence advances."""
    bench = make_bench(max_running=32, decode_per_tenant=0)
    tenant_of = generate(bench, a=32) | generate(bench, b=16) | generate(bench, c=10)
    total: Counter[str] = Counter()
    turns: Counter[int] = Counter()
    for step in rows_of_steps(bench, 160):
        assert step.total() == 32
        total.update(by_tenant(tenant_of, step))
        turns.update(step)
    assert total == {"a": 160 * 11, "b": 160 * 11, "c": 160 * 10}
    assert {tenant_of[name]: n for name, n in turns.items()} == {"a": 55, "b": 110, "c": 160}


def test_sch_7_o19_who_comes_while_another_fills_the_engine_begins_in_the_next_step() -> None:
    """One tenant takes all 64 places for a long time; another tenant still gets its share, and no more."""
    bench = make_bench(max_running=64)
    flood = generate(bench, a=64)
    late = [bench.enqueue(0, 4, 100, tenant="b") for _ in range(40)]
    more = [bench.enqueue(0, 4, 100, tenant="a") for _ in range(40)]
    rows_of_steps(bench, 2)
    assert all(bench.is_running(name) for name in [*flood, *late[:32]])
    assert not any(bench.is_running(name) for name in [*late[32:], *more])


def test_sch_7_however_many_tenants_come_at_most_twice_as_many_run_as_places() -> None:
    bench = make_bench(max_running=8)
    names = [*generate(bench, a=8)]
    names += [bench.enqueue(0, 4, 100, tenant=f"t{i}") for i in range(20)]
    rows_of_steps(bench, 30)
    assert sum(bench.is_running(name) for name in names) == 16
    assert [step.total() for step in rows_of_steps(bench, 20)] == [8] * 20


def test_sch_7_prompts_of_one_tenant_leave_time_to_the_one_generation_of_another() -> None:
    """The 23 generations in the same step do not give prompts more rows than the one alone would."""
    bench = make_bench()
    tenant_of = generate(bench, a=60, b=1)
    for _ in range(4):
        tenant_of[bench.enqueue(0, 2000, 1, tenant="a")] = "a"
    step = bench.next_step(0)
    assert (step["n_decode_rows"], step["n_prefill_rows"]) == (24, 24)


def test_sch_7_steps_of_sessions_count_like_generations() -> None:
    """Sixty sessions of one tenant step while another tenant generates: each step has 12 of them."""
    bench = make_bench()
    sessions = [bench.enqueue(0, 1, 1, tenant="a", session=True) for _ in range(60)]
    bench.next_step(0)
    bench.advance()
    (other,) = generate(bench, b=1)
    for session in sessions:
        bench.extend(session, 1, 1, 0)
    for n_left in range(60, 0, -EACH):
        rows = Counter({name: n for name, n, _ in bench.next_step(0)["rows"]})
        assert rows.pop(other) == 1
        assert rows.total() == min(EACH, n_left)
        bench.advance()


def test_sch_7_a_tenant_that_asks_for_little_saves_up_no_more_than_eight_steps() -> None:
    """One tenant takes a token a step for 3000 steps, its neighbour 11. Then it floods; the neighbour soon runs."""
    bench = make_bench(max_running=12, step_tokens=16, prefill_chunk=16, prefill_per_decode=0, max_wait_ms=10**12)
    generate(bench, a=1, b=1)
    tenant_of: dict[int, str] = {}
    for _ in range(3000):
        tenant_of[bench.enqueue(0, 14, 1, tenant="a")] = "a"
        bench.next_step(0)
        bench.advance()
    for _ in range(300):
        for tenant in "ab":
            tenant_of[bench.enqueue(0, 14, 1, tenant=tenant)] = tenant
    rows: Counter[str] = Counter()
    for step in rows_of_steps(bench, 60):
        rows.update(by_tenant(tenant_of | {1: "a", 2: "b"}, step))
    assert rows["b"] - rows["a"] <= 8 * 16 + 2 * 16
    assert rows["a"] >= 300


@pytest.mark.few(2)
def test_sch_7_no_sequence_waits_longer_than_its_tenant_has_turns() -> None:
    """With random arrivals and lengths, every ready sequence generates within n / rows + 2 steps."""
    rng = random.Random(4)
    bench = make_bench(max_running=64)
    tenant_of: dict[int, str] = {}
    waits: Counter[int] = Counter()
    for now in range(800):
        for _ in range(rng.randrange(0, 4)):
            tenant = rng.choice("aaaaaaab")
            tenant_of[bench.enqueue(now, 1, rng.randrange(1, 90), tenant=tenant)] = tenant
        planned = {name for name, _, _ in bench.next_step(now)["rows"]}
        running = {name for name in tenant_of if bench.is_running(name)}
        for name in running:
            waits[name] = 0 if name in planned else waits[name] + 1
            assert waits[name] <= 64 // EACH + 2
        for name in bench.advance():
            del tenant_of[name]


@pytest.mark.few(2)
def test_sch_7_p2_pace_changes_and_tokens_do_not() -> None:
    engine = ScriptEngine(max_running=8, decode_per_tenant=2, max_waiting=64, n_blocks=256, max_context=128)
    wanted = {}
    for i in range(24):
        prompt = prompt_of(5 + i, i)
        wanted[engine.generate(prompt, tenant="a" if i % 6 else "b", max_outputs=30, sampling=SEEDED)] = prompt
    engine.turn_until_idle()
    for ticket, prompt in wanted.items():
        assert engine.tokens(ticket) == continuation(prompt, 30, SEEDED)
    engine.assert_at_rest()


def test_sch_7_no_tenant_takes_every_place_of_the_queue() -> None:
    """While one tenant holds all places, others get their equal part in addition, up to twice as many in all."""
    engine = ScriptEngine(max_waiting=8, max_waiting_tokens=100, max_running=1, n_blocks=256, tenant_share=1)

    def n_taken(tenant: str, n_tokens: int = 2) -> int:
        for n in range(100):
            try:
                engine.generate(prompt_of(n_tokens), tenant=tenant, max_outputs=2)
            except _core.ResourceExhausted as refusal:
                assert refusal.reason == "QUEUE_FULL"
                return n
        raise AssertionError("never full")

    assert n_taken("a") == 8
    assert [n_taken(tenant) for tenant in ("b", "c", "a", "d", "e")] == [4, 2, 0, 2, 0]
    engine.turn_until_idle()
    # The same for the tokens of prompts.
    assert (n_taken("a", 50), n_taken("b", 30), n_taken("b", 5)) == (2, 1, 4)
    engine.turn_until_idle()
    engine.assert_at_rest()


@pytest.mark.parametrize("tenant", ["", "b"])
def test_sch_6_sch_7_a_group_is_not_overtaken_for_ever_by_runs_of_one_sequence(tenant: str) -> None:
    """Single runs keep arriving while a group of four needs every place of the engine at once."""
    engine = ScriptEngine(max_running=4, max_waiting=64, n_blocks=256)

    def add(i: int) -> None:
        engine.generate(prompt_of(5, i), max_outputs=4 + i % 3)

    for i in range(6):
        add(i)
        engine.turn()
    group = engine.generate(prompt_of(5, 999), sequence=5000, siblings=[5001, 5002, 5003], max_outputs=3, tenant=tenant)
    for i in range(6, 40):
        add(i)
        engine.turn()
        if engine.tokens(group):
            break
    assert engine.tokens(group)
    # No run that arrived after the group started before it, except those that got a place in the same step.
    assert i < 30
