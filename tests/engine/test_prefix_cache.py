"""The prefix cache as a pure object: what it finds, what it does not find, and what it evicts first."""

from __future__ import annotations

import random

import pytest

from imp_service import _core, _testing

SCOPE = (1, 1)
B = 4


def fill(blocks: _testing.KvBlocks, tokens: list[int], scope: tuple[int, int] = SCOPE) -> _testing.BlockTable:
    """Makes a sequence that holds `tokens`, found or computed."""
    table = _testing.BlockTable()
    held = blocks.match(table, scope, tokens, 0)
    blocks.prepare(table, held, len(tokens))
    blocks.commit(table, scope, tokens)
    return table


def found(blocks: _testing.KvBlocks, tokens: list[int], scope: tuple[int, int] = SCOPE) -> int:
    """Returns how many tokens a new sequence would find."""
    table = _testing.BlockTable()
    n_found = blocks.match(table, scope, tokens, 0)
    blocks.truncate(table, 0)
    return n_found


def test_pfx_2_only_full_blocks_are_found_and_the_last_token_never_is() -> None:
    for n in range(1, 20):
        blocks = _testing.KvBlocks(32, B)
        tokens = [i * 7 % 11 for i in range(n)]
        blocks.truncate(fill(blocks, tokens), 0)
        assert found(blocks, tokens) == (n - 1) // B * B


def test_pfx_3_n02_equal_keys_of_other_ids_are_misses() -> None:
    """A constant hash makes all keys equal: the cache finds only equal ids after an equal chain in the same scope."""
    blocks = _testing.KvBlocks(32, B, hash=lambda _parent, _ids: (5, 5))
    blocks.truncate(fill(blocks, [1, 2, 3, 4, 9]), 0)
    assert found(blocks, [1, 2, 3, 4, 0]) == 4
    assert found(blocks, [1, 2, 3, 5, 0]) == 0
    assert found(blocks, [1, 2, 3, 4, 0], scope=(2, 2)) == 0
    # The same ids again as second block: the key is equal, the parent is not.
    assert found(blocks, [1, 2, 3, 4, 1, 2, 3, 4, 0]) == 4


def test_pfx_3_n02_negative_control_a_hash_that_ignores_the_parent_needs_the_comparison() -> None:
    """Two chains have second blocks with equal ids and equal keys: neither chain finds the other's block."""
    blocks = _testing.KvBlocks(32, B, hash=lambda _parent, ids: (sum(ids), 0))
    blocks.truncate(fill(blocks, [1, 1, 1, 1, 7, 7, 7, 7, 0]), 0)
    blocks.truncate(fill(blocks, [2, 2, 2, 2, 7, 7, 7, 7, 0]), 0)
    assert found(blocks, [1, 1, 1, 1, 7, 7, 7, 7, 0]) == 8
    assert found(blocks, [2, 2, 2, 2, 7, 7, 7, 7, 0]) == 4


def test_pfx_4_reuse_stops_at_the_first_block_that_is_missing() -> None:
    """Four blocks are cached; a new block evicts the tail, never the middle."""
    blocks = _testing.KvBlocks(4, B)
    tokens = [i * 5 % 13 for i in range(17)]
    full = tokens[:16]
    blocks.truncate(fill(blocks, full), 0)
    assert found(blocks, tokens) == 16
    for n_evicted in (1, 2, 3):
        other = _testing.BlockTable()
        blocks.prepare(other, 0, B * n_evicted)
        assert found(blocks, tokens) == 16 - B * n_evicted
        blocks.truncate(other, 0)
        blocks.truncate(fill(blocks, full), 0)


def test_pfx_5_blocks_are_found_in_their_scope_only() -> None:
    blocks = _testing.KvBlocks(32, B)
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    blocks.truncate(fill(blocks, tokens, scope=(1, 2)), 0)
    assert [found(blocks, tokens, scope=scope) for scope in [(1, 2), (1, 3), (2, 2)]] == [8, 0, 0]


