"""Prompts with media in the engine: nothing but the prompt decides a token."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest

from imp_service import _core
from support.engine.media_prompts import (
    ATOMIC,
    PLACEHOLDER,
    MediaPrompt,
    Picture,
    logits_with_positions,
    media_engine,
    media_prompt,
)
from support.engine.script_engine import Failed, ScriptEngine
from support.oracles.script_oracle import Sampler, continuation, prompt_of

pytestmark = pytest.mark.usefixtures("ahead")
SEEDED = Sampler(temperature=0.9, seed=21)
FAMILIES: dict[str, dict[str, Any]] = {
    "tiles": {"picture": Picture(1, (12, 12, 7))},
    "atomic": {"picture": Picture(1, (20,), is_atomic=True), "script": ATOMIC},
    "planes": {"picture": Picture(1, ((3, 4),)), "script": {"planes": 3}},
    "state": {"picture": Picture(1, (25,)), "script": {"state": True}, "options": {"n_state_slots": 12}},
}


class Family:
    """A kind of model with media, a prompt for it, and what must follow."""

    def __init__(self, name: str) -> None:
        facts = FAMILIES[name]
        self.picture: Picture = facts["picture"]
        self.script: dict[str, Any] = facts.get("script", {})
        self.options: dict[str, Any] = facts.get("options", {})
        self.prompt = media_prompt(prompt_of(21), self.picture, prompt_of(9, 2))

    def engine(self, **options: Any) -> ScriptEngine:
        return media_engine(script=self.script, **{**self.options, **options})

    def expected(self, n: int, sampler: Sampler = SEEDED, prompt: MediaPrompt | None = None) -> list[int]:
        prompt = prompt or self.prompt
        rule = {"logits": logits_with_positions(prompt.positions)} if self.script.get("planes") else {}
        return continuation(prompt.read, n, sampler, **rule)


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return Family(request.param)


def generate(engine: ScriptEngine, prompt: MediaPrompt, **given: Any) -> int:
    return engine.generate(**{**prompt.given(), "sampling": SEEDED, **given})


def complete(engine: ScriptEngine, prompt: MediaPrompt, n: int = 8, **given: Any) -> list[int]:
    ticket = generate(engine, prompt, max_outputs=n, **given)
    engine.turn_until_idle()
    engine.finished(ticket)
    return engine.tokens(ticket)


def test_med_15_one_pixel_changes_the_tokens(family: Family) -> None:
    """The control of the tests below."""
    engine = family.engine()
    other = Picture(2, family.picture.parts, family.picture.is_atomic)
    changed = media_prompt(prompt_of(21), other, prompt_of(9, 2))
    outputs = complete(engine, family.prompt), complete(engine, changed)
    assert outputs == (family.expected(8), family.expected(8, prompt=changed))
    assert outputs[0] != outputs[1]


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
def test_med_15_chunks_and_company_change_no_token(family: Family, chunk: int) -> None:
    engine = family.engine(prefill_chunk=chunk)
    text = prompt_of(40, 5)
    others = [engine.generate(text, max_outputs=12, sampling=Sampler(0.7, seed=i)) for i in range(3)]
    tickets = [generate(engine, family.prompt, max_outputs=8, bypass_prefix=i == 1) for i in range(2)]
    engine.turn_until_idle()
    assert [engine.tokens(ticket) for ticket in tickets] == [family.expected(8)] * 2
    for i, ticket in enumerate(others):
        assert engine.tokens(ticket) == family.expected(12, Sampler(0.7, seed=i), media_prompt(text))
    engine.assert_at_rest()


@pytest.mark.parametrize("cell", range(0, 56, 3))
def test_med_15_hits_that_end_anywhere_change_no_token(family: Family, cell: int) -> None:
    """The cache holds a prefix that ends before, in, or behind the span."""
    engine = family.engine()
    n_cells = len(family.prompt.tokens)
    first = media_prompt(prompt_of(21), family.picture, prompt_of(9, 2), prompt_of(3, 9))
    complete(engine, first, 1)
    tail = prompt_of(30, 8)
    if cell <= 21:
        prompt = media_prompt(prompt_of(21)[:cell], tail, family.picture, [1])
    elif cell < n_cells - 9:
        prompt = media_prompt(prompt_of(21), family.picture, tail)
    else:
        prompt = media_prompt(prompt_of(21), family.picture, prompt_of(9, 2)[: cell - n_cells + 9], tail)
    ticket = generate(engine, prompt, max_outputs=6)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == family.expected(6, prompt=prompt)
    if cell > 21 and not family.script.get("state"):
        assert engine.started(ticket).n_cached_tokens >= 16


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "state"], indirect=True)
def test_med_15_a_hit_ends_inside_a_span_and_the_rest_is_evaluated(family: Family) -> None:
    """Evicts blocks of the cache from its end, so that a repeat finds less and less of the span.

    With a recurrent state a hit ends at a snapshot, which the test above covers.
    """
    found = set()
    for n_blocks in range(6, 12):
        engine = family.engine(n_blocks=n_blocks, max_context=80)
        complete(engine, family.prompt, 2)
        engine.complete(prompt_of(75, 7), max_outputs=2)
        ticket = generate(engine, family.prompt, max_outputs=4)
        engine.turn_until_idle()
        found.add(engine.started(ticket).n_cached_tokens)
        assert engine.tokens(ticket) == family.expected(4)
    assert len(found & set(range(21, 21 + 31))) >= 1, found


@pytest.mark.parametrize("turns", range(1, 14))
def test_med_15_a_preemption_at_any_point_changes_no_token(family: Family, turns: int) -> None:
    engine = family.engine(prefill_chunk=6)
    sequence = engine.sequence()
    ticket = generate(engine, family.prompt, max_outputs=6, sequence=sequence, bypass_prefix=True)
    for _ in range(turns):
        engine.turn()
    preempted = not engine.tokens(ticket) and engine.core.preempt(sequence)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == family.expected(6)
    assert engine.finished(ticket).n_preemptions == int(preempted)
    engine.assert_at_rest()


@pytest.mark.parametrize(("cost", "per_decode"), [(1, 6), (40, 1), (3, 2)])
def test_med_15_the_size_of_pieces_changes_no_token(family: Family, cost: int, per_decode: int) -> None:
    family.script = {**family.script, "media_cost": cost}
    engine = family.engine(prefill_per_decode=per_decode)
    stream = engine.generate(prompt_of(5, 3), max_outputs=60, sampling=SEEDED)
    engine.turn()
    ticket = generate(engine, family.prompt, max_outputs=8)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == family.expected(8)
    assert engine.tokens(stream) == family.expected(60, prompt=media_prompt(prompt_of(5, 3)))


def test_med_15_a_store_with_room_for_one_part_changes_no_token(family: Family) -> None:
    """Each part evicts the one before, and two runs evict each other's."""
    engine = family.engine(media_rows=64, max_running=3)
    pictures = [Picture(seed, family.picture.parts, family.picture.is_atomic) for seed in range(4)]
    prompts = [media_prompt(prompt_of(5, i), p, prompt_of(3), p, [2]) for i, p in enumerate(pictures)]
    tickets = [generate(engine, prompt, max_outputs=5) for prompt in prompts]
    engine.turn_until_idle()
    for ticket, prompt in zip(tickets, prompts, strict=True):
        assert engine.tokens(ticket) == family.expected(5, prompt=prompt)
    engine.assert_at_rest()


