"""Idle sessions of one tenant, and the blocks that another tenant needs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from imp_service import _testing
from support.engine.script_engine import Failed, ScriptEngine
from support.oracles.script_oracle import continuation, prompt_of

pytestmark = pytest.mark.usefixtures("ahead")


def engine_of(n_blocks: int = 16, share: float = 0.5) -> ScriptEngine:
    return ScriptEngine(n_blocks=n_blocks, max_context=n_blocks * 16, tenant_share=share, prefix_cache=False)


def idle(engine: ScriptEngine, tenant: str, n_blocks: int, n: int = 1) -> list[int]:
    """Opens idle sessions of `n_blocks` blocks each; the first is idle for longest."""
    made = []
    for i in range(n):
        engine.core.now_ns += 1
        made.append(engine.open(tenant=tenant))
        engine.step(made[-1], prompt_of(16 * n_blocks - 1, len(tenant) + i), max_outputs=0)
    return made


def evicted(engine: ScriptEngine) -> list[int]:
    return [e.sequence for e in engine.all_events if e.ticket == 0 and getattr(e, "reason", "") == "SESSION_EXPIRED"]


def generate(engine: ScriptEngine, tenant: str, n_blocks: int) -> Sequence[int]:
    prompt = prompt_of(16 * n_blocks - 8, 9)
    ticket = engine.generate(prompt, tenant=tenant, max_outputs=4)
    engine.turn_until_idle()
    tokens = engine.tokens(ticket)
    assert tokens == continuation(prompt, 4)
    return tokens


def test_ses_19_s21_four_idle_sessions_of_one_tenant_do_not_keep_all_blocks_from_another() -> None:
    """The longest idle sessions end, only as many as needed, and none below the tenant's share."""
    engine = engine_of()
    sessions = idle(engine, "a", 4, 4)
    generate(engine, "b", 4)
    assert evicted(engine) == sessions[:1]
    generate(engine, "b", 8)
    assert evicted(engine) == sessions[:2]
    refused = engine.generate(prompt_of(16 * 12, 9), tenant="b", max_outputs=4)
    engine.turn_until_idle()
    with pytest.raises(Failed, match="KV_FULL"):
        engine.finished(refused)
    assert evicted(engine) == sessions[:2]
    assert engine.step(sessions[3], [7]) == continuation([*prompt_of(63, 4), 7], 1)[0]


def test_ses_19_a_tenant_does_not_evict_its_own_sessions() -> None:
    engine = engine_of()
    idle(engine, "a", 4, 4)
    refused = engine.generate(prompt_of(20, 9), tenant="a", max_outputs=4)
    engine.turn_until_idle()
    with pytest.raises(Failed, match="KV_FULL"):
        engine.finished(refused)
    assert evicted(engine) == []


def test_ses_19_growth_and_new_sessions_of_another_tenant_find_room_too() -> None:
    engine = engine_of()
    (small,) = idle(engine, "b", 1)
    sessions = idle(engine, "a", 5, 3)
    assert engine.step(small, [1, 2, 3], max_outputs=0) is None
    assert evicted(engine) == sessions[:1]
    other = engine.open(tenant="c")
    engine.step(other, prompt_of(100), max_outputs=0)
    assert evicted(engine) == sessions[:2]


def test_ses_19_of_several_tenants_the_one_that_holds_most_gives_way() -> None:
    """Three tenants and one that needs blocks: a share is a quarter, although tenant_share is more."""
    engine = engine_of()
    few, some, many = (idle(engine, tenant, 1, n) for tenant, n in (("few", 3), ("some", 5), ("many", 8)))
    generate(engine, "new", 4)
    assert sorted(evicted(engine)) == sorted([*many[:4]])
    engine.step(few[0], [7])
    engine.step(some[0], [7])


def test_ses_19_where_the_tenant_that_holds_most_can_free_nothing_the_next_gives_way() -> None:
    """A running fork holds every block of the largest session."""
    engine = engine_of(share=0.25)
    (most,) = idle(engine, "most", 7)
    fork = engine.sequence()
    engine.command("fork", most, fork)
    engine.turn_until_idle()
    ticket = engine.run(fork, [1], max_outputs=4)
    engine.core.pause(ticket, fork, True)
    (next_one,) = idle(engine, "next", 6)
    generate(engine, "new", 4)
    assert evicted(engine) == [next_one]


@pytest.mark.parametrize("evict", [False, True])
def test_ses_19_no_session_ends_for_work_that_does_not_fit_even_then(evict: bool) -> None:
    bench = _testing.SchedulerBench(n_blocks=8, max_context=256, tenant_share=0.25, evict_sessions=evict)
    for now in range(2):
        bench.enqueue(now, 40, 1, tenant="a", session=True)
        bench.next_step(now)
        bench.advance()
    for kind in (False, True):
        bench.enqueue(2, 140, 1, tenant="b", session=kind)
        step = bench.next_step(2)
        assert (len(step["refused"]), step["evicted"]) == (1, [])
        bench.advance()
    bench.enqueue(3, 60, 1, tenant="b")
    step = bench.next_step(3)
    assert (len(step["rows"]), step["evicted"]) == (1, [1]), "what fits with one of them ends one"


def test_ses_19_blocks_that_sessions_share_count_once() -> None:
    """Eight forks of one prompt hold 5 blocks, not 36: below the share of 8."""
    engine = engine_of()
    (parent,) = idle(engine, "a", 4)
    for _ in range(8):
        engine.command("fork", parent, engine.sequence())
    engine.turn_until_idle()
    idle(engine, "b", 12)
    refused = engine.generate(prompt_of(20, 9), tenant="b", max_outputs=4)
    engine.turn_until_idle()
    with pytest.raises(Failed, match="KV_FULL"):
        engine.finished(refused)
    assert evicted(engine) == []


def test_ses_19_the_scheduler_says_that_a_step_is_not_gentle_where_it_would_evict() -> None:
    """A step that evicts an idle session of another tenant is not gentle: devices must not run ahead of it."""
    bench = _testing.SchedulerBench(n_blocks=4, max_context=64, tenant_share=0.25)
    sleeper = bench.enqueue(0, 60, 1, tenant="a", session=True)
    bench.next_step(0)
    bench.advance()
    bench.enqueue(1, 20, 1, tenant="b")
    assert bench.next_step(1)["evicted"] == [sleeper]
