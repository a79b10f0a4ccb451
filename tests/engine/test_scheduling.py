"""The scheduler as a pure object with the test's clock, and in an engine under pressure."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from imp_service import _core, _testing
from support.engine.script_engine import Failed, ScriptEngine
from support.oracles.script_oracle import Sampler, continuation, prompt_of
from support.run.release_run import repetitions

pytestmark = pytest.mark.usefixtures("ahead")
SECOND = 1_000_000_000
N_CANCELS = repetitions(25_000, 1_000)
SEEDED = Sampler(temperature=0.9, seed=21)


def run_out(bench: _testing.SchedulerBench, now_ns: int = 0) -> list[dict[str, Any]]:
    """Returns the steps until nothing is planned."""
    steps = []
    while (step := bench.next_step(now_ns))["rows"] or step["refused"]:
        bench.advance()
        steps.append(step)
    return steps


def admissions(steps: list[dict[str, Any]]) -> list[int]:
    return [name for step in steps for name in step["admitted"]]


def test_sch_3_o07_decode_rows_come_first_and_wait_for_no_more_than_a_chunk() -> None:
    """A prompt of 4096 arrives while 8 sequences decode: each step has all 8 and at most one chunk of it."""
    bench = _testing.SchedulerBench(
        n_blocks=600, max_running=16, step_tokens=64 + 8, prefill_chunk=64, max_context=8192
    )
    decoders = [bench.enqueue(0, 1, 200) for _ in range(8)]
    bench.next_step(0)
    bench.advance()
    long = bench.enqueue(0, 4096, 1)
    steps = run_out(bench)
    prefill = [step for step in steps if long in [name for name, _, _ in step["rows"]]]
    assert len(prefill) == 4096 // 64
    for step in prefill:
        assert [name for name, _, _ in step["rows"]][:8] == decoders
        assert sum(n for _, n, _ in step["rows"]) <= 64 + 8
    assert (steps[0]["n_decode_rows"], steps[0]["n_prefill_rows"]) == (8, 64)


@pytest.mark.parametrize(("n_decoders", "rows"), [(0, 512), (1, 24), (4, 24), (5, 30), (16, 96), (100, 412)])
def test_sch_3_o07_prompts_take_few_rows_where_others_generate(n_decoders: int, rows: int) -> None:
    """Prompts get six rows per decoder, at least 24, all prompts together; a whole step if nobody decodes."""
    bench = _testing.SchedulerBench(
        n_blocks=1000, max_running=128, step_tokens=512, prefill_chunk=512, prefill_per_decode=6, max_context=2048
    )
    for _ in range(n_decoders):
        bench.enqueue(0, 1, 100)
    bench.next_step(0)
    bench.advance()
    for _ in range(3):
        bench.enqueue(0, 1000, 1)
    step = bench.next_step(0)
    assert (step["n_decode_rows"], step["n_prefill_rows"]) == (n_decoders, rows)


def test_sch_6_priority_then_arrival() -> None:
    bench = _testing.SchedulerBench(max_running=1)
    first, low, high, high_too = (bench.enqueue(0, 4, 2, priority=p) for p in (0, -1, 5, 5))
    assert admissions(run_out(bench)) == [high, high_too, first, low]


def test_sch_6_o10_a_run_that_waited_for_max_wait_goes_before_higher_priorities() -> None:
    """Urgent runs arrive every second: the low one takes the first free place after max_wait."""
    bench = _testing.SchedulerBench(max_running=1, max_wait_ms=60_000)
    low = bench.enqueue(0, 4, 1, priority=-5)
    when = {}
    for now in range(120):
        bench.enqueue(now * SECOND, 4, 1, priority=100)
        step = bench.next_step(now * SECOND)
        bench.advance()
        when.update(dict.fromkeys(step["admitted"], now))
    assert when[low] == 60


def test_sch_6_no_overtaking_by_size() -> None:
    """A long prompt waits for blocks: short ones behind it wait too, and all are admitted in order of arrival."""
    bench = _testing.SchedulerBench(n_blocks=8, max_context=128, step_tokens=128, prefill_chunk=128)
    running = bench.enqueue(0, 60, 30)
    bench.next_step(0)
    bench.advance()
    rest = [bench.enqueue(0, n, 2) for n in (100, 2, 3)]
    order = admissions(run_out(bench))
    assert order == rest
    assert running not in order


def test_sch_6_o06_tenants_take_turns_and_the_order_of_arrival_holds_in_each() -> None:
    bench = _testing.SchedulerBench(max_running=1)
    names: dict[int, str] = {}
    for tenant, n in (("a", 6), ("b", 3), ("c", 3)):
        for _ in range(n):
            names[bench.enqueue(0, 4, 2, tenant=tenant)] = tenant
    order = admissions(run_out(bench))
    assert [names[name] for name in order[:9]] == ["a", "b", "c"] * 3
    for tenant in "abc":
        mine = [name for name in order if names[name] == tenant]
        assert mine == sorted(mine)


def test_sch_7_o06_a_tenant_at_a_hundred_times_the_rate_leaves_the_others_their_share() -> None:
    """One of ten tenants floods for 2000 steps: each other tenant gets at least 90 % of a tenth of all tokens."""
    rng = random.Random(6)
    bench = _testing.SchedulerBench(
        n_blocks=4000, max_running=20, step_tokens=40, prefill_chunk=20, max_wait_ms=10**12, tenant_share=0.5
    )
    tenant_of: dict[int, int] = {}
    waiting: Counter[int] = Counter()
    rows: Counter[int] = Counter()
    for now in range(2000):
        for tenant in range(10):
            while waiting[tenant] < (200 if tenant == 0 else 3):
                name = bench.enqueue(now, rng.randrange(5, 60), rng.randrange(1, 20), tenant=str(tenant))
                tenant_of[name] = tenant
                waiting[tenant] += 1
        step = bench.next_step(now)
        for name in step["admitted"]:
            waiting[tenant_of[name]] -= 1
        if now >= 200:
            for name, n, _ in step["rows"]:
                rows[tenant_of[name]] += n
        bench.advance()
    fair = sum(rows.values()) / 10
    assert min(rows[tenant] for tenant in range(1, 10)) >= 0.9 * fair


def test_sch_6_tenant_share_bounds_a_tenant_only_while_others_wait() -> None:
    bench = _testing.SchedulerBench(max_running=8, tenant_share=0.5)
    alone = [bench.enqueue(0, 2, 50, tenant="a") for _ in range(8)]
    bench.next_step(0)
    bench.advance()
    assert all(bench.is_running(name) for name in alone)
    for name in alone[:6]:
        bench.close(name)
    flood = [bench.enqueue(0, 2, 50, tenant="a") for _ in range(9)]
    other = bench.enqueue(0, 2, 50, tenant="b")
    bench.next_step(0)
    assert bench.is_running(other)
    assert sum(bench.is_running(name) for name in flood) == 5


def test_sch_4_the_newest_of_the_lowest_priority_gives_way_and_the_oldest_of_the_highest_never() -> None:
    """Six generations outgrow a pool of 12 blocks; the test checks which are preempted, and in which order."""
    bench = _testing.SchedulerBench(n_blocks=12, max_context=160, max_running=8)
    high = [bench.enqueue(0, 14, 120, priority=1) for _ in range(2)]
    low = [bench.enqueue(0, 14, 120) for _ in range(2)]
    preempted: list[int] = []
    running = {*high, *low}
    n_steps = 0
    while running:
        step = bench.next_step(0)
        for name in sorted(running):
            if not bench.is_running(name) and name not in preempted[-1:] and bench.held(name) == 0:
                preempted.append(name)
        assert bench.is_running(min(running & set(high) or running))
        running -= set(bench.advance())
        n_steps += 1
        assert n_steps < 5000
        assert step["rows"]
    assert preempted[0] == low[1]
    assert high[0] not in preempted
    assert bench.n_available == 12


@pytest.mark.few(2)
def test_sch_4_o04_a_pool_outgrown_by_200_sequences_serves_them_all() -> None:
    """Tokens equal those of a large pool; preemptions per request are bounded."""
    rng = random.Random(3)
    engine = ScriptEngine(
        n_blocks=64,
        max_context=200,
        max_waiting=400,
        max_running=32,
        step_tokens=128,
        script={"block_tokens": 4, "records": False},
    )
    requests = [(prompt_of(rng.randrange(1, 40), i), rng.randrange(20, 60), rng.randrange(-1, 2)) for i in range(200)]
    tickets = [
        engine.generate(prompt, max_outputs=n, priority=priority, sampling=SEEDED) for prompt, n, priority in requests
    ]
    engine.core.records_draws = False
    engine.turn_until_idle()
    for ticket, (prompt, n, _) in zip(tickets, requests, strict=True):
        assert engine.tokens(ticket) == continuation(prompt, n, SEEDED)
    preemptions = [engine.finished(ticket).n_preemptions for ticket in tickets]
    assert engine.core.stats().n_preemptions == sum(preemptions) > 50
    # The reserve doubles with each preemption: a sequence of at most 25 blocks is preempted about log2(25) times.
    assert max(preemptions) <= 8
    engine.assert_at_rest()


def test_sch_5_a_pool_for_one_the_second_waits_and_none_dies() -> None:
    engine = ScriptEngine(n_blocks=4, max_context=64)
    prompts = [prompt_of(40, i) for i in range(2)]
    tickets = [engine.generate(prompt, max_outputs=24, must_fit=True) for prompt in prompts]
    engine.turn_until_idle()
    for ticket, prompt in zip(tickets, prompts, strict=True):
        assert engine.tokens(ticket) == continuation(prompt, 24)
        assert engine.finished(ticket).n_preemptions <= 1
    engine.assert_at_rest()


def test_ses_19_s21_while_a_preempted_generation_waits_sessions_take_no_blocks() -> None:
    """A preempted generation is first in the queue; a session's step, an open and another generation wait behind it."""
    engine = ScriptEngine(n_blocks=8, max_context=32, script={"block_tokens": 4}, prefix_cache=False)
    with_room, without = engine.open(), engine.open()
    engine.step(with_room, prompt_of(2))
    engine.step(without, prompt_of(4, 1))
    old = engine.generate(prompt_of(7, 2), max_outputs=18)
    new = engine.generate(prompt_of(7, 3), max_outputs=14)
    while engine.core.stats().n_preemptions == 0:
        engine.turn()
    behind = engine.generate(prompt_of(3, 4), max_outputs=2)
    opened = engine.open()
    refused = [engine.run(without), engine.run(opened, [1])]
    allowed = engine.run(with_room)
    engine.turn()
    engine.turn()  # a step that was already running came first
    for ticket in refused:
        with pytest.raises(Failed) as failed:
            engine.finished(ticket)
        assert failed.value.reason == "KV_FULL"
        assert set(failed.value.details) == {"needed", "available"}
    assert engine.tokens(allowed) == continuation(prompt_of(2), 2)[1:]
    engine.turn_until_idle()
    assert engine.tokens(old) == continuation(prompt_of(7, 2), 18)
    assert engine.tokens(new) == continuation(prompt_of(7, 3), 14)
    assert engine.tokens(behind) == continuation(prompt_of(3, 4), 2)
    assert engine.finished(new).n_preemptions >= 1
    assert engine.step(without) == continuation(prompt_of(4, 1), 2)[1]


