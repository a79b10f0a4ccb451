"""How much of the prefix cache each tenant keeps when one floods it with prefixes and another uses a few."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from imp_service import _testing
from support.engine.script_engine import ScriptEngine
from support.oracles.script_oracle import prompt_of

pytestmark = pytest.mark.usefixtures("ahead")
B = 4
Scope = tuple[int, int]
# Prefixes that one tenant uses again and again: eight of two blocks each.
BEGINNINGS = [prompt_of(32, 100 + i) for i in range(8)]


def hit_rate(engine: ScriptEngine, n_flood: int, tenant: str = "b") -> float:
    """Returns the hit rate of a tenant's repeated prompts, between `n_flood` single-use prompts of another tenant."""
    rng = random.Random(8)
    n_found, n_prompt = 0, 0
    for turn in range(120):
        for i in range(n_flood):
            engine.generate(prompt_of(50, 1000 + turn * n_flood + i), max_outputs=2, tenant="a", cache_scope="a")
        engine.turn_until_idle()
        prompt = [*rng.choice(BEGINNINGS), *prompt_of(3, 5000 + turn)]
        ticket = engine.generate(prompt, max_outputs=1, tenant=tenant, cache_scope=tenant)
        engine.turn_until_idle()
        n_found += engine.started(ticket).n_cached_tokens
        n_prompt += 32
    engine.assert_at_rest()
    return n_found / n_prompt


def test_pfx_10_o08_a_flood_leaves_another_tenant_what_its_share_alone_gives() -> None:
    """Compares a cache that just fits the prefixes with half of a cache that another tenant floods between two uses."""
    alone = hit_rate(ScriptEngine(n_blocks=32, max_context=128), 0)
    beside = hit_rate(ScriptEngine(n_blocks=64, max_context=128, tenant_share=0.5), 9)
    assert alone > 0.8
    assert beside >= 0.9 * alone
    # Without a bound, the least recently used block goes, whoever owns it.
    assert hit_rate(ScriptEngine(n_blocks=64, max_context=128, tenant_share=1.0), 9) < 0.5 * alone


def test_pfx_10_one_that_is_alone_has_the_whole_cache() -> None:
    engine = ScriptEngine(n_blocks=64, max_context=128, tenant_share=0.25)
    for i in range(40):
        engine.generate(prompt_of(60, i), max_outputs=1, tenant="a")
        engine.turn_until_idle()
    assert engine.core.stats().blocks_cached >= 60
    ticket = engine.generate(prompt_of(60, 30), max_outputs=1, tenant="a")
    engine.turn_until_idle()
    assert engine.started(ticket).n_cached_tokens == 48


def chain(blocks: _testing.KvBlocks, first: int, n_blocks: int, scope: Scope, tenant: Scope) -> list[int]:
    """Runs a sequence from open to close; returns its tokens."""
    tokens = [first + i for i in range(n_blocks * B)]
    table = _testing.BlockTable()
    held = blocks.match(table, scope, tokens, 0)
    blocks.prepare(table, held, len(tokens))
    blocks.commit(table, scope, tokens, tenant)
    blocks.truncate(table, 0)
    return tokens


def kept(blocks: _testing.KvBlocks, tokens: list[int], scope: Scope) -> int:
    """Returns how many blocks of a chain are found; the lookup counts as a use."""
    table = _testing.BlockTable()
    n_found = blocks.match(table, scope, [*tokens, 0], 0)
    blocks.truncate(table, 0)
    return n_found // B


def test_pfx_10_who_is_beyond_the_share_gives_first_and_its_own_oldest() -> None:
    blocks = _testing.KvBlocks(12, B, max_per_tenant=6)
    modest, greedy, third = (1, 1), (2, 2), (3, 3)
    old = chain(blocks, 0, 4, modest, modest)
    first, second = (chain(blocks, 1000 * i, 4, greedy, greedy) for i in (1, 2))
    assert (blocks.n_free, blocks.n_cached) == (0, 12)
    # It has eight blocks, so two of them go. Then nobody exceeds the share, and the least recently used block goes.
    newest = chain(blocks, 3000, 3, third, third)
    found = [(first, greedy), (second, greedy), (old, modest), (newest, third)]
    assert [kept(blocks, tokens, scope) for tokens, scope in found] == [2, 4, 3, 3]


def test_pfx_10_scopes_of_one_tenant_share_its_quota_and_a_chain_has_one_tenant() -> None:
    """Salts give a tenant new scopes, but no more quota."""
    blocks = _testing.KvBlocks(8, B, max_per_tenant=4)
    old = chain(blocks, 0, 2, (1, 1), (1, 1))
    for salt in range(2, 7):
        chain(blocks, 0, 2, (salt, salt), (9, 9))
    assert (blocks.n_cached, kept(blocks, old, (1, 1))) == (8, 2)
    # Another tenant extends the chain: the new block belongs to the first tenant too, and goes before earlier blocks.
    longer = chain(blocks, 0, 4, (1, 1), (9, 9))
    assert kept(blocks, longer, (1, 1)) == 4
    for salt in range(10, 14):
        chain(blocks, 0, 1, (salt, salt), (salt, salt))
    assert kept(blocks, longer, (1, 1)) == 4


@pytest.mark.parametrize("seed", range(4))
def test_pfx_10_what_goes_first_is_what_a_list_says(seed: int) -> None:
    """Random tenants, some with many times the share: the cache keeps the same blocks as a list with this rule."""
    rng = random.Random(seed)
    n_blocks, share = 24, rng.choice([2, 3, 6, 12])
    blocks = _testing.KvBlocks(n_blocks, B, max_per_tenant=share)
    order: list[tuple[int, int]] = []  # (tenant, name) of chains of one block, the least recently used first
    for name in range(400):
        tenant = rng.choice([1, 1, 1, 2, 2, *range(3, 9)])
        if len(order) == n_blocks:
            n_of = Counter(each for each, _ in order)
            order.remove(next((each for each in order if n_of[each[0]] > share), order[0]))
        chain(blocks, 10 * name, 1, (tenant, tenant), (tenant, tenant))
        order.append((tenant, name))
        if name % 20 == 19:
            # Looks in the order of use, so that looking does not change it.
            looks = [kept(blocks, [10 * name + i for i in range(B)], (each, each)) for each, name in order]
            assert looks == [1] * len(order)
    assert (blocks.n_cached, len(order)) == (n_blocks, n_blocks)
