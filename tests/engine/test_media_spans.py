"""The media of a sequence without an engine: spans, positions, numbers, and the store of encodings."""

from __future__ import annotations

import random
from typing import Any

import pytest

from imp_service import _core, _testing
from support.engine.media_prompts import ATOMIC, Picture, media_engine, media_prompt

A, B = -(1 << 30) - 1, -(1 << 30) - 2
LARGEST = (1 << 31) - 1


def span_of(picture: Picture, part: int = 0) -> Any:
    return media_prompt(picture).spans[part]


def golden() -> Any:
    """Returns 5 tokens of text, and two images of 3 cells and 2 positions each."""
    ledger = _testing.Ledger()
    ledger.add_text([10, 11, 12, 13, 14])
    for seed, number in ((1, A), (2, B)):
        ledger.add_media(_three_cells(seed), number)
    return ledger


def _three_cells(seed: int) -> Any:
    # Three of the four places of a grid of 2 x 2.
    picture = Picture(seed, (3,))
    return _core.MediaSpan(picture.media(), 0, 0, n_positions=2, grid=(2, 2))


def test_med_1_without_media_every_cell_is_text() -> None:
    ledger = _testing.Ledger()
    for text in ([], [1, 2, 3]):
        ledger.add_text(text)
        n = len(ledger.tokens)
        assert all(ledger.is_text_from(i) for i in (0, n // 2, n, n + 1, LARGEST))
        assert ledger.last_media_end == 0
        assert ledger.text_after_media == ledger.tokens
        assert [ledger.position_of(i, plane) for i in range(n) for plane in range(3)] == [
            i for i in range(n) for _ in range(3)
        ]


def test_med_2_text_begins_behind_the_last_span() -> None:
    ledger = _testing.Ledger()
    ledger.add_text([1] * 5)
    ledger.add_media(span_of(Picture(1, (3,))), A)
    assert [ledger.is_text_from(i) for i in (0, 5, 7, 8, 9, LARGEST)] == [False, False, False, True, True, True]
    ledger.add_media(span_of(Picture(2, (3,))), B)
    assert [ledger.is_text_from(i) for i in (8, 10, 11)] == [False, False, True]


def test_med_3_text_after_media_holds_no_number() -> None:
    ledger = golden()
    assert ledger.text_after_media == []
    ledger.add_text([7, 8])
    assert ledger.text_after_media == [7, 8]
    assert ledger.tokens[5:11] == [A, A, A, B, B, B]


def test_med_4_the_golden_ledger() -> None:
    ledger = golden()
    assert ledger.tokens == [10, 11, 12, 13, 14, A, A, A, B, B, B]
    assert [ledger.position_of(i) for i in range(11)] == [0, 1, 2, 3, 4, 5, 5, 5, 7, 7, 7]
    assert ledger.next_position == 9
    assert ledger.spans == [(5, A), (8, B)]
    assert ledger.last_media_end == 11
    assert (ledger.is_text_from(8), ledger.is_text_from(11)) == (False, True)
    assert ledger.text_after_media == []


def test_med_4_rows_and_columns_are_planes_of_their_own() -> None:
    ledger = golden()
    rows, columns = ([ledger.position_of(i, plane) for i in range(5, 11)] for plane in (1, 2))
    assert rows == [5, 5, 6, 7, 7, 8]
    assert columns == [5, 6, 5, 7, 8, 7]


@pytest.mark.parametrize("cell", range(12))
def test_med_5_a_cut_keeps_the_spans_before_it(cell: int) -> None:
    ledger = golden()
    assert ledger.may_cut(cell) == (cell not in (6, 7, 9, 10))
    if not ledger.may_cut(cell):
        return
    copy = ledger.copy()
    copy.cut(min(cell, 11))
    assert copy.spans == [span for span in [(5, A), (8, B)] if span[0] + 3 <= cell]
    assert copy.tokens == ledger.tokens[:cell]
    assert ledger.spans == [(5, A), (8, B)], "the copy is deep"
    copy.add_text([1])
    assert copy.position_of(cell if cell < 11 else 11) == ledger.position_of(cell)


def test_med_5_positions_and_spans_follow_random_histories() -> None:
    """Compares each ledger with a list of cells, over random appends and cuts."""
    rng = random.Random(3)
    for _ in range(200):
        ledger = _testing.Ledger()
        cells: list[tuple[int, tuple[int, int, int], bool]] = []  # number, positions, whether a cut may be before it
        number, position = A, 0
        ends = [0]
        for _ in range(12):
            kind = rng.choice(["text", "line", "grid", "cut"])
            if kind == "text":
                n = rng.randrange(1, 6)
                ledger.add_text([5] * n)
                cells += [(5, (position + i,) * 3, True) for i in range(n)]
                position += n
            elif kind == "cut":
                allowed = [i for i in range(len(cells) + 1) if i == len(cells) or cells[i][2]]
                at = rng.choice(allowed)
                ledger.cut(at)
                position = ends[at] if at < len(ends) else position
                del cells[at:]
            else:
                size = (rng.randrange(1, 4), rng.randrange(1, 5))
                picture = Picture(rng.randrange(99), (size if kind == "grid" else size[0] * size[1],))
                piece = media_prompt(picture, first_position=position)
                ledger.add_media(piece.spans[0], number)
                cells += [(number, p, i == 0) for i, p in enumerate(piece.positions)]
                position += picture.n_positions(0)
                number -= 1
            ends = _positions_before(cells, position)
        assert ledger.tokens == [number for number, _, _ in cells]
        assert [tuple(ledger.position_of(i, plane) for plane in range(3)) for i in range(len(cells))] == [
            p for _, p, _ in cells
        ]
        assert [ledger.may_cut(i) for i in range(len(cells))] == [may for _, _, may in cells]
        assert all(token >= 0 for token in ledger.text_after_media)
        assert ledger.next_position == position


def _positions_before(cells: list[tuple[int, tuple[int, int, int], bool]], position: int) -> list[int]:
    """Returns, for each place to cut, the position of a token of text there."""
    return [p[0] for _, p, _ in cells] + [position]


@pytest.mark.parametrize(
    ("script", "options", "field"),
    [
        ({**ATOMIC, "max_rows": 71}, {"step_tokens": 64}, "max_running"),
        ({"media_rows": 65}, {"media_rows": 64}, "media_rows"),
    ],
)
def test_med_12_the_start_refuses_a_pass_without_room_for_a_span(
    script: dict[str, int], options: dict[str, int], field: str
) -> None:
    """Eight sequences decode beside a span of 64 cells; an encoding has 64 rows."""
    media_engine(script={**ATOMIC, "max_rows": 72}, step_tokens=64, media_rows=64)
    with pytest.raises(_core.InvalidArgument, match=field):
        media_engine(script=script, **{"media_rows": 128, **options})


def test_med_19_equal_parts_have_one_number_and_others_have_none_of_it() -> None:
    numbers = _testing.MediaNumbers()
    first = numbers.number_of(span_of(Picture(1, (4, 4))))
    assert first < _testing.LAST_MEDIA_TOKEN
    assert numbers.number_of(span_of(Picture(1, (4, 4)))) == first
    others = [
        span_of(Picture(1, (4, 4)), 1),
        span_of(Picture(2, (4, 4))),
        span_of(Picture(1, (5,))),
        span_of(Picture(1, ((2, 2),))),
        span_of(Picture(1, (4,), is_atomic=True)),
    ]
    found = [numbers.number_of(span) for span in others]
    assert len({first, *found}) == 1 + len(others)


def test_med_19_a_part_that_was_forgotten_gets_a_new_number() -> None:
    numbers = _testing.MediaNumbers(most_known=4)
    first = [numbers.number_of(span_of(Picture(i))) for i in range(4)]
    assert numbers.number_of(span_of(Picture(0))) == first[0]
    numbers.number_of(span_of(Picture(4)))  # forgets the two that were used longest ago
    assert numbers.number_of(span_of(Picture(0))) == first[0]
    assert numbers.number_of(span_of(Picture(1))) not in first


def test_med_19_numbers_come_again_but_for_those_that_are_held() -> None:
    numbers = _testing.MediaNumbers(n_numbers=4)
    given = [numbers.number_of(span_of(Picture(i))) for i in range(4)]
    assert numbers.is_used_up()
    assert numbers.number_of(span_of(Picture(2))) == given[2], "a known part needs no new number"
    numbers.restart([given[0], given[3]])
    assert [numbers.number_of(span_of(Picture(i))) for i in (7, 8)] == [given[1], given[2]]
    assert numbers.is_used_up()


def test_med_20_the_store_evicts_what_nobody_needs_the_least_used_first() -> None:
    store = _testing.MediaStore(64)
    for number in range(4):
        assert store.make_room(16, "waiting")
        store.add(number, [number + i / 64 for i in range(16)])
    assert not store.make_room(65, "running")
    store.values(0)
    store.need(1, "waiting")
    store.need(2, "running")
    assert store.make_room(16, "waiting")
    assert [store.contains(n) for n in range(4)] == [True, True, True, False]
    assert store.make_room(32, "waiting"), "one block is free already"
    assert [store.contains(n) for n in range(4)] == [False, True, True, False]
    assert not store.make_room(48, "waiting")
    assert store.make_room(48, "running")
    assert [store.contains(n) for n in range(4)] == [False, False, True, False]
    assert not store.make_room(64, "running")
    assert store.values(2) == [2 + i / 64 for i in range(16)]


def test_med_20_an_encoding_of_another_scope_is_another_one() -> None:
    store = _testing.MediaStore(64)
    store.add(1, [5.0] * 20, scope=1)
    assert store.contains(1, scope=1)
    assert not store.contains(1, scope=2)
    store.add(1, [6.0] * 20, scope=2)
    assert (store.values(1, scope=1), store.values(1, scope=2)) == ([5.0] * 20, [6.0] * 20)
    assert store.n_rows_kept == 64
    store.evict_unneeded()
    assert store.n_rows_kept == 0