def test_ses_19_sch_4_a_generation_that_nobody_can_make_room_for_waits_in_place() -> None:
    """Sessions hold the other blocks: the generation is not preempted or failed; sessions get none, and it resumes."""
    engine = ScriptEngine(n_blocks=8, max_context=32, script={"block_tokens": 4}, prefix_cache=False)
    sessions = [engine.open() for _ in range(3)]
    for i, session in enumerate(sessions):
        engine.step(session, prompt_of(7, i), max_outputs=0)
    ticket = engine.generate(prompt_of(3, 9), max_outputs=16)
    engine.turn()
    engine.step(sessions[0], [1, 2], max_outputs=0)  # takes the block that the generation will want
    engine.turn_until_idle()
    n_tokens = len(engine.tokens(ticket))
    assert n_tokens == 2
    refused = engine.run(sessions[1], [1, 2])
    engine.turn_until_idle()
    with pytest.raises(Failed, match="KV_FULL"):
        engine.finished(refused)
    for session in sessions[1:]:
        engine.command("close", session)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt_of(3, 9), 16)
    assert engine.finished(ticket).n_preemptions == 0


def test_kv_6_o05_sequences_that_can_never_fit_together_are_refused_at_the_door() -> None:
    engine = ScriptEngine(n_blocks=8, max_context=128)
    with pytest.raises(_core.ResourceExhausted) as refusal:
        engine.generate(prompt_of(40), max_outputs=40, siblings=[900, 901, 902])
    assert refusal.value.reason == "KV_FULL"
    assert refusal.value.details == {"needed": "14", "available": "8", "total": "8"}
    ticket = engine.generate(prompt_of(40), max_outputs=20, siblings=[910, 911])
    engine.turn_until_idle()
    assert [len(engine.tokens(ticket, stream)) for stream in range(3)] == [20, 20, 20]
    with pytest.raises(
        _core.InvalidArgument, match="max_context: 200, expected at most the tokens that the cache holds, 128"
    ):
        ScriptEngine(n_blocks=8, max_context=200)


