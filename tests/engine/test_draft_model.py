"""A draft model guesses with the request's own random numbers, and nothing but guesses depends on it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core, _testing
from imp_service.models import demo_draft_model_path, demo_model_path
from support.engine.random_requests import random_requests, random_sampler, run_all
from support.engine.script_engine import NEVER, ScriptEngine, TurnedEngine
from support.models.tiny_models import tiny
from support.oracles.script_oracle import Sampler, continuation, prompt_of

OPTIONS: dict[str, Any] = {
    "n_blocks": 64, "max_context": 256, "max_running": 16, "step_tokens": 64, "prefill_chunk": 32,
    "cache_secret": (3, 5),
}  # fmt: skip


def drafting(
    rule: str = "hash",
    *,
    script: dict[str, Any] | None = None,
    drafter: dict[str, Any] | None = None,
    suppressed: Sequence[int] = (),
    n_blocks: int = 64,
    max_context: int = 256,
    **options: Any,
) -> TurnedEngine:
    """Returns an engine whose draft model follows the same script, but never guesses the suppressed tokens."""
    given = _testing.ScriptDraft(
        _testing.Script(rule, **(drafter or {})),
        n_blocks=n_blocks, max_context=max_context, suppressed_tokens=list(suppressed),
    )  # fmt: skip
    engine_options = _core.EngineOptions(fixed_depth=True, **{**OPTIONS, **options})
    return TurnedEngine(_testing.ManualEngine(_testing.Script(rule, **(script or {})), engine_options, draft=given))


SAMPLERS = [
    Sampler(),
    Sampler(temperature=0.5, seed=7),
    Sampler(temperature=1.0, seed=1, repetition_penalty=1.3),
    Sampler(temperature=2.0, seed=2, frequency_penalty=0.6, presence_penalty=0.4, logit_bias={3: -4.0, 9: 1.5}),
]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("n_sequences", [1, 3])
def test_spc_14_the_model_as_its_own_draft_guesses_every_token(sampler: Sampler, n_sequences: int) -> None:
    engine = drafting()
    siblings = [engine.sequence() for _ in range(n_sequences - 1)]
    ticket = engine.generate(prompt_of(9), siblings=siblings, sampling=sampler, max_outputs=80, max_draft_tokens=6)
    engine.turn_until_idle()
    for stream in range(n_sequences):
        assert engine.tokens(ticket, stream) == continuation(prompt_of(9), 80, sampler, sequence=stream)
        drafts = engine.finished(ticket, stream).drafts
        assert drafts.n_drafted == drafts.n_accepted > 60


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.5])
def test_spc_14_a_real_model_with_an_equal_draft(tmp_path: Path, temperature: float) -> None:
    """The model is the draft model with one more layer, which adds nothing to the stream."""
    draft = tiny("qwen3", n_layers=2)
    contents = tiny("qwen3", n_layers=4).contents()
    for name, tensor in contents.tensors.items():
        if name.startswith(("blk.2.", "blk.3.")) and name.endswith(("attn_output.weight", "ffn_down.weight")):
            tensor.values = 0 * tensor.values
    model = _core.Model.load(
        _core.open_model_file(contents.write(tmp_path / "model.gguf")),
        draft=_core.open_model_file(draft.write(tmp_path / "draft.gguf")), threads=2, kv_bytes=1 << 20,
    )  # fmt: skip
    engine = engine_of(model)
    sampling = _core.SamplingOptions(temperature=temperature, seed=3, repetition_penalty=1.2, top_p=0.9)
    ticket = engine.generate(prompt_of(9, 1, 50), sampling=sampling, max_outputs=60, max_draft_tokens=5)
    engine.turn_until_idle()
    drafts = engine.finished(ticket).drafts
    assert drafts.n_drafted == drafts.n_accepted > 40


def engine_of(model: Any, guess: Any = None, drafters: Sequence[str] = ("model",)) -> TurnedEngine:
    options = _core.EngineOptions(
        n_blocks=model.n_blocks, max_context=model.max_context, n_tokens=model.n_tokens, drafters=list(drafters),
        fixed_depth=True,
    )  # fmt: skip
    return TurnedEngine(_testing.ManualModelEngine(model, options, guess))


def share_accepted(model: Any, prompts: Sequence[Sequence[int]], guess: Any = None) -> float:
    """Returns the share of single guesses that are the model's next token, at temperature 0.8."""
    engine = engine_of(model, guess, ("model",) if guess is None else ())
    for seed, prompt in enumerate(prompts):
        sampling = _core.SamplingOptions(temperature=0.8, seed=seed)
        engine.generate(prompt, sampling=sampling, max_outputs=80, max_draft_tokens=1)
    engine.turn_until_idle()
    drafts = engine.core.stats().drafts
    assert drafts.n_drafted > 100
    return float(drafts.n_accepted / drafts.n_drafted)


