"""The arena returns aligned, zeroed memory, and raises an error if the system has none."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from imp_service import _core
from imp_service import _testing as core


def test_pieces_are_aligned_zero_and_apart() -> None:
    sizes = [1, 63, 64, 65, 0, 5_000_000, 100, 3_000_000]
    pieces = core.arena_pieces(4 << 20, sizes)
    assert [address % 64 for address, _ in pieces] == [0] * len(sizes)
    assert [nonzero for _, nonzero in pieces] == [0] * len(sizes)  # although each earlier piece was filled
    assert pieces[0][0] % (2 << 20) == 0
    assert pieces[5][0] % (2 << 20) == 0  # larger than the rest of the chunk, so it gets its own chunk
    spans = sorted((address, address + size) for (address, _), size in zip(pieces, sizes, strict=True))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


@pytest.mark.parametrize("size", [1 << 60, (1 << 64) - 1])
def test_memory_that_the_system_refuses_is_no_memory(size: int) -> None:
    with pytest.raises(_core.ResourceExhausted) as caught:
        core.arena_pieces(1 << 20, [size])
    assert caught.value.reason == "NO_MEMORY"
    assert caught.value.details == {"needed": str(size)}
    assert str(size) in caught.value.message


def lines_at(address: int, file: str) -> list[str]:
    """Returns the lines of /proc for the mapping that begins at an address."""
    lines = Path(f"/proc/self/{file}").read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"{address:x}"))
    return lines[first : first + 40]


def flags_at(address: int) -> set[str]:
    return set(next(line for line in lines_at(address, "smaps") if line.startswith("VmFlags:")).split()[1:])


@pytest.mark.parametrize("huge_pages", [True, False])
def test_huge_pages_are_asked_for_or_forgone(huge_pages: bool) -> None:
    arena = core.Arena(huge_pages=huge_pages)
    flags = flags_at(arena.allocate(1000))
    assert ("hg" in flags, "nh" in flags) == (huge_pages, not huge_pages)


@pytest.mark.skipif(_core.interleave_refusal([0]) != "", reason="the system does not let processes place memory")
def test_interleaved_memory_has_its_policy_before_it_is_written() -> None:
    interleaved, plain = core.Arena(interleave_nodes=[0]), core.Arena()
    assert lines_at(interleaved.allocate(1000), "numa_maps")[0].split()[1] == "interleave:0"
    assert lines_at(plain.allocate(1000), "numa_maps")[0].split()[1] == "default"


@pytest.mark.parametrize("nodes", [[1000], [-1], [1024]])
def test_nodes_that_are_not_there_are_refused(nodes: list[int]) -> None:
    refusal = _core.interleave_refusal(nodes)
    assert refusal.startswith(("mbind: ", "no node "))
    with pytest.raises(_core.InvalidArgument) as caught:
        core.Arena(interleave_nodes=nodes).allocate(1)
    assert caught.value.message == f"numa: the system does not interleave memory over its nodes: {refusal}"