def test_sch_8_o01_the_queue_is_bounded_in_requests_and_in_tokens() -> None:
    engine = ScriptEngine(max_waiting=5, max_waiting_tokens=100, max_running=1)
    tickets = [engine.generate(prompt_of(20, i), max_outputs=2) for i in range(5)]
    with pytest.raises(_core.ResourceExhausted) as refusal:
        engine.generate([1])
    assert (refusal.value.reason, refusal.value.details) == ("QUEUE_FULL", {"bound": "requests"})
    engine.turn()
    with pytest.raises(_core.ResourceExhausted) as refusal:
        engine.generate(prompt_of(30))
    assert refusal.value.details == {"bound": "tokens"}
    assert engine.core.stats().waiting_tokens == 80
    engine.turn_until_idle()
    assert [engine.tokens(t) for t in tickets] == [continuation(prompt_of(20, i), 2) for i in range(5)]
    engine.assert_at_rest()


def test_o14_siblings_count_as_many() -> None:
    engine = ScriptEngine(max_waiting=8, max_running=8)
    engine.generate([1, 2], max_outputs=3, siblings=list(range(900, 907)))
    with pytest.raises(_core.ResourceExhausted, match="QUEUE_FULL"):
        engine.generate([1])
    with pytest.raises(_core.InvalidArgument, match="num_sequences: 9, expected at most 8"):
        engine.generate([1], siblings=list(range(800, 808)))