def test_pfx_7_the_least_recently_used_chain_goes_first_and_its_tail_before_its_head() -> None:
    """Compares with a model: a list of chains by last use, each of which loses blocks from its end."""
    rng = random.Random(11)
    n_blocks, n_chains, chain_blocks = 24, 6, 3
    blocks = _testing.KvBlocks(n_blocks, B)
    chains = [[100 * c + i for i in range(B * chain_blocks)] for c in range(n_chains)]
    cached: dict[int, int] = {}  # chain -> blocks cached, in order of last use
    for _ in range(400):
        c = rng.randrange(n_chains)
        table = fill(blocks, chains[c])
        blocks.truncate(table, 0)
        cached.pop(c, None)
        cached[c] = chain_blocks
        n_wanted = rng.randrange(1, n_blocks)
        other = _testing.BlockTable()
        n_evicted = max(0, n_wanted - (n_blocks - sum(cached.values())))
        blocks.prepare(other, 0, B * n_wanted)
        for old in list(cached):
            taken = min(n_evicted, cached[old])
            cached[old] -= taken
            n_evicted -= taken
        assert blocks.n_cached == sum(cached.values())
        blocks.truncate(other, 0)
        # A lookup that takes nothing is no use; here every lookup takes and returns blocks, oldest first.
        for chain in list(cached):
            assert found(blocks, [*chains[chain], 0]) == B * cached[chain]


@pytest.mark.parametrize("bound", [0, 1, 5])
def test_pfx_7_no_more_is_kept_than_allowed(bound: int) -> None:
    rng = random.Random(bound)
    blocks = _testing.KvBlocks(32, B, max_cached=bound)
    tables: list[_testing.BlockTable] = []
    most = 0
    for _ in range(300):
        if len(tables) < 3:
            tables.append(fill(blocks, [rng.randrange(3) for _ in range(rng.randrange(1, 20))]))
        else:
            blocks.truncate(tables.pop(rng.randrange(3)), 0)
        most = max(most, blocks.n_cached)
    assert most == bound


def test_pfx_8_flushing_frees_what_nobody_holds() -> None:
    blocks = _testing.KvBlocks(32, B)
    held = fill(blocks, [1, 2, 3, 4, 5])
    blocks.truncate(fill(blocks, [1, 2, 3, 4, 6, 7, 8, 9, 5]), 0)
    assert (blocks.n_cached, blocks.flush(), blocks.n_cached) == (1, 1, 0)
    assert found(blocks, [1, 2, 3, 4, 6, 7, 8, 9, 5]) == 4
    assert blocks.n_live == len(held.blocks)


def test_pfx_1_equal_content_is_held_once() -> None:
    """Two sequences that compute the same block at the same time share one afterwards."""
    blocks = _testing.KvBlocks(32, B)
    tokens = [1, 2, 3, 4, 5]
    first, second = _testing.BlockTable(), _testing.BlockTable()
    for table in (first, second):
        blocks.prepare(table, 0, 5)
    for table in (first, second):
        blocks.commit(table, SCOPE, tokens)
    assert first.blocks[0] == second.blocks[0]
    assert first.blocks[1] != second.blocks[1]
    assert (blocks.n_live, blocks.owners(first.blocks[0])) == (3, 2)


def test_d03_what_is_forgotten_is_not_found_again() -> None:
    blocks = _testing.KvBlocks(32, B)
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    table = fill(blocks, tokens)
    blocks.forget(table)
    assert found(blocks, tokens) == 0
    blocks.commit(table, SCOPE, tokens)
    assert found(blocks, tokens) == 0
    blocks.truncate(table, 0)
    assert (blocks.n_cached, blocks.n_free) == (0, 32)


# Published with the reference implementation: key 00 01 … 0f, input 00 01 … n-1; `openssl mac SIPHASH` gives the same.
SIP_VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    63: "5150d1772f50834a503e069a973fbd7c",
}


@pytest.mark.parametrize("length", SIP_VECTORS)
def test_pfx_3_the_hash_is_siphash(length: int) -> None:
    key = int.from_bytes(bytes(range(8)), "little"), int.from_bytes(bytes(range(8, 16)), "little")
    low, high = _testing.sip_hash(key, bytes(range(length)))
    assert (low.to_bytes(8, "little") + high.to_bytes(8, "little")).hex() == SIP_VECTORS[length]


def test_kv_2_committing_more_than_the_table_holds_is_an_error() -> None:
    blocks = _testing.KvBlocks(4, B)
    with pytest.raises((_core.InternalError, IndexError)):
        blocks.prepare(_testing.BlockTable(), 1 + 4 * B, 2 + 4 * B)
