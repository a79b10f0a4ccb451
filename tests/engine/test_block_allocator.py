"""Blocks are conserved, and shared ones are never written; models in plain Python are the oracle."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from imp_service import _core, _testing
from support.run.release_run import repetitions

N_OPERATIONS = repetitions(1_000_000, 10_000)


def test_kv_1_blocks_are_conserved_through_random_operations() -> None:
    """Compares owners and states of every block with a dictionary after every operation."""
    rng = random.Random(41)
    n_blocks = 23
    allocator = _testing.BlockAllocator(n_blocks)
    owners: Counter[int] = Counter()
    kept: set[int] = set()
    for _ in range(N_OPERATIONS):
        operation = rng.choice(["allocate", "retain", "release", "release", "keep", "discard"])
        live = sorted(owners)
        if operation == "allocate":
            block = allocator.allocate()
            if len(live) + len(kept) == n_blocks:
                assert block == -1
            else:
                assert block in set(range(n_blocks)) - set(live) - kept
                owners[block] = 1
        elif operation == "retain" and live + sorted(kept):
            block = rng.choice(live + sorted(kept))
            allocator.retain(block)
            owners[block] += 1
            kept.discard(block)
        elif operation in {"release", "keep"} and live:
            block = rng.choice(live)
            was_last = allocator.release(block, keep=operation == "keep")
            owners[block] -= 1
            assert was_last == (owners[block] == 0)
            if was_last:
                del owners[block]
                if operation == "keep":
                    kept.add(block)
        elif operation == "discard" and kept:
            block = rng.choice(sorted(kept))
            allocator.discard(block)
            kept.remove(block)
        assert (allocator.n_live, allocator.n_cached) == (len(owners), len(kept))
        assert allocator.n_free + allocator.n_cached + allocator.n_live == n_blocks
    assert [allocator.owners(block) for block in range(n_blocks)] == [owners[block] for block in range(n_blocks)]


@pytest.mark.parametrize("misuse", ["release free", "release twice", "retain free", "discard live", "unknown block"])
def test_kv_1_nothing_is_freed_twice(misuse: str) -> None:
    """A broken count is imp's bug; it raises InternalError before it does harm."""
    allocator = _testing.BlockAllocator(3)
    block = allocator.allocate()
    with pytest.raises(_core.InternalError):
        if misuse == "release free":
            allocator.release(2, keep=False)
        elif misuse == "release twice":
            allocator.release(block, keep=False)
            allocator.release(block, keep=False)
        elif misuse == "retain free":
            allocator.retain(2)
        elif misuse == "discard live":
            allocator.discard(block)
        else:
            allocator.retain(3)


