"""The arena: aligned, zero, and honest about memory that is not there."""

from __future__ import annotations

import itertools

import pytest

from imp_service import _core
from imp_service import _testing as core


def test_pieces_are_aligned_zero_and_apart() -> None:
    sizes = [1, 63, 64, 65, 0, 5_000_000, 100, 3_000_000]
    pieces = core.arena_pieces(4 << 20, sizes)
    assert [address % 64 for address, _ in pieces] == [0] * len(sizes)
    assert [nonzero for _, nonzero in pieces] == [0] * len(sizes)  # though each piece before was filled
    assert pieces[0][0] % (2 << 20) == 0
    assert pieces[5][0] % (2 << 20) == 0  # larger than what was left: a chunk of its own
    spans = sorted((address, address + size) for (address, _), size in zip(pieces, sizes, strict=True))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


@pytest.mark.parametrize("size", [1 << 60, (1 << 64) - 1])
def test_memory_that_the_system_refuses_is_no_memory(size: int) -> None:
    with pytest.raises(_core.ResourceExhausted) as caught:
        core.arena_pieces(1 << 20, [size])
    assert caught.value.reason == "NO_MEMORY"
    assert caught.value.details == {"needed": str(size)}
    assert str(size) in caught.value.message