@pytest.mark.long
def test_spc_14_drawn_guesses_are_right_more_often_than_greedy_ones() -> None:
    """The built-in pair at temperature 0.8: at least 5 points between guesses that are drawn and the likeliest ones."""
    demo, draft = (_core.open_model_file(path) for path in (demo_model_path(), demo_draft_model_path()))
    prompts = [[40 + i, 300 + 7 * i, 500 + i] for i in range(24)]
    coupled = share_accepted(_core.Model.load(demo, draft=draft, threads=2, kv_bytes=1 << 24), prompts)
    greedy = engine_of(_core.Model.load(draft, threads=2, kv_bytes=1 << 22), drafters=())

    def likeliest(tokens: list[int], n: int) -> list[int]:
        return greedy.complete(tokens, max_outputs=n)

    alone = _core.Model.load(demo, threads=2, kv_bytes=1 << 24)
    assert coupled >= share_accepted(alone, prompts, likeliest) + 0.05


@pytest.mark.few(2)
@pytest.mark.parametrize("ahead", [False, True], ids=["waited-for", "ahead"])
@pytest.mark.parametrize("n_blocks", [64, 7])
def test_spc_1_a_draft_model_changes_nothing_that_a_client_sees(ahead: bool, n_blocks: int) -> None:
    """Random requests in random batches, with a draft model that is often wrong, equal those without."""
    requests = random_requests(40 + ahead, 170)
    plain = run_all(ScriptEngine(max_running=8), requests, random.Random(1), [0])
    engine = drafting(suppressed=[3, 7], n_blocks=n_blocks, max_running=8, script={"ahead": ahead})
    assert run_all(engine, requests, random.Random(2), [1, 3, 16]) == plain
    drafts = engine.core.stats().drafts
    assert drafts.n_drafted > drafts.n_accepted > 0
    assert engine.core.draft_blocks[0] == 0  # no block is left of a sequence that has ended


SUPPRESSED = [3, 7, 11]


def rounds_since(engine: TurnedEngine, n_before: int) -> list[tuple[int, list[int]]]:
    """Returns the first position and the guesses of each round of the only sequence that ran."""
    rounds = []
    for step in engine.core.forwards[n_before:]:
        for rows in step:
            if rows.n_logits_rows > 1:
                rounds.append((rows.first_position, list(rows.tokens[1:])))
    return rounds


def fresh_guesses(prefix: list[int], n: int, sampler: Sampler, base: int) -> list[int]:
    """Returns what the draft model draws after a prefix that it has never seen."""
    engine = ScriptEngine(suppressed_tokens=SUPPRESSED)
    session = engine.open(sampling=sampler)
    ticket = engine.run(session, prefix, base=base, max_outputs=n)
    engine.turn_until_idle()
    return engine.tokens(ticket)


@pytest.mark.parametrize("n_blocks", [64, 5])
@pytest.mark.parametrize("seed", range(6))
def test_spc_15_guesses_are_those_of_a_fresh_draft_after_any_history(seed: int, n_blocks: int) -> None:
    """Sessions that run, are cut, truncated and forked: each guess equals that of a draft without a history."""
    rng = random.Random(seed)
    engine = drafting(suppressed=SUPPRESSED, n_blocks=n_blocks, drafter={"block_tokens": 16})
    samplers = {engine.open(sampling=(sampler := random_sampler(rng))): sampler}
    engine.turn_until_idle()
    n_checked = 0
    for _ in range(25):
        session = rng.choice(list(samplers))
        held = engine.core.held(session)
        kind = rng.choice(["run", "run", "cut", "truncate", "fork", "forget"])
        if kind == "truncate" and held > 0:
            engine.command("truncate", session, rng.randrange(held + 1))
        elif kind == "fork" and held > 0 and len(samplers) < 4:
            copy = engine.sequence()
            engine.command("fork", session, copy, position=rng.choice([None, rng.randrange(held + 1)]))
            samplers[copy] = samplers[session]
        elif kind == "forget":
            engine.core.forget_shadow(session)
        elif held < 160:
            tokens = prompt_of(rng.randrange(1, 40), rng.randrange(9)) if held == 0 or rng.random() < 0.5 else []
            n_before = len(engine.core.forwards)
            ticket = engine.run(session, tokens, resume=not tokens, max_outputs=14, max_draft_tokens=4)
            engine.turn_until_idle()
            whole, base = engine.core.tokens(session), engine.core.base(session)
            for first, guesses in rounds_since(engine, n_before):
                assert guesses == fresh_guesses(whole[: first + 1], len(guesses), samplers[session], base)
                n_checked += 1
            if kind == "cut":
                engine.core.end(ticket, session, "stop", n_outputs=rng.randrange(14))
        engine.turn_until_idle()
    assert n_checked > (10 if n_blocks == 64 else 0)


