"""When media are encoded: how often, in which order, in which pieces, and what a failure costs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from imp_service import _core
from support.engine.media_prompts import (
    FAULTING_DEVICE,
    NOT_FINITE,
    REFUSED,
    THROWS,
    MediaPrompt,
    Picture,
    media_engine,
    media_prompt,
)
from support.engine.script_engine import Failed, ScriptEngine
from support.oracles.script_oracle import continuation, prompt_of

CAT, DOG, OWL = Picture(1, (20,)), Picture(2, (20,)), Picture(3, (20,))


def generate(engine: ScriptEngine, prompt: MediaPrompt, **given: Any) -> int:
    return engine.generate(**prompt.given(), **{"max_outputs": 3, **given})


def encoded(engine: ScriptEngine) -> list[int]:
    """Returns the parts that were begun, by the last byte of the seed's digest."""
    names = {picture.digest & 0xFF: picture.seed for picture in (CAT, DOG, OWL)}
    return [names[first] for first, _ in engine.core.begun_encodings]


def test_med_20_runs_that_wait_for_one_picture_have_it_encoded_once() -> None:
    engine = media_engine()
    tickets = [generate(engine, media_prompt(prompt_of(i + 1, i), CAT, [1])) for i in range(5)]
    engine.turn_until_idle()
    for i, ticket in enumerate(tickets):
        assert engine.tokens(ticket) == continuation(media_prompt(prompt_of(i + 1, i), CAT, [1]).read, 3)
    assert encoded(engine) == [1]
    assert engine.core.stats().n_encoded == 1


def test_med_20_a_picture_is_encoded_again_only_if_its_encoding_was_evicted() -> None:
    engine = media_engine(media_rows=64)
    for picture in (CAT, CAT, DOG, CAT, OWL, CAT, DOG):
        engine.complete(**media_prompt(prompt_of(3), picture, [1]).given(), max_outputs=1, bypass_prefix=True)
    assert encoded(engine) == [1, 2, 3, 2], "two of them fit the store, and the least recently used one is evicted"


def test_vis_10_an_encoding_that_is_there_when_a_run_comes_is_a_hit() -> None:
    engine = media_engine()
    for _ in range(3):  # none of them finds it: the first one has it encoded for all
        generate(engine, media_prompt(prompt_of(3), CAT, [1]), bypass_prefix=True)
    engine.turn_until_idle()
    assert (engine.core.stats().n_encoded, engine.core.stats().n_found) == (1, 0)
    n_bytes = engine.core.stats().media_bytes
    assert n_bytes > 0
    engine.complete(**media_prompt(prompt_of(3), CAT, DOG, CAT, [1]).given(), max_outputs=1, bypass_prefix=True)
    assert (engine.core.stats().n_encoded, engine.core.stats().n_found) == (2, 2)
    assert engine.core.stats().media_bytes == 2 * n_bytes


def test_med_20_a_picture_whose_cells_are_cached_is_not_encoded() -> None:
    engine = media_engine()
    picture = Picture(1, (32,))
    prompt = media_prompt(picture, prompt_of(5))
    engine.complete(**prompt.given(), max_outputs=1)
    engine.command("flush")  # frees encodings and cached blocks
    engine.turn()
    assert engine.core.stats().n_encoded == 1
    engine.complete(**prompt.given(), max_outputs=1)
    assert engine.core.stats().n_encoded == 2
    small = media_engine(media_rows=64)
    for other in (1, 2, 3, 4):
        small.complete(**media_prompt(Picture(other, (32,)), prompt_of(5)).given(), max_outputs=1)
    before = small.core.stats().n_encoded
    for other in (1, 2, 3, 4):
        small.complete(**media_prompt(Picture(other, (32,)), prompt_of(5)).given(), max_outputs=1)
    assert small.core.stats().n_encoded == before == 4


def test_med_20_a_run_that_waits_finds_what_another_has_evaluated_meanwhile() -> None:
    engine = media_engine(max_running=1, media_rows=64, step_tokens=64)
    prompt = media_prompt(Picture(1, (32,)), prompt_of(5))
    first = generate(engine, prompt, max_outputs=2)
    second = generate(engine, prompt, max_outputs=2)
    third = generate(engine, media_prompt(Picture(2, (64,)), [1]), max_outputs=2)
    engine.turn_until_idle()
    assert engine.tokens(first) == engine.tokens(second) == continuation(prompt.read, 2)
    assert engine.started(second).n_cached_tokens == 32
    assert engine.core.stats().n_encoded == 2
    engine.finished(third)