class Content:
    """The content that each block of a pool would hold, with an independent view of tables: the model for KvBlocks."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.slots: dict[tuple[int, int], int] = {}

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        for source, target in pairs:
            for slot in range(self.block_tokens):
                if (source, slot) in self.slots:
                    self.slots[target, slot] = self.slots[source, slot]

    def write(self, blocks: list[int], first: int, tokens: list[int]) -> None:
        for position, token in enumerate(tokens, start=first):
            self.slots[blocks[position // self.block_tokens], position % self.block_tokens] = token

    def read(self, blocks: list[int], n_tokens: int) -> list[int]:
        return [self.slots[blocks[p // self.block_tokens], p % self.block_tokens] for p in range(n_tokens)]


class Holders:
    """Sequences over one pool of blocks, and the tokens that each must read back."""

    def __init__(self, n_blocks: int, block_tokens: int, *, prefix_cache: bool) -> None:
        self.n_blocks = n_blocks
        self.blocks = _testing.KvBlocks(n_blocks, block_tokens, prefix_cache=prefix_cache)
        self.content = Content(block_tokens)
        self.held: dict[int, tuple[_testing.BlockTable, list[int]]] = {}
        self.n_found = 0
        self._names = itertools.count()

    def open(self) -> int:
        name = next(self._names)
        self.held[name] = _testing.BlockTable(), []
        return name

    def extend(self, name: int, given: list[int]) -> None:
        """Extends a sequence; does nothing if blocks are missing."""
        table, tokens = self.held[name]
        wanted = tokens + given
        found = self.blocks.match(table, (9, 9), wanted, len(tokens))
        held = len(tokens) + found
        assert self.content.read(table.blocks, held) == wanted[:held]
        if self.blocks.missing(table, held, len(wanted)) > self.blocks.n_available:
            self.blocks.truncate(table, len(tokens))
            return
        self.n_found += found
        self.content.copy(self.blocks.prepare(table, held, len(wanted)))
        self.content.write(table.blocks, held, wanted[held:])
        self.blocks.commit(table, (9, 9), wanted)
        self.held[name] = table, wanted

    def fork(self, name: int, position: int) -> None:
        table, tokens = self.held[name]
        copy = self.open()
        self.blocks.share(table, position, self.held[copy][0])
        self.held[copy] = self.held[copy][0], tokens[:position]

    def truncate(self, name: int, position: int) -> None:
        table, tokens = self.held[name]
        self.blocks.truncate(table, position)
        self.held[name] = table, tokens[:position]

    def close(self, name: int) -> None:
        self.blocks.truncate(self.held.pop(name)[0], 0)

    def check(self) -> None:
        for table, tokens in self.held.values():
            assert self.content.read(table.blocks, len(tokens)) == tokens
        owners = Counter(block for table, _ in self.held.values() for block in table.blocks)
        assert {block: self.blocks.owners(block) for block in owners} == owners
        assert self.blocks.n_live == len(owners)
        assert self.blocks.n_free + self.blocks.n_cached + self.blocks.n_live == self.n_blocks


@pytest.mark.long
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_kv_1_kv_2_kv_4_sequences_never_see_each_other(prefix_cache: bool) -> None:
    """Random open, extend, fork, truncate, close, flush: after each, every sequence reads back its own tokens."""
    rng = random.Random(7)
    holders = Holders(40, 4, prefix_cache=prefix_cache)
    for _ in range(N_OPERATIONS // 4):
        operation = rng.choice(["open", "extend", "extend", "extend", "fork", "truncate", "close", "flush"])
        name = holders.open() if operation == "open" or not holders.held else rng.choice(sorted(holders.held))
        if operation in {"open", "extend"}:
            # Few distinct ids, so that prefixes are found again.
            holders.extend(name, [rng.randrange(2) for _ in range(rng.randrange(1, 11))])
        elif operation == "fork" and len(holders.held) < 8:
            holders.fork(name, rng.randrange(len(holders.held[name][1]) + 1))
        elif operation == "truncate":
            holders.truncate(name, rng.randrange(len(holders.held[name][1]) + 1))
        elif operation == "close":
            holders.close(name)
        elif operation == "flush" and rng.random() < 0.1:
            kept = holders.blocks.n_cached
            assert (holders.blocks.flush(), holders.blocks.n_cached) == (kept, 0)
        holders.check()
    assert (holders.n_found > 200) == prefix_cache
    for name in list(holders.held):
        holders.close(name)
    holders.blocks.flush()
    assert holders.blocks.n_free == 40


def test_kv_4_the_first_write_to_a_shared_block_copies_it() -> None:
    blocks = _testing.KvBlocks(8, 4, prefix_cache=False)
    parent, copy = _testing.BlockTable(), _testing.BlockTable()
    assert blocks.prepare(parent, 0, 6) == []
    blocks.share(parent, 6, copy)
    shared = list(parent.blocks)
    assert blocks.missing(copy, 6, 7) == 1
    assert blocks.prepare(copy, 6, 7) == [(shared[1], copy.blocks[1])]
    assert copy.blocks[0] == shared[0]
    assert copy.blocks[1] not in shared
    # The parent is the only owner of its last block again, so it needs no second copy.
    assert (blocks.missing(parent, 6, 7), blocks.prepare(parent, 6, 7), parent.blocks) == (0, [], shared)
    blocks.truncate(parent, 0)
    blocks.truncate(copy, 0)
    assert (blocks.n_free, blocks.n_live) == (8, 0)


def test_kv_2_a_write_beyond_the_table_is_an_error_before_it_happens() -> None:
    blocks = _testing.KvBlocks(4, 4)
    table = _testing.BlockTable()
    with pytest.raises(_core.InternalError):
        blocks.prepare(table, 5, 6)  # position 4 would be a hole
    with pytest.raises(_core.InternalError):
        blocks.prepare(table, 0, 17)  # five blocks of four
    assert blocks.n_free + blocks.n_live == 4


def test_s19_long_fork_chains_end_in_any_order() -> None:
    """Releases 10,000 forks, of forks and of one parent, in random order: no recursion, and no block remains."""
    rng = random.Random(3)
    blocks = _testing.KvBlocks(64, 4)
    tables = [_testing.BlockTable()]
    blocks.prepare(tables[0], 0, 30)
    for i in range(10_000):
        copy = _testing.BlockTable()
        blocks.share(tables[-1] if i % 2 else tables[0], 30, copy)
        tables.append(copy)
    rng.shuffle(tables)
    for table in tables:
        blocks.truncate(table, 0)
    assert (blocks.n_live, blocks.n_free) == (0, 64)
