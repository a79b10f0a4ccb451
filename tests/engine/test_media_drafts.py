"""Speculation beside media: a restart at the border, and no token that depends on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core, _testing
from support.engine.embedding_prompts import embeddings_prompt
from support.engine.media_prompts import ENCODER, MediaPrompt, Picture, media_engine, media_prompt
from support.engine.script_engine import ScriptEngine, TurnedEngine
from support.models.head_runs import HEADS, load_head
from support.oracles.script_oracle import Sampler, continuation, hash_logits, prompt_of

GREEDY, SEEDED = Sampler(), Sampler(temperature=0.8, seed=11)
CAT = Picture(1, (12, 12))
CYCLE = [*range(16), *range(8)]
"""After it, the counter goes on as it has begun: prompt lookup finds the next tokens."""
OPTIONS: dict[str, Any] = {
    "n_blocks": 64, "max_context": 256, "max_running": 8, "step_tokens": 64, "prefill_chunk": 32,
    "cache_secret": (3, 5), "fixed_depth": True, "media_rows": 256,
}  # fmt: skip


def ngram(**options: Any) -> ScriptEngine:
    return media_engine("counter", drafters=["ngram"], **options)


def draft_model(**options: Any) -> TurnedEngine:
    """Returns an engine whose draft model follows the same rule; it sees no media."""
    draft = _testing.ScriptDraft(_testing.Script("counter"), n_blocks=64, max_context=256)
    given = _core.EngineOptions(**{**OPTIONS, **options})
    return TurnedEngine(_testing.ManualEngine(_testing.Script("counter", **ENCODER), given, draft=draft))


def plain(**options: Any) -> ScriptEngine:
    return media_engine("counter", **options)


DRAFTERS: dict[str, Callable[..., Any]] = {"ngram": ngram, "model": draft_model}


def generate(engine: TurnedEngine, prompt: MediaPrompt, **given: Any) -> int:
    return engine.generate(**prompt.given(), **{"max_outputs": 24, "max_draft_tokens": 4, "sampling": GREEDY, **given})


def counted(prompt: MediaPrompt, n: int) -> list[int]:
    """Returns the outputs of the counter."""
    return [(prompt.read[-1] + 1 + i) % 16 for i in range(n)]


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize(
    "pieces",
    [[CAT], [CAT, CYCLE], [CYCLE, CAT, CYCLE], [CYCLE, CAT], [CAT, CYCLE, Picture(2, (9,)), CYCLE]],
    ids=["image", "image-text", "text-image-text", "text-image", "two-images"],
)
def test_med_23_s3_s4_drafts_follow_a_picture_and_change_no_token(kind: str, pieces: list[Any]) -> None:
    engine = DRAFTERS[kind]()
    prompt = media_prompt(*pieces, [0])
    ticket = generate(engine, prompt, max_outputs=60)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == counted(prompt, 60)
    assert engine.finished(ticket).drafts.n_drafted > 0
    assert engine.finished(ticket).drafts.n_accepted > 30
    # Also of the draft model, which has fewer tokens.
    assert all(0 <= draw.n_output < 60 for draw in engine.core.draws)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_med_7_no_draft_before_text_follows_and_none_without_the_switch(kind: str) -> None:
    engine = DRAFTERS[kind](draft_with_media=False)
    prompt = media_prompt(CYCLE, CAT, CYCLE)
    ticket = generate(engine, prompt)
    text = generate(engine, media_prompt(CYCLE))
    engine.turn_until_idle()
    assert engine.tokens(ticket) == counted(prompt, 24)
    assert engine.finished(ticket).drafts.n_drafted == 0
    assert engine.core.stats().draft_skips["media"] == 23
    assert engine.finished(text).drafts.n_accepted > 0, "sequences of text alone are not touched"


def test_med_8_media_of_one_sequence_leave_the_drafts_of_others_as_they_are() -> None:
    """S6: the same outputs, guesses and cached tokens as without the four sequences with pictures."""
    prompts = [media_prompt(prompt_of(3, i), CYCLE) for i in range(4)]

    def run(engine: TurnedEngine, *, with_media: bool) -> list[tuple[Any, ...]]:
        tickets = [generate(engine, prompt, max_outputs=40) for prompt in prompts]
        if with_media:
            for seed in range(4):
                generate(engine, media_prompt(Picture(seed, (10,)), CYCLE), max_outputs=40)
        engine.turn_until_idle()
        return [
            (engine.tokens(t), vars_of(engine.finished(t).drafts), engine.started(t).n_cached_tokens) for t in tickets
        ]

    assert run(ngram(), with_media=True) == run(ngram(), with_media=False)
    outputs = [[tokens for tokens, *_ in run(draft_model(), with_media=given)] for given in (True, False)]
    assert outputs[0] == outputs[1]


def vars_of(counts: Any) -> tuple[int, int, int]:
    return counts.n_rounds, counts.n_drafted, counts.n_accepted


def test_med_23_s1_s2_an_encoder_changes_no_draft_of_text() -> None:
    found = []
    for encoder in ({"media_rows": 0}, {}):
        engine = ngram(script=encoder)
        tickets = [generate(engine, media_prompt(prompt_of(i, i), CYCLE)) for i in range(1, 5)]
        engine.turn_until_idle()
        found.append([(engine.tokens(t), vars_of(engine.finished(t).drafts)) for t in tickets])
        found[-1].append(engine.evaluated())
        assert engine.finished(tickets[0]).drafts.n_accepted > 0
    assert found[0] == found[1]


def test_med_23_the_shadow_has_the_text_after_the_last_picture() -> None:
    """No cell of a medium is in it, and it begins again when the session gets another one."""
    engine = draft_model()
    session = engine.open(sampling=GREEDY)
    pieces = [CYCLE, CAT, [1, 2, 3]], [CYCLE], [Picture(2, (9,)), [4, 5]], [[6, 7]], [[8]]
    text: list[int] = []
    for turn in pieces:
        prompt = media_prompt(*turn)
        pending = engine.step(session, prompt.tokens, media=prompt.spans, max_outputs=6, max_draft_tokens=3)
        held = engine.core.tokens(session)[: engine.core.held(session)]
        after = [i for i, token in enumerate(held) if token < 0]
        text = held[after[-1] + 1 :] if after else held
        tokens, n_held, _ = engine.core.shadow(session)
        assert tokens[: len(text)] == text[: len(tokens)]
        assert all(0 <= token < 16 for token in tokens)
        assert n_held <= len(tokens)
        assert pending == (prompt.read[-1] + 6) % 16
    assert len(text) < engine.core.held(session)


def test_med_23_s5_a_session_restarts_once_for_each_picture() -> None:
    """The first rounds after a picture guess as those of a new sequence: nothing of the time before counts."""
    for make in DRAFTERS.values():
        engine = make()
        session = engine.open(sampling=GREEDY)
        for turn in ([[*CYCLE]], [CAT, CYCLE], [CYCLE], [Picture(2, (9,)), CYCLE], [[3]]):
            prompt = media_prompt(*turn)
            ticket = engine.run(session, prompt.tokens, media=prompt.spans, max_outputs=20, max_draft_tokens=4)
            engine.turn_until_idle()
            assert engine.tokens(ticket) == counted(prompt, 20)
            assert engine.finished(ticket).drafts.n_accepted > 0


@pytest.mark.parametrize("kind", DRAFTERS)
def test_med_23_after_a_restart_a_sequence_drafts_as_a_new_one(kind: str) -> None:
    """Random histories with right and wrong guesses, cancels, cuts and forks; then a picture; then equal guesses."""
    rng = random.Random(9)
    for _ in range(12):
        engine = DRAFTERS[kind]()
        session = engine.open(sampling=GREEDY)
        for _ in range(rng.randrange(1, 5)):
            tokens = [*prompt_of(rng.randrange(1, 9), rng.randrange(4)), *CYCLE[: rng.randrange(1, 24)]]
            ticket = engine.run(session, tokens, max_outputs=rng.randrange(1, 20), max_draft_tokens=rng.randrange(5))
            for _ in range(rng.randrange(12)):
                engine.turn()
            if rng.random() < 0.3:
                engine.core.end(ticket, session)
            engine.turn_until_idle()
            if rng.random() < 0.4:
                engine.command("truncate", session, rng.randrange(engine.core.held(session) + 1))
                engine.turn_until_idle()
            if rng.random() < 0.3:
                copy = engine.sequence()
                engine.command("fork", session, copy)
                engine.turn_until_idle()
                session = copy
        held = engine.core.tokens(session)[: engine.core.held(session)]
        prompt = media_prompt(prompt_of(3), Picture(5, (8,)), CYCLE)
        given = {"max_outputs": 30, "max_draft_tokens": 4, "sampling": GREEDY}
        old = engine.run(session, prompt.tokens, media=prompt.spans, **given)
        engine.turn_until_idle()
        fresh = DRAFTERS[kind]()
        whole = media_prompt(held, prompt_of(3), Picture(5, (8,)), CYCLE)
        new = generate(fresh, whole, max_outputs=30)
        fresh.turn_until_idle()
        assert engine.tokens(old) == fresh.tokens(new) == counted(whole, 30)
        assert vars_of(engine.finished(old).drafts) == vars_of(fresh.finished(new).drafts)


def test_med_23_prompt_lookup_begins_with_an_empty_index() -> None:
    engine = ngram()
    session = engine.open(sampling=GREEDY)
    engine.step(session, CYCLE, max_outputs=8, max_draft_tokens=4)
    assert engine.core.n_indexed(session) > len(CYCLE)
    for picture, n_indexed in (([], engine.core.n_indexed(session)), ([CAT], 0)):
        prompt = media_prompt(*picture, [1, 2])
        engine.run(session, prompt.tokens, media=prompt.spans, max_outputs=1)  # it drafts nothing
        engine.turn_until_idle()
        assert min(engine.core.n_indexed(session), len(CYCLE)) == min(n_indexed, len(CYCLE))


SAMPLERS = [
    GREEDY,
    SEEDED,
    Sampler(temperature=1.0, seed=1, repetition_penalty=1.3),
    Sampler(temperature=0.7, seed=2, frequency_penalty=0.6, presence_penalty=0.4, logit_bias={3: -4.0, 9: 1.5}),
]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", DRAFTERS)
def test_med_23_s8_with_and_without_drafts_the_tokens_are_equal(kind: str, sampler: Sampler) -> None:
    outputs = []
    for engine in (plain(), DRAFTERS[kind]()):
        siblings = [engine.sequence(), engine.sequence()]
        prompt = media_prompt(CYCLE, CAT, CYCLE)
        ticket = generate(engine, prompt, max_outputs=50, sampling=sampler, siblings=siblings)
        session = engine.open(sampling=sampler)
        other = engine.run(session, prompt.tokens, media=prompt.spans, max_outputs=30, max_draft_tokens=4)
        engine.turn_until_idle()
        outputs.append([engine.tokens(ticket, stream) for stream in range(3)] + [engine.tokens(other)])
        assert [len(each) for each in outputs[-1]] == [50, 50, 50, 30]
    assert outputs[0] == outputs[1]
    read = media_prompt(CYCLE, CAT, CYCLE).read
    assert outputs[0][0] == continuation(read, 50, sampler, logits=counter_logits)


def counter_logits(tokens: Sequence[int], vocab_size: int) -> list[float]:
    row = hash_logits(tokens, vocab_size)
    row[(tokens[-1] + 1) % vocab_size] = 16.0
    return row


def test_med_23_s7_counters_add_up_over_many_outputs() -> None:
    engine = ngram(n_blocks=100, max_context=1200, fixed_depth=False)
    prompt = media_prompt(CAT, CYCLE)
    ticket = generate(engine, prompt, max_outputs=512)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == counted(prompt, 512)
    drafts, stats = engine.finished(ticket).drafts, engine.core.stats()
    assert vars_of(drafts) == vars_of(stats.drafts)
    assert drafts.n_accepted <= drafts.n_drafted <= 4 * drafts.n_rounds
    assert stats.n_decode_rows + drafts.n_accepted == 511


def test_med_23_s9_cancels_at_any_point_leave_nothing_behind() -> None:
    rng = random.Random(4)
    for make in DRAFTERS.values():
        engine = make(media_rows=128)
        for _ in range(120):
            sequences = [engine.sequence() for _ in range(3)]
            tickets = [
                generate(engine, media_prompt(prompt_of(2, i), Picture(rng.randrange(4), (20,)), CYCLE), sequence=s)
                for i, s in enumerate(sequences)
            ]
            for _ in range(rng.randrange(16)):
                engine.turn()
            for ticket, sequence in zip(tickets, sequences, strict=True):
                engine.core.end(ticket, sequence)
            engine.turn_until_idle()
            engine.assert_at_rest()
            if make is draft_model:
                assert all(engine.core.shadow(sequence) is None for sequence in sequences)


# With a model: the cells hold the embeddings of a sentence, so all of it must be as with its tokens.


@pytest.mark.parametrize("kind", ["nextn_qwen3", "eagle_llama", "nextn_qwen35", "assistant_of_a_dense_model"])
@pytest.mark.parametrize("chunk", [3, 64])
def test_med_25_embeddings_of_tokens_draw_what_the_tokens_draw(kind: str, chunk: int, tmp_path: Path) -> None:
    """Logits are bit-equal, with a head that guesses beside them; the head has a cell for each cell of the sequence."""
    head = HEADS[kind]
    prompt, tokens = embeddings_prompt([5, 9, 14], tuple(range(20, 37)), [7, 8], tuple(range(40, 49)), [11])
    results = []
    for given in (prompt.given(), {"tokens": tokens}):
        model = load_head(head, tmp_path, takes_media=True)
        states = {"n_state_slots": 12} if head.model.family.linear_period else {}
        options = _core.EngineOptions(
            **{**OPTIONS, **states, "n_blocks": 40, "prefill_chunk": chunk, "max_context": 128}, drafters=["head"]
        )
        engine = TurnedEngine(_testing.ManualModelEngine(model, options, encoder="embeddings"))
        ticket = engine.generate(**given, max_outputs=20, logits=True, max_draft_tokens=3, sampling=GREEDY)
        engine.turn_until_idle()
        assert engine.finished(ticket).drafts.n_drafted > 0
        rows = [e.logits.tobytes() for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)]
        results.append((engine.tokens(ticket), rows))
    assert results[0] == results[1]


def test_med_25_one_other_embedding_changes_the_logits(tmp_path: Path) -> None:
    """The control of the test above."""
    outputs = []
    for sentence in (tuple(range(20, 37)), (*range(20, 36), 1)):
        prompt, _ = embeddings_prompt([5, 9, 14], sentence, [7])
        model = load_head(HEADS["nextn_qwen3"], tmp_path, takes_media=True)
        options = _core.EngineOptions(**{**OPTIONS, "n_blocks": 40, "max_context": 128}, drafters=["head"])
        engine = TurnedEngine(_testing.ManualModelEngine(model, options, encoder="embeddings"))
        ticket = engine.generate(**prompt.given(), max_outputs=1, logits=True, sampling=GREEDY)
        engine.turn_until_idle()
        outputs.append([e.logits.tobytes() for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)])
    assert outputs[0] != outputs[1]