def test_spc_15_a_preempted_sequence_finds_its_shadow_again() -> None:
    engine = drafting(suppressed=SUPPRESSED)
    sequence = engine.sequence()
    sampler = Sampler(temperature=0.9, seed=5)
    ticket = engine.generate(prompt_of(30), sequence=sequence, sampling=sampler, max_outputs=60, max_draft_tokens=4)
    while len(engine.tokens(ticket)) < 20:
        engine.turn()
    n_before = len(engine.core.draft_forwards)
    assert engine.core.preempt(sequence)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt_of(30), 60, sampler)
    assert all(len(rows.tokens) <= 6 for step in engine.core.draft_forwards[n_before:] for rows in step)


def test_spc_15_a_long_prompt_is_evaluated_in_chunks_before_the_first_guess() -> None:
    """Without a clock, the prompt is read in chunks of 16 rows, one for each step of the model."""
    engine = drafting(n_blocks=64)
    ticket = engine.generate(prompt_of(60), max_outputs=40, max_draft_tokens=4)
    engine.turn_until_idle()
    sizes = [len(step[0].tokens) for step in engine.core.draft_forwards]
    assert sizes[:3] == [16, 16, 16]
    assert max(sizes) <= 17
    first_round = next(i for i, step in enumerate(engine.core.forwards) if step[0].n_logits_rows > 1)
    assert first_round >= 4
    assert engine.tokens(ticket) == continuation(prompt_of(60), 40)


def test_spc_15_prompts_are_found_again_in_the_prefix_cache_of_the_draft() -> None:
    engine = drafting()
    n_rows = []
    for _ in range(2):
        n_before = len(engine.core.draft_forwards)
        engine.complete(prompt_of(60), max_outputs=20, max_draft_tokens=4)
        n_rows.append(sum(len(step[0].tokens) for step in engine.core.draft_forwards[n_before:]))
    assert n_rows[1] <= n_rows[0] - 32
    engine.command("flush")
    engine.turn_until_idle()
    assert engine.core.draft_blocks == (0, 0, 64)


def test_spc_15_blocks_go_to_those_who_draft() -> None:
    """A pool for one sequence: while one is paused, another takes its blocks after some rounds, and gives them back."""
    engine = drafting(n_blocks=6)
    first, second = engine.sequence(), engine.sequence()
    tickets = [
        engine.generate(prompt_of(60), sequence=first, max_outputs=120, max_draft_tokens=2),
        engine.generate(prompt_of(60, 1), sequence=second, max_outputs=150, max_draft_tokens=2),
    ]
    while len(engine.tokens(tickets[0])) < 12:
        engine.turn()
    held = [engine.core.shadow(sequence) for sequence in (first, second)]
    assert held[0] is not None and len(held[0][2]) > 0
    engine.core.pause(tickets[0], first, paused=True)
    while len(engine.tokens(tickets[1])) < 100:
        engine.turn()
    assert engine.core.shadow(first)[2] == [] and len(engine.core.shadow(second)[2]) > 0
    engine.core.pause(tickets[0], first, paused=False)
    engine.turn_until_idle()
    assert [engine.tokens(t) for t in tickets] == [
        continuation(prompt_of(60), 120),
        continuation(prompt_of(60, 1), 150),
    ]


def test_spc_11_guesses_stop_at_the_context_of_the_draft() -> None:
    engine = drafting(max_context=40)
    ticket = engine.generate(prompt_of(20), max_outputs=60, max_draft_tokens=8)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt_of(20), 60)
    last = [rows.first_position + len(rows.tokens) for step in engine.core.draft_forwards for rows in step]
    assert max(last) == 40
    rounds = [first + len(guesses) for first, guesses in rounds_since(engine, 0)]
    assert 38 <= max(rounds) <= 40


def test_spc_8_a_failed_step_of_the_draft_costs_its_guesses() -> None:
    engine = drafting(drafter={"failing": [2, 9]})
    tickets = [engine.generate(prompt_of(9, i), max_outputs=40, max_draft_tokens=4) for i in range(3)]
    engine.turn_until_idle()
    assert [engine.tokens(t) for t in tickets] == [continuation(prompt_of(9, i), 40) for i in range(3)]
    assert not engine.core.draft_is_off
    assert engine.core.stats().drafts.n_accepted > 60