def test_med_20_tenants_do_not_share_encodings() -> None:
    """The time of one must not tell another what pictures it has."""
    engine = media_engine()
    for scope in ("a", "b", "a"):
        engine.complete(**media_prompt(CAT, [1]).given(), max_outputs=1, cache_scope=scope, bypass_prefix=True)
    assert encoded(engine) == [1, 1]


@pytest.mark.parametrize("per_decode", [6, 12])
@pytest.mark.parametrize("n_streams", [1, 3, 7])
def test_med_21_no_stream_waits_for_more_rows_than_for_a_prompt(per_decode: int, n_streams: int) -> None:
    engine = media_engine(script={"media_cost": 50}, prefill_per_decode=per_decode)
    streams = [engine.generate(prompt_of(4, i), max_outputs=100) for i in range(n_streams)]
    while not all(engine.tokens(stream) for stream in streams):
        engine.turn()
    ticket = generate(engine, media_prompt(prompt_of(4), Picture(1, (40,)), [1]))
    n_before = len(engine.core.forwards)
    while not engine.tokens(ticket):
        engine.turn()
    most = max(24, per_decode * n_streams)
    pieces = engine.core.encoding_pieces
    assert sum(used for _, used in pieces) == 2000
    budgets = [budget for budget, _ in pieces]
    assert budgets[0] == most // 4, "nobody knows how long it takes"
    assert set(budgets[1:]) == {most}, "no prompt waits, so they take all of its rows"
    assert len(engine.core.forwards) - n_before >= len(pieces), "each piece is followed by a step"
    for step in engine.core.forwards[n_before:]:
        assert sum(len(rows.tokens) for rows in step if len(rows.tokens) > 1) <= most


def test_med_21_encodings_and_prompts_share_the_rows_beside_streams() -> None:
    engine = media_engine(script={"media_cost": 50}, prefill_per_decode=6, n_blocks=200, max_context=1000)
    stream = engine.generate(prompt_of(4), max_outputs=300)
    while not engine.tokens(stream):
        engine.turn()
    ticket = generate(engine, media_prompt(prompt_of(4), Picture(1, (20,)), [1]))
    engine.generate(prompt_of(900, 3), max_outputs=1)
    n_before = len(engine.core.forwards)
    while not engine.tokens(ticket):
        engine.turn()
    budgets = [budget for budget, _ in engine.core.encoding_pieces]
    assert budgets[:70] == [3] + [12] * 69
    assert budgets[-1] == 24, "the prompt is evaluated"
    prompt_rows = [sum(len(rows.tokens) for rows in step if len(rows.tokens) > 1)
                   for step in engine.core.forwards[n_before : n_before + 60]]  # fmt: skip
    assert set(prompt_rows[1:]) <= {0, 12}, "the encoding has taken the others"


@pytest.mark.parametrize(("encoded_row_ns", "most"), [(1000, 24), (3000, 8), (500, 48), (100_000, 3), (1, 192)])
def test_med_21_a_piece_takes_as_long_as_the_rows_of_a_prompt_did(encoded_row_ns: int, most: int) -> None:
    """By measured times. A count of products that is wrong by more than eight times is a wrong measurement."""
    engine = media_engine(script={"media_cost": 50}, n_blocks=200, max_context=1000)
    engine.core.forward_ns, engine.core.row_ns = 50_000, 1000
    engine.core.encoded_row_ns = encoded_row_ns
    stream = engine.generate(prompt_of(4), max_outputs=900)
    while len(engine.tokens(stream)) < 50:
        engine.turn()
    other = engine.generate(prompt_of(400, 3), max_outputs=1)
    while not engine.tokens(other):
        engine.turn()
    ticket = generate(engine, media_prompt(prompt_of(4), Picture(1, (40,)), [1]))
    while not engine.tokens(ticket):
        engine.turn()
    budgets = [budget for budget, _ in engine.core.encoding_pieces]
    assert budgets[0] == 6
    assert set(budgets[1:]) == {most}


