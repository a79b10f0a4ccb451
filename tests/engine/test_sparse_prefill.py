"""Prompts of which only a part is evaluated: their positions and draws, their failures, and what they leave behind."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from imp_service import _core
from support.engine.script_engine import Failed, ScriptEngine
from support.engine.sparse_engine import OPTIONS, SparseEngine, expected, kept_of
from support.oracles.script_oracle import Sampler, continuation, prompt_of
from support.oracles.sparse_oracle import GREEDY

PROMPT = prompt_of(300, 3)
SAMPLERS = [
    Sampler(),
    Sampler(temperature=0.8, seed=4),
    Sampler(temperature=0.7, seed=9, repetition_penalty=1.4, logit_bias={3: -2.0}),
    Sampler(temperature=1.2, seed=2, frequency_penalty=0.7, presence_penalty=0.3),
]
DENSE_OPTIONS = {name: value for name, value in OPTIONS.items() if not name.startswith("sparse")}


def dense_outputs(prompt: list[int], n: int, sampler: Sampler = GREEDY) -> list[int]:
    return continuation(prompt, n, sampler)


def model_rows(engine: SparseEngine) -> list[tuple[int, int]]:
    """Returns (position, token) of every row that the model evaluated, in order."""
    return [
        (position, token)
        for step in engine.core.forwards
        for rows in step
        for position, token in zip(rows.positions, rows.tokens, strict=True)
    ]


@pytest.mark.parametrize("state", [False, True])
def test_spc_42_spc_48_the_model_evaluates_the_chosen_tokens_at_their_positions(state: bool) -> None:
    engine = SparseEngine(state=state)
    ticket = engine.ask(PROMPT, max_outputs=5)
    engine.turn_until_idle()
    kept = kept_of(PROMPT)
    outputs = engine.tokens(ticket)
    assert 90 <= len(kept) < 150
    assert engine.report(ticket) == (True, "", 300, len(kept))
    rows = [*((at, PROMPT[at]) for at in kept), *((300 + i, token) for i, token in enumerate(outputs[:4]))]
    assert model_rows(engine) == rows
    assert outputs == expected(PROMPT, 5)
    assert engine.started(ticket).n_tokens == 300
    assert outputs != dense_outputs(PROMPT, 5)
    engine.assert_nothing_left()


@pytest.mark.parametrize("window", [1, 50, 1000])
def test_spp_6_the_window_of_each_row_begins_at_the_first_kept_token_in_it(window: int) -> None:
    """Of a dense prefix, kept tokens and outputs; sequences without a gap state nothing."""
    engine = SparseEngine(script={"window": window})
    engine.complete(PROMPT[:64], max_outputs=1)
    assert not any(rows.starts for step in engine.core.forwards for rows in step)
    longer = PROMPT[:64] + prompt_of(200, 8)
    ticket = engine.ask(longer, max_outputs=40)
    n_before = len(engine.core.forwards)
    engine.turn_until_idle()
    positions = [*kept_of(longer, n_cached=64), *range(264, 264 + 40)]
    rows = [each for step in engine.core.forwards[n_before:] for each in step]
    assert sum(len(each.tokens) for each in rows) == len(positions) - 64 - 1
    for each in rows:
        assert each.positions == positions[each.first_position : each.first_position + len(each.tokens)]
        seen = [sum(at <= own - window for at in positions) for own in each.positions]
        assert each.starts == seen
    assert engine.tokens(ticket) == expected(longer, 40, n_cached=64)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(("n_sequences", "state"), [(1, False), (3, False), (3, True)])
def test_spc_43_spc_48_draws_see_the_whole_prompt(sampler: Sampler, n_sequences: int, state: bool) -> None:
    """Penalties count the tokens that were left out, and random numbers go by the position of the whole prompt."""
    engine = SparseEngine(state=state)
    siblings = [engine.sequence() for _ in range(n_sequences - 1)]
    ticket = engine.ask(PROMPT, siblings=siblings, sampling=sampler, max_outputs=40)
    engine.turn_until_idle()
    for stream in range(n_sequences):
        assert engine.tokens(ticket, stream) == expected(PROMPT, 40, sampler, sequence=stream)
        assert engine.finished(ticket, stream).position == 339
    engine.assert_nothing_left()


def test_spc_43_a_penalty_counts_a_token_that_is_left_out_everywhere() -> None:
    """The id 15 is in a chunk that is skipped, and nowhere else."""
    prompt = [token % 15 for token in PROMPT]
    skipped = next(at for at in range(32, 260) if at not in kept_of(prompt))
    prompt[skipped] = 15
    kept = kept_of(prompt)
    assert 15 not in {prompt[at] for at in kept}
    sampler = Sampler(repetition_penalty=8.0)
    outputs = {}
    for name, tokens in (("with", prompt), ("without", [token % 15 for token in prompt])):
        engine = SparseEngine()
        ticket = engine.ask(tokens, sampling=sampler, max_outputs=12)
        engine.turn_until_idle()
        outputs[name] = engine.tokens(ticket)
        assert outputs[name] == expected(tokens, 12, sampler)
    assert outputs["with"] != outputs["without"]


def test_spc_43_positions_and_the_context_are_those_of_the_whole_prompt() -> None:
    engine = SparseEngine(max_context=320)
    ticket = engine.ask(PROMPT, max_outputs=-1)
    engine.turn_until_idle()
    tokens = [e for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)]
    assert [e.position for e in tokens] == list(range(300, 321))
    finished = engine.finished(ticket)
    assert (finished.reason, finished.n_outputs, finished.position) == ("context_full", 21, 320)
    plain = ScriptEngine(**{**DENSE_OPTIONS, "max_context": 320})
    dense = plain.generate(PROMPT, max_outputs=-1)
    plain.turn_until_idle()
    assert (plain.finished(dense).n_outputs, plain.finished(dense).position) == (21, 320)


def test_spc_43_a_session_refuses_by_name() -> None:
    engine = SparseEngine()
    session = engine.open()
    engine.turn()
    ticket = engine.run(session, PROMPT, sparse_policy="sparse", sparse_keep=3000)
    engine.turn_until_idle()
    with pytest.raises(Failed, match="sparse_prefill: a session keeps every token") as caught:
        engine.finished(ticket)
    assert caught.value.reason == "FIELD_INVALID"
    assert engine.step(session, PROMPT[:40]) == dense_outputs(PROMPT[:40], 1)[0]


def test_spc_43_a_stop_string_cuts_a_sparse_generation() -> None:
    engine = SparseEngine()
    sequence = engine.sequence()
    ticket = engine.ask(PROMPT, sequence=sequence, max_outputs=40)
    while len(engine.tokens(ticket)) < 9:
        engine.turn()
    engine.core.end(ticket, sequence, "stop", n_outputs=4)
    engine.turn_until_idle()
    finished = engine.finished(ticket)
    assert (finished.reason, finished.n_outputs, finished.position) == ("stop", 4, 303)
    engine.assert_nothing_left()


@pytest.mark.parametrize(
    ("given", "options", "reason"),
    [
        ({"policy": "dense"}, {}, "requested"),
        ({"keep": 10000}, {}, "keep_all"),
        ({"scores": True}, {}, "prompt_scores"),
        ({}, {"sparse_max_tokens": 299}, "over_limit"),
        ({}, {"draft_context": 307}, "over_limit"),
        ({}, {"n_draft_blocks": 19}, "over_limit"),
        ({"policy": "auto"}, {"sparse_threshold": 300}, "below_threshold"),
        ({"policy": "auto"}, {"cost": 0.6}, "not_profitable"),
        ({}, {"sparse_anchors": 5}, "keep_all"),
    ],
)
def test_spc_40_a_dense_prompt_is_dense_to_the_bit_and_says_why(
    given: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    engine = SparseEngine(**options)
    ticket = engine.ask(PROMPT, sampling=SAMPLERS[2], max_outputs=20, **given)
    engine.turn_until_idle()
    is_sparse, why, _, n_selected = engine.report(ticket)
    assert (is_sparse, why, n_selected) == (False, reason, 0)
    assert engine.tokens(ticket) == dense_outputs(PROMPT, 20, SAMPLERS[2])
    assert bool(engine.core.draft_forwards) == (options.get("sparse_anchors") == 5)  # only then nothing is left out
    engine.assert_nothing_left()


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"policy": "auto"}, {"sparse_threshold": 299}),
        ({"policy": "auto"}, {"cost": 0.4}),
        ({}, {"cost": 5.0}),
        ({}, {"sparse_max_tokens": 300}),
        ({}, {"draft_context": 308, "n_draft_blocks": 20}),
    ],
)
def test_spc_40_any_other_prompt_is_sparse(given: dict[str, Any], options: dict[str, Any]) -> None:
    engine = SparseEngine(**options)
    ticket = engine.ask(PROMPT, max_outputs=5, **given)
    engine.turn_until_idle()
    assert engine.report(ticket)[:2] == (True, "")
    assert engine.tokens(ticket) == expected(PROMPT, 5)


def test_spc_40_nothing_is_reported_to_whom_nobody_asked() -> None:
    engine = SparseEngine()
    ticket = engine.ask(PROMPT, policy=None, max_outputs=3)
    engine.turn_until_idle()
    assert engine.started(ticket).sparse is None
    assert engine.tokens(ticket) == dense_outputs(PROMPT, 3)
    assert not engine.core.draft_forwards


def test_spc_40_an_engine_without_it_refuses() -> None:
    engine = ScriptEngine(**DENSE_OPTIONS)
    with pytest.raises(_core.InvalidArgument, match="sparse_prefill"):
        engine.generate(PROMPT, sparse_policy="auto")
    with pytest.raises(_core.InvalidArgument, match=r"sparse_prefill.keep: 0, expected 1"):
        SparseEngine().ask(PROMPT, keep=0)
    with pytest.raises(_core.InvalidArgument, match="sparse_prefill: 1, expected 0: there is no draft model"):
        ScriptEngine(**DENSE_OPTIONS, sparse_prefill=True)


def test_spc_41_chunks_with_control_tokens_and_both_ends_stay() -> None:
    prompt = [token % 14 for token in PROMPT]
    prompt[140] = 15
    engine = SparseEngine(control_tokens=[14, 15])
    ticket = engine.ask(prompt, max_outputs=4)
    engine.turn_until_idle()
    kept = kept_of(prompt, control=[14, 15])
    assert {0, 140, 128, 159, 299} <= set(kept)
    assert engine.tokens(ticket) == expected(prompt, 4, control=[14, 15])


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("rows", [{"max_rows": 16}, {"max_rows": 512}])
def test_spc_41_spc_48_the_choice_does_not_depend_on_the_chunks_of_scoring(rows: dict[str, int], state: bool) -> None:
    """Nor on a recurrent state of the draft model."""
    engine = SparseEngine(draft={**rows, "state": state})
    ticket = engine.ask(PROMPT, max_outputs=4)
    engine.turn_until_idle()
    sizes = [len(step[0].tokens) for step in engine.core.draft_forwards]
    assert sum(sizes) == 300 + 8
    assert max(sizes) <= rows["max_rows"]
    assert engine.tokens(ticket) == expected(PROMPT, 4)


def test_spc_40_a_cached_prefix_is_dense_and_shared() -> None:
    """Only what the cache lacks is scored; the rest is found there."""
    engine = SparseEngine()
    engine.complete(PROMPT[:64], max_outputs=1)
    longer = PROMPT[:64] + prompt_of(200, 8)
    ticket = engine.ask(longer, max_outputs=6)
    engine.turn_until_idle()
    started = engine.started(ticket)
    assert (started.n_tokens, started.n_cached_tokens) == (264, 64)
    assert engine.report(ticket)[2] == 200
    assert engine.tokens(ticket) == expected(longer, 6, n_cached=64)
    again = engine.ask(longer, max_outputs=6, bypass_prefix=True)
    engine.turn_until_idle()
    assert engine.tokens(again) == expected(longer, 6)


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("is_shortened", [False, True], ids=["the same prompt", "its chosen tokens"])
def test_spc_45_spc_48_no_other_request_finds_the_blocks_of_a_sparse_one(is_shortened: bool, state: bool) -> None:
    """Neither the same prompt, nor a dense prompt of just the chosen tokens, finds more than the dense prefix."""
    engine = SparseEngine(state=state)
    engine.complete(PROMPT[:32], max_outputs=1)
    kept = [PROMPT[at] for at in kept_of(PROMPT, n_cached=32)]
    ticket = engine.ask(PROMPT, max_outputs=40)
    engine.turn_until_idle()
    assert engine.report(ticket)[0]
    prompt = [*kept, *engine.tokens(ticket)] if is_shortened else PROMPT
    dense = engine.generate(prompt, max_outputs=10)
    engine.turn_until_idle()
    assert engine.started(dense).n_cached_tokens == 32
    assert engine.tokens(dense) == dense_outputs(prompt, 10)


def test_spc_48_no_snapshot_is_taken_behind_the_dense_prefix() -> None:
    """The state there is that of a shorter text. A dense run takes a snapshot in each block."""
    engine = SparseEngine(state=True)
    engine.complete(PROMPT[:32], max_outputs=1)
    most = {}
    for policy in ("sparse", "dense"):
        before = engine.core.states()[1]
        engine.ask(PROMPT, policy, max_outputs=30)
        most[policy] = 0
        while engine.turn():
            most[policy] = max(most[policy], engine.core.states()[1] - before)
    assert most["sparse"] == 0
    assert most["dense"] >= 16


@pytest.mark.parametrize("state", [False, True])
def test_spc_46_spc_48_a_preempted_run_does_not_take_the_blocks_of_its_shortened_text(state: bool) -> None:
    """A dense prompt that spells the chosen tokens leaves blocks that are not the sparse sequence's."""
    kept = [PROMPT[at] for at in kept_of(PROMPT)]
    engine = SparseEngine(state=state)
    sequence = engine.sequence()
    ticket = engine.ask(PROMPT, sequence=sequence, max_outputs=100)
    while len(engine.tokens(ticket)) < 5:
        engine.turn()
    dense = engine.generate(kept, max_outputs=1)
    while not any(isinstance(e, _core.FinishedEvent) for e in engine.events[dense]):
        engine.turn()
    assert engine.core.preempt(sequence)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == expected(PROMPT, 100)


