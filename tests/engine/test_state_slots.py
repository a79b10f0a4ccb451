"""Slots of recurrent state as a pure object: counts, snapshots, and the order of eviction."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from imp_service import _core, _testing
from support.run.release_run import repetitions

N_OPERATIONS = repetitions(500_000, 10_000)
N_SLOTS, N_BLOCKS, WIDTH = 9, 20, 4


class Model:
    """A model of slots and blocks made of dictionaries and lists."""

    def __init__(self) -> None:
        self.allocator = _testing.BlockAllocator(N_BLOCKS)
        for _ in range(N_BLOCKS):
            self.allocator.allocate()
        self.states = _testing.StateSlots(N_SLOTS, N_BLOCKS)
        self.holders: Counter[int] = Counter()
        self.kept: dict[int, tuple[int, int]] = {}  # block -> slot, tokens
        self.order: list[int] = []  # slots by last use
        self.idle: set[int] = set()
        self.cached: set[int] = set()  # blocks without an owner

    def free(self) -> set[int]:
        return set(range(N_SLOTS)) - set(self.holders) - {slot for slot, _ in self.kept.values()}

    def block_of(self, slot: int) -> int | None:
        return next((block for block, (kept, _) in self.kept.items() if kept == slot), None)

    def victim(self, *, for_snapshot: bool) -> int | None:
        """Returns the slot that must be evicted next."""
        ranks: list[tuple[int, int, int]] = []
        for block, (slot, _) in self.kept.items():
            rank = 0 if block in self.cached else 2 if slot in self.idle else 1
            if slot not in self.holders and not (for_snapshot and rank == 2):
                ranks.append((rank, self.order.index(slot), slot))
        return min(ranks)[2] if ranks else None

    def take(self, *, for_snapshot: bool) -> None:
        free, victim = self.free(), self.victim(for_snapshot=for_snapshot)
        took = self.states.take_for_snapshot if for_snapshot else self.states.take
        slot = took(self.allocator)
        if free:
            assert slot in free
        else:
            assert slot == (-1 if victim is None else victim)
        if slot == -1:
            return
        block = self.block_of(slot)
        if block is not None:
            self.drop(block)
        self.holders[slot] = 1

    def release(self, slot: int) -> None:
        self.states.release(slot)
        self.holders[slot] -= 1
        if not self.holders[slot]:
            del self.holders[slot]

    def keep(self, block: int, slot: int, n_tokens: int, *, is_idle: bool) -> None:
        self.states.keep(block, slot, n_tokens, is_idle)
        at = self.block_of(slot)
        if at is None and self.kept.get(block, (0, 0))[1] < n_tokens:
            self.drop(block)
            self.kept[block] = slot, n_tokens
            at = block
        if at == block:
            self.idle.discard(slot)
            self.idle |= {slot} if is_idle else set()
            self.touch(slot)

    def use(self, block: int) -> None:
        slot = self.states.use(block)
        assert slot == self.kept[block][0]
        self.holders[slot] += 1
        self.idle.discard(slot)
        self.touch(slot)

    def touch(self, slot: int) -> None:
        self.order = [*(other for other in self.order if other != slot), slot]

    def drop(self, block: int) -> None:
        if block in self.kept:
            self.idle.discard(self.kept.pop(block)[0])

    def move(self, source: int, target: int) -> None:
        self.states.move(source, target)
        if self.kept.get(source, (0, 0))[1] > self.kept.get(target, (0, 0))[1]:
            self.drop(target)
            self.kept[target] = self.kept.pop(source)

    def check(self) -> None:
        n_kept = len({slot for slot, _ in self.kept.values()} - set(self.holders))
        assert self.states.counts == (len(self.holders), n_kept, N_SLOTS - len(self.holders) - n_kept)
        assert [self.states.snapshot(block) for block in range(N_BLOCKS)] == [
            self.kept.get(block, (-1, 0)) for block in range(N_BLOCKS)
        ]


def test_rec_4_slots_are_conserved_and_the_least_useful_snapshot_goes_first() -> None:
    """Compares holders, snapshots and the order of eviction with dictionaries after random operations."""
    rng, it = random.Random(9), Model()
    n_evicted = Counter[bool]()
    for _ in range(N_OPERATIONS):
        name = rng.choice(["take", "take", "snapshot", "retain", "release", "release", "keep", "keep", "use", "drop"])
        held, blocks = sorted(it.holders), sorted(it.kept)
        block = rng.randrange(N_BLOCKS)
        if name in {"take", "snapshot"}:
            n_evicted[name == "take"] += not it.free()
            it.take(for_snapshot=name == "snapshot")
        elif name == "retain" and held:
            slot = rng.choice(held)
            it.states.retain(slot)
            it.holders[slot] += 1
        elif name == "release" and held:
            it.release(rng.choice(held))
        elif name == "keep" and held:
            it.keep(block, rng.choice(held), rng.randrange(1, WIDTH + 1), is_idle=rng.random() < 0.3)
        elif name == "use" and blocks:
            it.use(rng.choice(blocks))
        elif name == "drop":
            n_tokens = rng.randrange(WIDTH + 1)
            it.states.drop_after(block, n_tokens)
            if it.kept.get(block, (0, 0))[1] > n_tokens:
                it.drop(block)
            it.move(block, rng.choice([b for b in range(N_BLOCKS) if b != block]))
        if rng.random() < 0.2:
            if block in it.cached:
                it.allocator.retain(block)
            else:
                it.allocator.release(block, keep=True)
            it.cached ^= {block}
        it.check()
    assert n_evicted[True] > 100
    assert n_evicted[False] > 50


@pytest.mark.parametrize("misuse", ["release free", "release twice", "retain free", "keep free", "use none", "unknown"])
def test_rec_4_a_broken_count_is_an_error(misuse: str) -> None:
    states, blocks = _testing.StateSlots(3, 2), _testing.BlockAllocator(2)
    slot = states.take(blocks)
    with pytest.raises(_core.InternalError):
        if misuse == "release free":
            states.release(2)
        elif misuse == "release twice":
            states.release(slot)
            states.release(slot)
        elif misuse == "retain free":
            states.retain(2)
        elif misuse == "keep free":
            states.keep(0, 2, 1)
        elif misuse == "use none":
            states.use(0)
        else:
            states.release(3)


def test_rec_3_a_prefix_ends_at_a_snapshot_and_moves_with_its_block() -> None:
    """The block of a second sequence replaces the cached one, and so does its snapshot."""
    blocks = _testing.KvBlocks(16, 4, n_state_slots=4)
    tokens = list(range(13))

    def fill(n_found: int, snapshots: list[int]) -> _testing.BlockTable:
        table = _testing.BlockTable()
        assert blocks.match(table, (1, 1), tokens, 0) == n_found
        blocks.hold_state(table, n_found)
        blocks.prepare(table, n_found, len(tokens))
        blocks.commit(table, (1, 1), tokens)
        for position in snapshots:
            slot = blocks.take_snapshot()
            blocks.keep_snapshot(table, position, slot)
            blocks.release_state(slot)
        return table

    blocks.truncate(fill(0, [8]), 0)
    blocks.truncate(fill(8, [4]), 0)
    assert blocks.states == (0, 2, 2)
    # Blocks after the last snapshot are written again and replace the cached ones.
    other = fill(8, [12])
    assert blocks.states == (1, 2, 1)
    blocks.truncate(other, 0)
    assert blocks.match(_testing.BlockTable(), (1, 1), tokens, 0) == 12