@pytest.mark.parametrize("fault", ["failing", "nan"])
def test_spc_8_a_draft_that_fails_three_times_in_a_row_is_off(fault: str) -> None:
    broken = {"failing": list(range(4, 300))} if fault == "failing" else {"nan_token": 5}
    engine = drafting(drafter=broken)
    ticket = engine.generate([5, 2, 9], max_outputs=60, max_draft_tokens=4)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation([5, 2, 9], 60)
    assert engine.core.draft_is_off
    n_evaluated = len(engine.core.draft_forwards)
    engine.complete(prompt_of(9), max_outputs=20, max_draft_tokens=4)
    assert len(engine.core.draft_forwards) == n_evaluated


def test_spc_8_a_device_that_breaks_in_a_draft_ends_the_engine() -> None:
    engine = drafting(drafter={"faulting_token": 5})
    engine.generate([2, 5, 9], max_outputs=60, max_draft_tokens=4)
    with pytest.raises(_core.DeviceError, match="DEVICE_FAULT"):
        engine.turn_until_idle(NEVER)


def test_spc_16_a_token_that_the_draft_lacks_ends_its_guesses() -> None:
    """The draft's vocabulary is shorter: a sequence with one of the other tokens has no guesses, and a bias none."""
    engine = drafting(drafter={"vocab_size": 14})
    ticket = engine.generate([1, 2, 3], max_outputs=30, max_draft_tokens=4)
    engine.turn_until_idle()
    outputs = engine.tokens(ticket)
    assert outputs == continuation([1, 2, 3], 30)
    beyond = next(i for i, token in enumerate(outputs) if token >= 14)
    assert all(first <= 3 + beyond for first, _ in rounds_since(engine, 0))
    n_before = len(engine.core.draft_forwards)
    engine.complete([1, 2, 3], sampling=Sampler(logit_bias={15: 2.0}), max_outputs=10, max_draft_tokens=4)
    assert len(engine.core.draft_forwards) == n_before


def test_spc_16_ids_beyond_the_models_are_never_guessed() -> None:
    engine = drafting(drafter={"vocab_size": 20}, suppressed=range(16, 20))
    for seed in range(5):
        sampler = Sampler(temperature=3.0, seed=seed)
        assert engine.complete([1, 2], sampling=sampler, max_outputs=50, max_draft_tokens=6) == continuation(
            [1, 2], 50, sampler
        )
    guessed = {token for _, guesses in rounds_since(engine, 0) for token in guesses}
    assert guessed and max(guessed) < 16


@pytest.mark.parametrize("seed", range(4))
def test_spc_19_forgetting_a_sequence_leaves_nothing_of_it(seed: int) -> None:
    """History; forget; rounds: the same guesses as of an engine without that history. Forgetting twice is once."""
    rng = random.Random(seed)
    engine = drafting(suppressed=SUPPRESSED, prefix_cache=False)
    session = engine.open(sampling=Sampler(temperature=0.8, seed=seed))
    for _ in range(rng.randrange(1, 6)):
        engine.step(session, prompt_of(rng.randrange(1, 20), rng.randrange(9)), max_outputs=7, max_draft_tokens=3)
    engine.core.forget_shadow(session)
    engine.core.forget_shadow(session)
    assert engine.core.shadow(session) is None
    assert engine.core.draft_blocks[0] == 0
    whole = engine.core.tokens(session)
    n_before = len(engine.core.forwards)
    engine.step(session, max_outputs=30, max_draft_tokens=3)
    fresh = drafting(suppressed=SUPPRESSED, prefix_cache=False)
    other = fresh.open(sampling=Sampler(temperature=0.8, seed=seed))
    fresh.run(other, whole, base=engine.core.base(session), max_outputs=30, max_draft_tokens=3)
    fresh.turn_until_idle()
    assert fresh.core.tokens(other) == engine.core.tokens(session)
    assert rounds_since(fresh, 0) == rounds_since(engine, n_before)


def test_spc_19_forgetting_without_a_shadow_does_nothing() -> None:
    engine = drafting()
    session = engine.open()
    engine.turn_until_idle()
    engine.core.forget_shadow(session)
    assert engine.complete(prompt_of(9), max_outputs=20, max_draft_tokens=3) == continuation(prompt_of(9), 20)


def test_spc_28_a_run_without_guesses_evaluates_no_draft() -> None:
    engine = drafting()
    engine.complete(prompt_of(9), max_outputs=20, max_draft_tokens=0)
    engine.complete(prompt_of(9), max_outputs=1, max_draft_tokens=4)
    assert engine.core.draft_forwards == []