def test_med_15_another_engine_draws_the_same(family: Family) -> None:
    outputs = {tuple(complete(family.engine(cache_secret=(i, i)), family.prompt)) for i in range(3)}
    assert outputs == {tuple(family.expected(8))}


def test_med_15_siblings_share_a_prompt_with_media(family: Family) -> None:
    engine = family.engine()
    siblings = [engine.sequence() for _ in range(2)]
    ticket = generate(engine, family.prompt, max_outputs=6, siblings=siblings)
    engine.turn_until_idle()
    for stream in range(3):
        rule = {"logits": logits_with_positions(family.prompt.positions)} if family.script.get("planes") else {}
        expected = continuation(family.prompt.read, 6, SEEDED, sequence=stream, **rule)
        assert engine.tokens(ticket, stream) == expected
    engine.assert_at_rest()


def test_med_15_random_requests_with_media_draw_what_each_draws_alone(family: Family) -> None:
    rng = random.Random(5)
    engine = family.engine(n_blocks=40, max_context=160, media_rows=96, max_running=4)
    requests = []
    for i in range(30):
        pieces: list[Any] = []
        for _ in range(rng.randrange(1, 4)):
            pieces.append(prompt_of(rng.randrange(1, 25), rng.randrange(3)))
            if rng.random() < 0.7:
                pieces.append(Picture(rng.randrange(3), family.picture.parts, family.picture.is_atomic))
        requests.append((media_prompt(*pieces, [rng.randrange(16)]), Sampler(rng.choice([0.0, 0.8]), seed=i)))
    tickets = []
    for prompt, sampler in requests:
        tickets.append(generate(engine, prompt, max_outputs=rng.randrange(1, 12), sampling=sampler))
        for _ in range(rng.randrange(4)):
            engine.turn()
    engine.turn_until_idle()
    for ticket, (prompt, sampler) in zip(tickets, requests, strict=True):
        outputs = engine.tokens(ticket)
        assert outputs == family.expected(len(outputs), sampler, prompt)
        assert engine.finished(ticket).reason == "max_tokens"
    engine.assert_at_rest()