def test_med_21_a_run_pays_for_the_time_of_its_pieces() -> None:
    """Work that takes three times as long as a prompt's leaves as few rows to the prompts beside it."""
    engine = media_engine(script={"media_cost": 50}, n_blocks=200, max_context=1000)
    engine.core.forward_ns, engine.core.row_ns, engine.core.encoded_row_ns = 50_000, 1000, 3000
    stream = engine.generate(prompt_of(4), max_outputs=900)
    while len(engine.tokens(stream)) < 50:
        engine.turn()
    other = engine.generate(prompt_of(400, 3), max_outputs=1)
    while not engine.tokens(other):
        engine.turn()
    ticket = generate(engine, media_prompt(prompt_of(4), Picture(1, (40,)), [1]))
    engine.generate(prompt_of(900, 5), max_outputs=1)
    n_before = len(engine.core.forwards)
    while not engine.tokens(ticket):
        engine.turn()
    assert [budget for budget, _ in engine.core.encoding_pieces][:40] == [3] + [4] * 39
    prompt_rows = [sum(len(rows.tokens) for rows in step if len(rows.tokens) > 1)
                   for step in engine.core.forwards[n_before + 1 : n_before + 40]]  # fmt: skip
    assert set(prompt_rows) == {12}, "the pieces take the other half of their time"


def test_med_21_what_runs_goes_before_what_waits() -> None:
    """The second tile of a run that began is encoded before the picture of a run with a higher priority."""
    engine = media_engine(script={"media_cost": 100}, media_rows=64)
    tiles = Picture(1, (20, 20))
    first = generate(engine, media_prompt([5], tiles, [1]))
    while engine.core.stats().running == 0:
        engine.turn()
    second = generate(engine, media_prompt([6], DOG, [1]), priority=5)
    engine.turn_until_idle()
    assert [part for _, part in engine.core.begun_encodings] == [0, 1, 0]
    assert engine.tokens(first) == continuation(media_prompt([5], tiles, [1]).read, 3)
    assert engine.tokens(second) == continuation(media_prompt([6], DOG, [1]).read, 3)


def test_med_21_among_waiting_runs_the_order_of_admission_decides() -> None:
    engine = media_engine(script={"media_cost": 100})
    for picture, priority in ((CAT, 0), (DOG, 5), (OWL, 1)):
        generate(engine, media_prompt([5], picture, [1]), priority=priority)
    engine.turn_until_idle()
    assert encoded(engine) == [2, 3, 1]


def test_med_21_an_encoding_that_nobody_waits_for_stops() -> None:
    engine = media_engine(script={"media_cost": 1000})
    ticket = generate(engine, media_prompt([5], CAT, [1]), sequence=99)
    other = generate(engine, media_prompt([6], DOG, [1]))
    engine.turn()
    engine.core.end(ticket, 99)
    engine.turn_until_idle()
    assert engine.finished(ticket).reason == "cancelled"
    assert engine.tokens(other) == continuation(media_prompt([6], DOG, [1]).read, 3)
    assert encoded(engine) == [1, 2]
    assert engine.core.stats().n_encoded == 1


def test_med_24_a_store_for_one_part_never_deadlocks() -> None:
    """Eight runs of three pictures each, some of them paused or cancelled at any time."""
    rng = random.Random(7)
    engine = media_engine(media_rows=64, n_blocks=80, max_context=200)
    prompts = [
        media_prompt(*[piece for seed in range(3) for piece in (prompt_of(3, i), Picture(10 * i + seed, (60,)))], [1])
        for i in range(8)
    ]
    sequences = [engine.sequence() for _ in prompts]
    tickets = [generate(engine, p, sequence=s) for p, s in zip(prompts, sequences, strict=True)]
    cancelled = set()
    for _ in range(60):
        i = rng.randrange(8)
        if rng.random() < 0.5:
            engine.core.pause(tickets[i], sequences[i], rng.random() < 0.5)
        if i in (2, 5) and rng.random() < 0.3:
            engine.core.end(tickets[i], sequences[i])
            cancelled.add(i)
        engine.turn()
    for ticket, sequence in zip(tickets, sequences, strict=True):
        engine.core.pause(ticket, sequence, False)
    engine.turn_until_idle()
    for i, ticket in enumerate(tickets):
        reason = engine.finished(ticket).reason
        assert reason == "max_tokens" or i in cancelled
        if reason == "max_tokens":
            assert engine.tokens(ticket) == continuation(prompts[i].read, 3)
    engine.assert_at_rest()


def test_med_24_a_paused_run_gives_its_encoding_up() -> None:
    engine = media_engine(media_rows=64)
    first = media_prompt([5], Picture(1, (40, 40)), [1])
    ticket = generate(engine, first, sequence=77)
    while engine.core.stats().running == 0:
        engine.turn()
    engine.core.pause(ticket, 77, True)
    other = engine.complete(**media_prompt([6], Picture(2, (60,)), [1]).given(), max_outputs=3)
    assert other == continuation(media_prompt([6], Picture(2, (60,)), [1]).read, 3)
    engine.core.pause(ticket, 77, False)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(first.read, 3)


