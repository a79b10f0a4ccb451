"""The table of pixels is what `transformers` computes now."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from parity.store_pixels import reference_digest, reference_layouts, reference_sides
from support.media.pixel_cases import KINDS, LARGE, PUBLISHED, REFUSED, SMALL, entries, pixel_cases, sides, table


@pytest.mark.parametrize("kind", KINDS)
def test_vis_1_hon_1_the_digests_are_what_transformers_computes(kind: str) -> None:
    found = [reference_digest(SMALL[kind], each.width, each.height, each.mode) for each in pixel_cases()]
    assert found == entries("digests", kind)
    assert [reference_digest(PUBLISHED[kind], *each) for each in LARGE] == entries("large_digests", kind)
    first = pixel_cases()[10]
    assert reference_digest(SMALL[kind], first.width + 1, first.height, first.mode) != found[10]  # HON-1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fixed"])
def test_vis_1_the_sizes_are_what_transformers_computes(kind: str) -> None:
    found = [",".join(map(str, reference_sides(kind, *each))) or REFUSED for each in sides()]
    assert found == entries("sides", kind)


def test_vis_1_the_layouts_are_what_transformers_writes() -> None:
    assert reference_layouts() == table()["layouts"]