def test_med_6_text_is_evaluated_as_without_an_encoder() -> None:
    """The forward passes are the same, row by row."""
    evaluated = []
    for script in ({"media_rows": 0}, {}):
        engine = media_engine(script=script, media_rows=256)
        tickets = [engine.generate(prompt_of(40 + i, i), max_outputs=9, sampling=SEEDED) for i in range(4)]
        engine.turn_until_idle()
        evaluated.append((engine.evaluated(), [engine.tokens(ticket) for ticket in tickets]))
    assert evaluated[0] == evaluated[1]


def test_med_16_the_cells_of_an_atomic_span_see_all_of_it_and_no_more() -> None:
    engine = media_engine(script=ATOMIC)
    first, second = Picture(1, (5,), is_atomic=True), Picture(2, (4,), is_atomic=True)
    complete(engine, media_prompt([1, 2], first, second, [3]), 1)
    ends = [end for step in engine.core.forwards for rows in step if rows.n_placed > 0 for end in rows.ends]
    assert ends == [1, 2, 7, 7, 7, 7, 7, 11, 11, 11, 11, 12]
    causal = media_engine()
    complete(causal, media_prompt([1, 2], Picture(1, (5,)), [3]), 1)
    assert next(rows.ends for step in causal.core.forwards for rows in step) == []


@pytest.mark.parametrize("n_cells", [1, 5, 24, 33, 64])
def test_med_17_no_atomic_span_is_cut_and_none_starves(n_cells: int) -> None:
    """Beside streams and with small budgets. Each span is evaluated in one step, and at most one exceeds a budget."""
    engine = media_engine(
        script={**ATOMIC, "max_rows": 80}, step_tokens=16, prefill_chunk=12, prefill_per_decode=1, max_running=8
    )
    streams = [engine.generate(prompt_of(4, i), max_outputs=40, sampling=SEEDED) for i in range(3)]
    engine.turn()
    prompts = [media_prompt(prompt_of(9, i), Picture(i, (n_cells,), is_atomic=True), [2]) for i in range(4)]
    tickets = [generate(engine, prompt, max_outputs=3) for prompt in prompts]
    engine.turn_until_idle()
    for ticket, prompt in zip(tickets, prompts, strict=True):
        assert engine.tokens(ticket) == continuation(prompt.read, 3, SEEDED)
    for stream in streams:
        assert len(engine.tokens(stream)) == 40
    for step in engine.core.forwards:
        placed = [rows.n_placed for rows in step if rows.n_placed > 0]
        assert all(n % n_cells == 0 for n in placed)
        assert sum(n > 12 for n in placed) <= 1
        n_decoding = sum(len(rows.tokens) == 1 for rows in step)
        assert sum(len(rows.tokens) for rows in step) <= max(16, 24 + n_decoding, 8 + n_cells)


def test_med_17_a_scored_run_with_a_long_atomic_span_ends() -> None:
    engine = media_engine(script={**ATOMIC, "max_logits_rows": 8})
    prompt = media_prompt(prompt_of(12), Picture(1, (60,), is_atomic=True), prompt_of(10, 1))
    ticket = generate(engine, prompt, max_outputs=2, scores=True)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt.read, 2, SEEDED)