# What happens, and the events that it must leave: dense with its reason, or the error.
BEFORE: dict[str, dict[str, Any]] = {
    "the draft fails at once": {"draft": {"failing": [0]}},
    "the draft fails at a later chunk": {"draft": {"failing": [1], "max_rows": 100}},
    "the draft fails at a query": {"draft": {"failing": [4]}},
    "the draft is not finite": {"draft": {"nan_token": 3}},
    "no layer of the draft sees the prompt": {"draft": {"watched_layers": 0}},
    "the draft lacks a token": {"draft": {"vocab_size": 15}},
    "the model fails at the first chunk": {"script": {"failing": [0]}},
    "the model fails at a later chunk": {"script": {"failing": [2]}},
}


@pytest.mark.parametrize(("n_sequences", "state"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize("fault", BEFORE)
def test_spc_44_spc_48_a_failure_before_the_first_token_is_dense(fault: str, n_sequences: int, state: bool) -> None:
    engine = SparseEngine(**BEFORE[fault], state=state)
    siblings = [engine.sequence() for _ in range(n_sequences - 1)]
    ticket = engine.ask(PROMPT, sampling=SAMPLERS[1], siblings=siblings, max_outputs=9)
    engine.turn_until_idle()
    assert engine.report(ticket)[:2] == (False, "failed")
    for stream in range(n_sequences):
        assert engine.tokens(ticket, stream) == continuation(PROMPT, 9, SAMPLERS[1], sequence=stream)
    assert engine.finished(ticket).n_preemptions == 0
    engine.assert_nothing_left()


def test_spc_44_logits_that_are_not_finite_before_the_first_token_are_dense() -> None:
    """A poisoned block: the model's first logits are NaN, and the whole prompt is evaluated in other blocks."""
    engine = SparseEngine()
    sequence = engine.sequence()
    ticket = engine.ask(PROMPT, sequence=sequence, max_outputs=6)
    while not engine.core.forwards:
        engine.turn()
    engine.core.poison(engine.core.blocks(sequence)[0])
    engine.turn_until_idle()
    assert engine.report(ticket)[:2] == (False, "failed")
    assert engine.tokens(ticket) == dense_outputs(PROMPT, 6)
    engine.assert_nothing_left()


def test_spc_44_a_failure_after_the_first_token_is_the_error() -> None:
    engine = SparseEngine()
    ticket = engine.ask(PROMPT, max_outputs=9)
    while len(engine.tokens(ticket)) < 3:
        engine.turn()
    script = engine.core.script
    script.failing = [engine.core.n_forwards]
    engine.core.script = script
    engine.turn_until_idle()
    with pytest.raises(Failed, match="the script makes forward pass"):
        engine.finished(ticket)
    assert engine.tokens(ticket) == expected(PROMPT, 3)
    engine.assert_nothing_left()


def test_spc_44_if_the_whole_prompt_fails_too_that_is_the_error() -> None:
    engine = SparseEngine(script={"failing_token": PROMPT[0]})
    ticket = engine.ask(PROMPT, max_outputs=9)
    engine.turn_until_idle()
    with pytest.raises(Failed, match="the script makes this token fail"):
        engine.finished(ticket)
    engine.assert_nothing_left()


@pytest.mark.parametrize("n_turns", range(1, 26))
def test_spc_44_spc_48_a_cancel_in_any_phase_frees_both_caches_within_a_turn(n_turns: int) -> None:
    """Of models without a state in every second case, and with one in the others."""
    state = n_turns % 2 == 1
    engine = SparseEngine(draft={"max_rows": 64, "state": state}, state=state, prefix_cache=False)
    sequence = engine.sequence()
    ticket = engine.ask(PROMPT, sequence=sequence, max_outputs=30)
    for _ in range(n_turns):
        engine.turn()
    engine.core.end(ticket, sequence, "cancelled")
    engine.turn()
    assert engine.finished(ticket).reason == "cancelled"
    engine.assert_nothing_left()
    assert not engine.turn()
    assert engine.complete(PROMPT[:50], max_outputs=3) == dense_outputs(PROMPT[:50], 3)


def test_spc_44_others_go_on_while_a_prompt_is_scored_and_a_paused_one_waits() -> None:
    """Scoring takes one step of the draft model in each turn, in small steps while another run generates."""
    engine = SparseEngine(draft={"max_rows": 512}, cost=0.5)
    company = prompt_of(20, 77)
    other = engine.generate(company, max_outputs=60)
    while len(engine.tokens(other)) < 3:
        engine.turn()
    sequence = engine.sequence()
    ticket = engine.ask(PROMPT, sequence=sequence, max_outputs=5)
    n_before, n_turns = len(engine.tokens(other)), 0
    while not any(isinstance(e, _core.StartedEvent) for e in engine.events[ticket]):
        engine.turn()
        n_turns += 1
        if n_turns == 3:
            engine.core.pause(ticket, sequence, True)
            n_steps = len(engine.core.draft_forwards)
            for _ in range(5):
                engine.turn()
            assert len(engine.core.draft_forwards) == n_steps
            engine.core.pause(ticket, sequence, False)
    assert len(engine.tokens(other)) - n_before >= n_turns - 1
    sizes = [len(step[0].tokens) for step in engine.core.draft_forwards]
    assert max(sizes) == 48  # the 24 rows that a prompt of the model may take, at half the cost
    engine.turn_until_idle()
    assert engine.tokens(ticket) == expected(PROMPT, 5)
    assert engine.tokens(other) == dense_outputs(company, 60)


@pytest.mark.long
@pytest.mark.parametrize("state", [False, True])
def test_spc_45_spc_48_a_thousand_sparse_requests_leave_no_block(state: bool) -> None:
    engine = SparseEngine(draft={"state": state}, state=state)
    rng = random.Random(5)
    for i in range(1000):
        prompt = prompt_of(rng.randrange(100, 260), i)
        sequence = engine.sequence()
        ticket = engine.ask(prompt, sequence=sequence, max_outputs=rng.randrange(1, 4))
        if i % 3 == 0:
            for _ in range(rng.randrange(20)):
                engine.turn()
            engine.core.end(ticket, sequence, "cancelled")
        engine.turn_until_idle()
        engine.assert_nothing_left()
        engine.events.clear()
        engine.all_events.clear()
    assert engine.complete(PROMPT, max_outputs=8) == dense_outputs(PROMPT, 8)


@pytest.mark.few(4)
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("preempts", [False, True])
@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_spc_46_spc_48_in_company_each_run_is_as_alone(seed: int, drafts: bool, preempts: bool, state: bool) -> None:
    """Sparse and dense prompts together, guessing and preempted."""
    rng = random.Random(seed)
    engine = SparseEngine(
        n_blocks=300, max_context=512, drafts=drafts, fixed_depth=True, n_draft_blocks=150, prefix_cache=False,
        state=state,
    )  # fmt: skip
    sequences = []
    asked: list[tuple[int, list[int], Sampler, int, bool, int]] = []
    for i in range(12):
        prompt = prompt_of(rng.randrange(120, 300), 50 * seed + i)
        sampler, n, is_sparse = rng.choice(SAMPLERS), rng.randrange(1, 60), rng.random() < 0.6
        siblings = [engine.sequence() for _ in range(rng.choice([0, 0, 1]))]
        sequences.append(engine.sequence())
        ticket = engine.ask(
            prompt, "sparse" if is_sparse else None, sequence=sequences[-1], sampling=sampler, max_outputs=n,
            siblings=siblings,
            max_draft_tokens=rng.choice([0, 3, 8]) if drafts else 0,
        )  # fmt: skip
        asked.append((ticket, prompt, sampler, n, is_sparse, 1 + len(siblings)))
        for _ in range(rng.randrange(25)):
            engine.turn()
            with suppress(KeyError):  # it has ended
                if preempts and rng.random() < 0.3:
                    engine.core.preempt(rng.choice(sequences))
    engine.turn_until_idle()
    for ticket, prompt, sampler, n, is_sparse, n_streams in asked:
        for stream in range(n_streams):
            whole = expected(prompt, n, sampler, sequence=stream)
            dense = continuation(prompt, n, sampler, sequence=stream)
            assert engine.tokens(ticket, stream) == (whole if is_sparse else dense)
    assert (engine.core.stats().n_preemptions > 3) == preempts
    if drafts:
        assert engine.core.stats().drafts.n_accepted > 0
    engine.assert_nothing_left()


def test_spc_46_guesses_look_up_the_whole_prompt() -> None:
    """The draft model's shadow and prompt lookup have the tokens that were left out."""
    engine = SparseEngine(drafts=True, drafters=["ngram"], fixed_depth=True)
    sequence = engine.sequence()
    ticket = engine.ask(PROMPT, sequence=sequence, max_outputs=30, max_draft_tokens=4)
    while len(engine.tokens(ticket)) < 10:
        engine.turn()
    history = engine.core.history(sequence)
    assert history[:300] == PROMPT
    tokens, held, _ = engine.core.shadow(sequence)
    assert tokens[: len(history)][:300] == PROMPT
    assert held >= 300
    # The prompt was evaluated once, to be scored.
    assert sum(len(rows.tokens) for step in engine.core.draft_forwards for rows in step) < 300 + 8 + 100
    engine.turn_until_idle()
    assert engine.tokens(ticket) == expected(PROMPT, 30)


def test_spc_46_a_sparse_sequence_decodes_in_the_steps_of_a_dense_one() -> None:
    """One step and one row for each output, over the chosen cells alone."""
    engine = SparseEngine()
    sequence = engine.sequence()
    ticket = engine.ask(PROMPT, sequence=sequence, max_outputs=21)
    while not engine.tokens(ticket):
        engine.turn()
    n_before, n_kept = len(engine.core.forwards), len(kept_of(PROMPT))
    assert engine.core.held(sequence) == n_kept
    assert len(engine.core.blocks(sequence)) <= -(-n_kept // 16) + 1
    engine.turn_until_idle()
    steps = engine.core.forwards[n_before:]
    assert [[(rows.first_position, len(rows.tokens)) for rows in step] for step in steps] == [
        [(n_kept + i, 1)] for i in range(20)
    ]