def test_tenant_limit_refuses_the_one_and_not_the_others() -> None:
    engine = ScriptEngine(max_waiting=8, max_running=1, tenant_share=0.5)
    flood = [engine.generate([1, i], tenant="a", max_outputs=2) for i in range(4)]
    other = engine.generate([2], tenant="b", max_outputs=2)
    engine.turn()
    late = [engine.generate([3], tenant="a", max_outputs=2) for _ in range(2)]
    engine.turn_until_idle()
    assert [len(engine.tokens(ticket)) for ticket in [*flood, other]] == [2] * 5
    outcomes = Counter(len(engine.tokens(ticket)) for ticket in late)
    with pytest.raises(Failed, match="TENANT_LIMIT"):
        engine.finished(late[1])
    assert outcomes[0] >= 1


def test_sch_9_runs_sent_while_busy_are_served_in_the_order_of_arrival() -> None:
    engine = ScriptEngine(max_running=2)
    tickets = [engine.generate(prompt_of(10 + i, i), max_outputs=3) for i in range(8)]
    engine.turn_until_idle()
    started = [e.ticket for e in engine.all_events if isinstance(e, _core.StartedEvent)]
    assert started == tickets


@pytest.mark.parametrize("place", ["taken", "queued", "prefill", "decode", "preempted", "mask", "paused"])
def test_gen_16_sch_10_cancel_works_in_every_place(place: str) -> None:
    """A cancel gives one ending and returns the blocks within one step; the others continue."""
    engine = ScriptEngine(
        n_blocks=8, max_context=128, max_running=1 if place == "queued" else 4, prefill_chunk=8, prefix_cache=False
    )
    other = engine.generate(prompt_of(10), max_outputs=100 if place == "preempted" else 60)
    sequence = engine.sequence()
    ticket = engine.generate(prompt_of(30, 1), sequence=sequence, max_outputs=90, constrained=place == "mask")
    if place == "preempted":
        while engine.core.stats().n_preemptions == 0:
            engine.turn()
    elif place != "taken":
        for _ in range({"queued": 3, "prefill": 2, "decode": 8, "mask": 8, "paused": 8}[place]):
            engine.turn()
    if place == "paused":
        engine.core.pause(ticket, sequence, True)
        engine.turn()
        n_tokens = len(engine.tokens(ticket))
        engine.core.now_ns += 7 * SECOND
        for _ in range(3):
            engine.turn()
        assert len(engine.tokens(ticket)) == n_tokens
    engine.core.end(ticket, sequence)
    engine.turn()
    assert engine.finished(ticket).reason == "cancelled"
    assert engine.finished(ticket).timings.blocked_ns == (7 * SECOND if place == "paused" else 0)
    assert engine.core.stats().blocks_live <= 8
    with pytest.raises(KeyError):
        engine.core.held(sequence)
    engine.turn_until_idle()
    assert engine.tokens(other) == continuation(prompt_of(10), 100 if place == "preempted" else 60)
    engine.assert_at_rest()