def test_med_21_a_preempted_run_waits_for_the_encoding_that_it_lost() -> None:
    engine = media_engine(script={"media_cost": 100}, media_rows=64, prefill_chunk=4)
    prompt = media_prompt([5], Picture(1, (40,)), prompt_of(60))
    ticket = generate(engine, prompt, sequence=77, bypass_prefix=True)
    while not any(rows.first_position > 41 for step in engine.core.forwards for rows in step):
        engine.turn()
    engine.core.pause(ticket, 77, True)
    generate(engine, media_prompt([6], Picture(2, (60,)), [1]), max_outputs=1)
    engine.turn_until_idle()  # the second encoding has taken the room of the first one
    assert engine.core.preempt(77)
    engine.core.pause(ticket, 77, False)
    n_waiting = 0
    while not engine.tokens(ticket):
        engine.turn()
        n_waiting += engine.core.stats().waiting
    assert n_waiting > 5
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt.read, 3)


@pytest.mark.parametrize(("fault", "reason"), [(REFUSED, "FIELD_INVALID"), (THROWS, "BUG"), (NOT_FINITE, "NON_FINITE")])
def test_med_24_a_part_that_cannot_be_encoded_fails_its_runs_alone(fault: int, reason: str) -> None:
    engine = media_engine()
    stream = engine.generate(prompt_of(4), max_outputs=20)
    engine.turn()
    bad = media_prompt(prompt_of(3), Picture(66, (20,), fault=fault), [1])
    failing = [generate(engine, bad) for _ in range(2)]
    good = generate(engine, media_prompt(prompt_of(3), CAT, [1]))
    engine.turn_until_idle()
    for ticket in failing:
        with pytest.raises(Failed, match=reason):
            engine.finished(ticket)
    assert engine.tokens(good) == continuation(media_prompt(prompt_of(3), CAT, [1]).read, 3)
    assert engine.tokens(stream) == continuation(prompt_of(4), 20)
    again = generate(engine, bad)
    engine.turn_until_idle()
    with pytest.raises(Failed, match=reason):
        engine.finished(again)
    engine.assert_at_rest()


def test_med_24_a_broken_device_ends_the_engine_as_in_a_step() -> None:
    engine = media_engine()
    generate(engine, media_prompt(Picture(66, (20,), fault=FAULTING_DEVICE), [1]))
    with pytest.raises(_core.DeviceError):
        engine.turn()


def test_med_24_a_second_tile_that_fails_ends_a_run_that_has_begun() -> None:
    engine = media_engine(script={"media_cost": 100})
    session = engine.open()
    engine.step(session, [1, 2], max_outputs=1)
    picture = Picture(66, (20, 20), fault=THROWS)
    prompt = media_prompt([4], CAT, [5], picture, [1])
    ticket = engine.run(session, **prompt.given(), max_outputs=1)
    engine.turn_until_idle()
    with pytest.raises(Failed, match="BUG"):
        engine.finished(ticket)
    assert engine.core.held(session) == 2
    assert engine.step(session, [3], max_outputs=1) == continuation([1, 2, 3], 1, base=2)[0]


def test_med_20_numbers_that_are_used_up_begin_again() -> None:
    """With few numbers, the cache is emptied when they begin again; no token depends on it."""
    engine = media_engine(media_numbers=8)
    for seed in [*range(20), 3, 19]:
        prompt = media_prompt(prompt_of(16), Picture(seed, (16, 16)), [1])
        assert engine.complete(**prompt.given(), max_outputs=2) == continuation(prompt.read, 2)


def test_med_6_nothing_is_looked_for_while_no_run_has_media() -> None:
    """A run of a session that holds media counts: it may be preempted, and then needs them again."""
    engine = media_engine()
    session = engine.open()
    assert not engine.core.may_have_media
    for prompt, has_media in ((media_prompt([1]), False), (media_prompt(CAT, [3]), True), (media_prompt([4]), True)):
        engine.generate(prompt_of(4), max_outputs=20)
        engine.run(session, **prompt.given(), max_outputs=3)
        engine.turn()
        assert engine.core.may_have_media is has_media
        engine.turn_until_idle()
        assert not engine.core.may_have_media