@pytest.mark.parametrize("is_atomic", [False, True])
def test_med_14_a_cell_has_no_score_and_echoes_the_placeholder(is_atomic: bool) -> None:
    engine = media_engine(script=ATOMIC if is_atomic else {})
    prompt = media_prompt(prompt_of(5), Picture(1, (20,), is_atomic=is_atomic), prompt_of(6, 1))
    ticket = generate(engine, prompt, max_outputs=1, scores=True)
    engine.turn_until_idle()
    scores = engine.started(ticket).scores
    assert list(scores.tokens) == [*prompt_of(5), *[PLACEHOLDER] * 20, *prompt_of(6, 1)]
    absent = [math.isnan(logprob) for logprob in scores.logprobs]
    assert absent == [True, *[False] * 4, *[True] * 20, *[False] * 6]


def test_med_14_cells_are_no_tokens_for_penalties() -> None:
    """256 equal cells count as nothing, wherever the history of a draw is read."""
    sampler = Sampler(temperature=0.8, seed=3, repetition_penalty=1.4, frequency_penalty=0.5, presence_penalty=0.3)
    engine = media_engine(script={"media_rows": 200}, media_rows=400, n_blocks=40, max_context=600)
    prompt = media_prompt(prompt_of(8), Picture(1, (128, 128)), prompt_of(8, 1))
    assert complete(engine, prompt, 12, sampling=sampler) == continuation(prompt.read, 12, sampler)


@pytest.mark.parametrize("fault", ["truncate", "fork"])
def test_med_22_a_session_is_cut_at_the_borders_of_media_only(fault: str) -> None:
    picture = Picture(4, (3, 3))
    prompt = media_prompt([1, 2, 3, 4, 5], picture, [6])
    for position in range(13):
        engine = media_engine()
        session = engine.open()
        ticket = engine.run(session, **prompt.given(), max_outputs=1, sampling=SEEDED)
        engine.turn_until_idle()
        engine.finished(ticket)
        copy = engine.sequence() if fault == "fork" else session
        given = [session, copy, position] if fault == "fork" else [session, position]
        answer = engine.command(fault, *given)
        engine.turn_until_idle()
        if position in (6, 7, 9, 10):
            with pytest.raises(Failed) as failed:
                engine.done(answer)
            first = 5 if position < 8 else 8
            assert failed.value.reason == "POSITION_INSIDE_MEDIA"
            assert failed.value.details == {"position": str(position), "first": str(first), "end": str(first + 3)}
            assert engine.core.held(session) == 12
            continue
        engine.done(answer)
        assert engine.step(copy, [7, 8], sampling=SEEDED) == continuation([*prompt.read[:position], 7, 8], 1, SEEDED)[0]


def test_med_22_a_cancelled_run_takes_its_media_along() -> None:
    engine = media_engine(script={"media_cost": 500})
    session = engine.open(sampling=SEEDED)
    assert engine.step(session, [1, 2, 3], max_outputs=1) == continuation([1, 2, 3], 1, SEEDED)[0]
    prompt = media_prompt(prompt_of(4), Picture(9, (30,)), [5])
    ticket = engine.run(session, **prompt.given(), max_outputs=1)
    engine.turn()
    engine.core.end(ticket, session)
    engine.turn_until_idle()
    assert engine.finished(ticket).reason == "cancelled"
    assert engine.core.held(session) == 3
    drawn = engine.step(session, media_prompt([7], Picture(2), [8]).tokens[:1])
    assert drawn == continuation([1, 2, 3, 7], 1, SEEDED, base=3)[0]


def test_med_22_a_draw_at_a_held_cell_evaluates_it_again() -> None:
    for is_atomic in (False, True):
        engine = media_engine(script=ATOMIC if is_atomic else {})
        prompt = media_prompt(prompt_of(9), Picture(3, (10,), is_atomic=is_atomic))
        session = engine.open(sampling=SEEDED)
        engine.step(session, prompt.tokens, media=prompt.spans, max_outputs=0)
        engine.command("flush")
        drawn = engine.step(session, resume=True, max_outputs=1, base=19)
        assert [drawn] == continuation(prompt.read, 1, SEEDED)