def test_gen_16_r04_random_cancels_leak_nothing() -> None:
    """With preemption, siblings and pauses: 100,000 cancels in the release run, over the four kinds of engines."""
    rng = random.Random(12)
    engine = ScriptEngine(
        n_blocks=40,
        max_context=120,
        script={"block_tokens": 4, "records": False},
        max_waiting=1000,
        step_tokens=48,
        prefill_chunk=9,
    )
    engine.core.records_draws = False
    live: dict[int, list[int]] = {}
    n_cancelled = 0
    while n_cancelled < N_CANCELS:
        if len(live) < 12:
            sequences = [engine.sequence() for _ in range(rng.choice([1, 1, 1, 3]))]
            n = rng.randrange(1, 30)
            ticket = engine.generate(
                prompt_of(rng.randrange(1, 45), rng.randrange(3)),
                sequence=sequences[0],
                siblings=sequences[1:],
                max_outputs=n,
            )
            live[ticket] = sequences
        ticket = rng.choice(sorted(live))
        if rng.random() < 0.2:
            engine.core.pause(ticket, live[ticket][0], rng.random() < 0.5)
        if rng.random() < 0.7:
            for sequence in live.pop(ticket):
                engine.core.end(ticket, sequence)
            n_cancelled += 1
        engine.turn()
    for ticket, sequences in live.items():
        for sequence in sequences:
            engine.core.end(ticket, sequence)
    engine.turn_until_idle()
    engine.assert_at_rest()
    endings: dict[tuple[int, int], int] = defaultdict(int)
    for event in engine.all_events:
        if isinstance(event, _core.FinishedEvent | _core.FailedEvent):
            endings[event.ticket, event.stream] += 1
    assert set(endings.values()) == {1}


def test_sch_11_a_paused_run_keeps_its_blocks_and_leaves_its_place() -> None:
    engine = ScriptEngine(max_running=1)
    sequence = engine.sequence()
    slow = engine.generate(prompt_of(20), sequence=sequence, max_outputs=30)
    for _ in range(5):
        engine.turn()
    engine.core.pause(slow, sequence, True)
    engine.turn()
    blocks = engine.core.blocks(sequence)
    quick = engine.generate(prompt_of(9, 1), max_outputs=10)
    engine.turn_until_idle()
    assert engine.tokens(quick) == continuation(prompt_of(9, 1), 10)
    assert engine.core.blocks(sequence) == blocks
    engine.core.pause(slow, sequence, False)
    engine.turn_until_idle()
    assert engine.tokens(slow) == continuation(prompt_of(20), 30)


def test_hon_12_timings_come_from_the_clock_that_is_given() -> None:
    engine = ScriptEngine(max_running=1, prefill_chunk=8)
    engine.core.now_ns = 100
    first = engine.generate(prompt_of(4), max_outputs=3, max_draft_tokens=0)
    second = engine.generate(prompt_of(20, 1), max_outputs=4, max_draft_tokens=0)
    while True:
        engine.core.now_ns += 10
        if not engine.turn():
            break
    times = engine.finished(first).timings
    assert (times.queue_ns, times.prefill_ns, times.decode_ns) == (10, 0, 20)
    times = engine.finished(second).timings
    assert (times.queue_ns, times.prefill_ns, times.decode_ns) == (40, 20, 30)


def test_sch_2_an_empty_step_is_a_no_op() -> None:
    engine = ScriptEngine()
    assert [engine.turn(), engine.turn()] == [False, False]
    sequence = engine.sequence()
    ticket = engine.generate([1, 2], sequence=sequence, constrained=True, max_outputs=3)
    engine.turn_until_idle()
    n_forwards = engine.core.n_forwards
    assert [engine.turn(), engine.turn()] == [False, False]
    assert (engine.core.n_forwards, engine.core.stats().n_steps) == (n_forwards, n_forwards)
    engine.core.end(ticket, sequence)
    engine.turn_until_idle()
    engine.assert_at_rest()