def test_med_22_a_conversation_with_pictures_is_evaluated_once() -> None:
    """Image, text, image, text: each turn finds the cells of those before it, and each part is encoded once."""
    engine = media_engine()
    picture, other = Picture(1, (17, 9)), Picture(2, (30,))
    pieces: list[Any] = []
    for turn in ([picture, prompt_of(6)], [prompt_of(20, 1)], [other, prompt_of(3, 2)], [prompt_of(9, 3)]):
        pieces += turn
        prompt = media_prompt(*pieces)
        ticket = generate(engine, prompt, max_outputs=5)
        engine.turn_until_idle()
        outputs = engine.tokens(ticket)
        assert outputs == continuation(prompt.read, 5, SEEDED)
        n_before = engine.started(ticket).n_cached_tokens
        assert n_before >= (len(prompt.tokens) - len(media_prompt(*turn).tokens) - 5) // 16 * 16
        pieces.append(outputs)
    assert engine.core.stats().n_encoded == 3


def test_med_19_other_media_never_hit_even_if_all_hashes_are_equal() -> None:
    engine = media_engine()
    prompts = [media_prompt(prompt_of(16), Picture(seed, (16, 16)), prompt_of(5)) for seed in (1, 2)]
    for prompt, n_cached in itertools.chain(zip(prompts, (0, 16), strict=True), zip(prompts, (48, 48), strict=True)):
        ticket = generate(engine, prompt, max_outputs=3)
        engine.turn_until_idle()
        assert engine.started(ticket).n_cached_tokens == n_cached
        assert engine.tokens(ticket) == continuation(prompt.read, 3, SEEDED)


def test_med_19_the_same_picture_hits_behind_a_cut_between_its_tiles() -> None:
    engine = media_engine()
    picture = Picture(1, (16, 16))
    session = engine.open(sampling=SEEDED)
    prompt = media_prompt(picture, [5])
    engine.step(session, prompt.tokens, media=prompt.spans, max_outputs=1)
    engine.command("truncate", session, 16)
    engine.turn_until_idle()
    again = media_prompt(picture, [6])
    drawn = engine.step(session, again.tokens, media=again.spans, max_outputs=1)
    read = [*prompt.read[:16], *again.read]
    assert drawn == continuation(read, 1, SEEDED, base=33)[0]
    other = engine.complete(**again.given(), max_outputs=1)
    assert other == continuation(again.read, 1)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda p: {"media": p.spans[1:]}, "media[0].part"),
        (lambda p: {"media": p.spans[:1]}, "media"),
        (lambda p: {"media": p.spans[::-1]}, "media[0].part"),
        (lambda p: {"media": [p.spans[0], p.spans[0]]}, "media[1].part"),
        (lambda p: {"tokens": p.tokens[:-1]}, "media[1].first"),
        (lambda p: {"tokens": [*p.tokens[:2], 1, *p.tokens[2:]]}, "media[0]"),
        (lambda p: {"media": media_prompt([1, 2], Picture(1, (65,)), [1]).spans}, "media[0].n_cells"),
        (lambda p: {"media": media_prompt(Picture(1, (4,)), [1]).spans + p.spans}, "media[1].first"),
        (lambda _: {"media": media_prompt([1, 2], Picture(1, (4, 5), is_atomic=True)).spans}, "media[0].is_atomic"),
    ],
)
def test_med_26_spans_that_do_not_fit_the_tokens_are_refused(change: Any, field: str) -> None:
    engine = media_engine()
    prompt = media_prompt([PLACEHOLDER] * 2, Picture(1, (4, 5)))
    with pytest.raises(_core.InvalidArgument, match=field.replace("[", r"\[").replace("]", r"\]")):
        engine.generate(**{**prompt.given(), **change(prompt)}, max_outputs=1)
    assert complete(engine, prompt, 2) == continuation(prompt.read, 2, SEEDED)


def test_med_26_a_model_whose_cells_see_each_other_takes_no_other_span() -> None:
    engine = media_engine(script=ATOMIC)
    with pytest.raises(_core.InvalidArgument, match=r"media\[0\]\.is_atomic: false, expected true"):
        engine.generate(**media_prompt(Picture(1)).given(), max_outputs=1)


def test_med_26_a_model_without_an_encoder_takes_no_media() -> None:
    engine = ScriptEngine()
    with pytest.raises(_core.InvalidArgument, match="takes no media"):
        engine.generate(**media_prompt(Picture(1)).given(), max_outputs=1)


def test_med_13_the_placeholder_alone_is_a_token_like_any_other() -> None:
    engine = media_engine()
    tokens = [PLACEHOLDER] * 9
    assert engine.complete(tokens, max_outputs=4) == continuation(tokens, 4)
    assert engine.core.stats().n_encoded == 0
