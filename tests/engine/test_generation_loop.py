"""What a run evaluates, draws and leaves behind: the state after each call, counted work, and every ending."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from imp_service import _core
from support.engine.script_engine import Failed, ScriptEngine
from support.oracles.script_oracle import Sampler, continuation, hash_logits, prompt_of

pytestmark = pytest.mark.usefixtures("ahead")
ROOT = Path(__file__).resolve().parents[2]
SEEDED = Sampler(temperature=0.8, seed=7)
PENALIZED = Sampler(temperature=1.1, seed=3, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2)


def callers(pattern: str) -> list[str]:
    files = [p for room in ("engine", "model", "bindings") for p in sorted((ROOT / "csrc" / room).rglob("*.cpp"))]
    assert len(files) > 20
    return [p.name for p in files if p.parent.name != "testing" for _ in re.finditer(pattern, p.read_text())]


def test_gen_1_spc_10_there_is_one_caller_of_the_sampler_and_one_of_the_forward_pass() -> None:
    assert callers(r"(?:\.|->)sample\(") == ["drawing.cpp"]
    # The trial of cache types returns figures, and no token.
    assert callers(r"(?:\.|->)forward\(") == ["step_executor.cpp", "cache_trial.cpp"]


def test_gen_2_prefill_holds_its_tokens_and_leaves_the_sample_pending() -> None:
    engine = ScriptEngine()
    session, prompt = engine.open(), prompt_of(19)
    ticket = engine.run(session, prompt, logits=True)
    engine.turn_until_idle()
    (event,) = [e for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)]
    assert event.logits.tolist() == hash_logits(prompt, 16)
    assert (event.token, event.position) == (int(np.argmax(event.logits)), 19)
    held = list(prompt)
    token = event.token
    for _ in range(10):
        assert (engine.core.held(session), engine.core.tokens(session)) == (len(held), [*held, token])
        end = engine.finished(ticket)
        assert (end.position, end.pending) == (len(held), True)
        held.append(token)
        ticket = engine.run(session)
        engine.turn_until_idle()
        (token,) = engine.tokens(ticket)
        assert token == continuation(held, 1)[0]


def test_gen_3_without_sampling_nothing_is_pending_and_the_next_logits_are_those_of_one_prefill() -> None:
    engine = ScriptEngine()
    prompt = prompt_of(21)
    rows = []
    for parts in ([prompt[:-1], prompt[-1:]], [prompt]):
        session = engine.open(bypass_prefix=True)
        for part in parts[:-1]:
            ticket = engine.run(session, part, max_outputs=0)
            engine.turn_until_idle()
            end = engine.finished(ticket)
            assert (end.position, end.pending, end.n_outputs, engine.tokens(ticket)) == (len(part), False, 0, [])
        ticket = engine.run(session, parts[-1], logits=True)
        engine.turn_until_idle()
        rows.append([e.logits.tobytes() for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)])
    assert rows[0] == rows[1]
    assert len(rows[0]) == 1


def test_gen_3_evaluation_alone_returns_the_last_row_where_asked() -> None:
    engine = ScriptEngine()
    session, prompt = engine.open(), prompt_of(9)
    ticket = engine.run(session, prompt, max_outputs=0, logits=True, n_candidates=3)
    engine.turn_until_idle()
    started = engine.started(ticket)
    row = hash_logits(prompt, 16)
    assert started.logits.tolist() == row
    assert [c.token for c in started.candidates] == sorted(range(16), key=lambda i: (-row[i], i))[:3]


@pytest.mark.parametrize("sampler", [Sampler(), SEEDED, PENALIZED], ids=["greedy", "seeded", "penalized"])
def test_gen_4_a_generation_is_a_loop_of_steps(sampler: Sampler) -> None:
    """Compares generation, hand-written steps and the oracle for 20 prompts × 32 tokens."""
    for i in range(20):
        prompt = prompt_of(3 + 2 * i, i)
        expected = continuation(prompt, 32, sampler)
        engine = ScriptEngine()
        assert engine.complete(prompt, max_outputs=32, sampling=sampler) == expected
        session = engine.open(sampling=sampler)
        outputs = [engine.step(session, prompt)]
        outputs += [engine.step(session) for _ in range(31)]
        assert outputs == expected


@pytest.mark.parametrize("n_outputs", [1, 2, 16])
def test_gen_5_work_is_counted_where_a_limit_ends(n_outputs: int) -> None:
    engine = ScriptEngine(prefill_chunk=8, prefix_cache=False)
    ticket = engine.generate(prompt_of(20), max_outputs=n_outputs, max_draft_tokens=0)
    engine.turn_until_idle()
    assert engine.finished(ticket).reason == "max_tokens"
    decode = [[(20 + g, 1)] for g in range(n_outputs - 1)]
    assert engine.evaluated() == [[(0, 8)], [(8, 8)], [(16, 4)], *decode]


def test_gen_5_txt_1_work_is_counted_where_a_stop_token_ends(ahead: bool) -> None:
    """The counter model stops after 5 outputs: all 5 are evaluated, the stop token is not reported. If steps start
    ahead, the device evaluates it too, which nobody sees, because the host decides on the stop."""
    engine = ScriptEngine("counter")
    ticket = engine.generate([2, 3, 4], max_outputs=-1, stop_tokens=[10], max_draft_tokens=0)
    engine.turn_until_idle()
    end = engine.finished(ticket)
    assert engine.tokens(ticket) == [5, 6, 7, 8, 9]
    assert (end.reason, end.stop_token, end.eos, end.n_outputs) == ("stop", 10, False, 5)
    assert (end.position, end.pending) == (8, False)
    assert engine.evaluated() == [[(0, 3)], *[[(3 + g, 1)] for g in range(5 + ahead)]]


@pytest.mark.parametrize("sampler", [Sampler(), PENALIZED], ids=["greedy", "penalized"])
def test_gen_8_a_generation_cut_anywhere_goes_on(sampler: Sampler) -> None:
    prompt = prompt_of(23)
    expected = continuation(prompt, 32, sampler)
    for cuts in ([32], [5, 9, 18], [1] * 32):
        engine = ScriptEngine()
        session = engine.open(sampling=sampler)
        outputs: list[int] = []
        for i, n in enumerate(cuts):
            ticket = engine.run(session, prompt if i == 0 else [], max_outputs=n)
            engine.turn_until_idle()
            assert engine.finished(ticket).reason == "max_tokens"
            outputs += engine.tokens(ticket)
        assert outputs == expected
    # Another engine gives the same tail from (tokens, seed, base).
    other = ScriptEngine()
    session = other.open(sampling=sampler)
    ticket = other.run(session, [*prompt, *expected[:11]], base=len(prompt), max_outputs=21)
    other.turn_until_idle()
    assert other.tokens(ticket) == expected[11:]


@pytest.mark.parametrize("n_outputs", [1, 2, 16])
def test_gen_9_txt_10_with_eos_ignored_every_output_is_delivered_once_in_order(n_outputs: int) -> None:
    """The counter passes the EOS id, which is then an ordinary output with a flag. A stop token still ends the run."""
    engine = ScriptEngine("counter")
    ticket = engine.generate([3], max_outputs=n_outputs, eos_tokens=[4, 5], ends_at_eos=False)
    engine.turn_until_idle()
    events = [e for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)]
    assert [e.token for e in events] == [(4 + g) % 16 for g in range(n_outputs)]
    assert [e.output for e in events] == list(range(n_outputs))
    assert [e.eos for e in events] == [e.token in {4, 5} for e in events]
    both = engine.generate([3], max_outputs=9, eos_tokens=[4], stop_tokens=[4], ends_at_eos=False)
    engine.turn_until_idle()
    assert (engine.finished(both).reason, engine.finished(both).stop_token, engine.tokens(both)) == ("stop", 4, [])


def test_gen_10_every_reason_is_reached_and_precedence_holds() -> None:
    engine = ScriptEngine("counter", max_context=16)

    def reason(prompt: list[int], **given: object) -> str:
        ticket = engine.generate(prompt, **given)
        engine.turn_until_idle()
        return str(engine.finished(ticket).reason)

    assert reason([1, 2], max_outputs=-1, stop_tokens=[7]) == "stop"
    assert reason([1, 2], max_outputs=3) == "max_tokens"
    assert reason([1] * 14, max_outputs=-1) == "context_full"
    # The 3rd output would be the stop token, the last allowed, and the context's last: stop, then limit, then context.
    assert reason([1] * 14, max_outputs=3, stop_tokens=[4]) == "stop"
    assert reason([1] * 14, max_outputs=3) == "max_tokens"
    for end in ("time_limit", "aborted", "cancelled"):
        sequence = engine.sequence()
        ticket = engine.generate([1, 2], sequence=sequence, max_outputs=9)
        engine.turn()
        engine.core.end(ticket, sequence, end)
        engine.turn_until_idle()
        assert engine.finished(ticket).reason == end
    engine.assert_at_rest()


def test_gen_10_a_failure_is_never_a_reason() -> None:
    engine = ScriptEngine(script={"failing": [1, 2]})  # a step with guesses is repeated without them
    ticket = engine.generate(prompt_of(5), max_outputs=4)
    engine.turn_until_idle()
    with pytest.raises(Failed, match="BUG"):
        engine.finished(ticket)
    engine.assert_at_rest()


def test_gen_11_p17_no_outputs_evaluates_the_prompt_and_caches_it() -> None:
    engine = ScriptEngine(max_context=64, script={"block_tokens": 4})
    prompt = prompt_of(13)
    ticket = engine.generate(prompt, max_outputs=0, scores=True)
    engine.turn_until_idle()
    end = engine.finished(ticket)
    assert (end.reason, end.n_outputs, engine.tokens(ticket)) == ("max_tokens", 0, [])
    assert engine.started(ticket).scores.tokens == prompt
    assert engine.core.n_sample_calls == 0
    again = engine.generate(prompt, max_outputs=1)
    engine.turn_until_idle()
    assert engine.started(again).n_cached_tokens == 12


def test_gen_13_p18_a_prompt_beyond_the_context_is_refused_before_any_work() -> None:
    engine = ScriptEngine(max_context=32)
    for n_prompt, given in [
        (33, {}),
        (33, {"max_outputs": 0, "must_fit": True}),
        (32, {"max_outputs": 2, "must_fit": True}),
        (2, {"max_outputs": 32, "must_fit": True}),
    ]:
        with pytest.raises(_core.InvalidArgument) as refusal:
            engine.generate(prompt_of(n_prompt), **given)
        assert refusal.value.reason == "CONTEXT_TOO_LONG"
        assert refusal.value.details == {"prompt_tokens": str(n_prompt), "max_context_tokens": "32"}
    engine.turn_until_idle()
    assert engine.core.n_forwards == 0
    engine.assert_at_rest()


@pytest.mark.parametrize("n_prompt", [1, 2, 31, 32])
def test_gen_13_gen_14_as_many_outputs_as_an_unlimited_request_yields_are_accepted(n_prompt: int) -> None:
    """One more is refused with a message that names the numbers. A session counts its held and its new tokens."""
    engine = ScriptEngine(max_context=32, n_blocks=4)
    n_outputs = len(engine.complete(prompt_of(n_prompt), max_outputs=-1))
    assert n_outputs == 33 - n_prompt
    assert len(engine.complete(prompt_of(n_prompt), max_outputs=n_outputs, must_fit=True)) == n_outputs
    words = f"{n_prompt} tokens leave room for {n_outputs} outputs in the context of 32, max_tokens is {n_outputs + 1}"
    with pytest.raises(_core.InvalidArgument, match=words):
        engine.complete(prompt_of(n_prompt), max_outputs=n_outputs + 1, must_fit=True)
    session = engine.open()
    engine.step(session, prompt_of(n_prompt), max_outputs=0)
    too_many = engine.run(session, resume=True, max_outputs=n_outputs + 1, must_fit=True)
    engine.turn_until_idle()
    with pytest.raises(Failed, match=words):
        engine.finished(too_many)
    ticket = engine.run(session, resume=True, max_outputs=n_outputs, must_fit=True)
    engine.turn_until_idle()
    assert len(engine.tokens(ticket)) == n_outputs


@pytest.mark.parametrize(("n_prompt", "n_outputs"), [(30, 3), (31, 2), (32, 1)])
def test_gen_14_p19_without_a_limit_the_context_fills_and_no_position_beyond_is_evaluated(
    n_prompt: int, n_outputs: int
) -> None:
    engine = ScriptEngine(max_context=32, n_blocks=2)
    ticket = engine.generate(prompt_of(n_prompt), max_outputs=-1)
    engine.turn_until_idle()
    assert engine.finished(ticket).reason == "context_full"
    assert engine.tokens(ticket) == continuation(prompt_of(n_prompt), n_outputs)
    assert max(first + n - 1 for step in engine.evaluated() for first, n in step) == 31


def test_gen_15_a_limit_that_need_not_fit_ends_with_whichever_comes_first() -> None:
    engine = ScriptEngine(max_context=32)
    for n_prompt, reason in [(20, "max_tokens"), (30, "context_full")]:
        ticket = engine.generate(prompt_of(n_prompt), max_outputs=8)
        engine.turn_until_idle()
        assert engine.finished(ticket).reason == reason


def test_gen_19_gen_16_a_consumer_that_stops_frees_the_sequence_within_one_step() -> None:
    engine = ScriptEngine()
    sequence = engine.sequence()
    ticket = engine.generate(prompt_of(20), sequence=sequence, max_outputs=100)
    while len(engine.tokens(ticket)) < 3:
        engine.turn()
    engine.core.end(ticket, sequence, n_outputs=3)
    engine.turn()
    assert engine.core.stats().blocks_live == 0
    assert engine.tokens(ticket)[:3] == continuation(prompt_of(20), 3)
    assert engine.finished(ticket).n_outputs == 3


@pytest.mark.parametrize("n_prompt", [14, 16, 17, 40])
def test_gen_20_d06_sequences_of_one_prompt_share_it_and_draw_from_their_own_streams(n_prompt: int) -> None:
    engine = ScriptEngine(prefill_chunk=16)
    prompt = prompt_of(n_prompt)
    sequences = [engine.sequence() for _ in range(4)]
    ticket = engine.generate(prompt, sequence=sequences[0], siblings=sequences[1:], sampling=SEEDED, max_outputs=20)
    for _ in range(math.ceil(n_prompt / 16) + 1):
        engine.turn()
    tables = [engine.core.blocks(sequence) for sequence in sequences]
    n_full = n_prompt // 16
    assert all(table[:n_full] == tables[0][:n_full] for table in tables)
    assert len({table[n_full] for table in tables}) == 4  # both have written since, so each has its own
    engine.turn_until_idle()
    for stream in range(4):
        assert engine.tokens(ticket, stream) == continuation(prompt, 20, SEEDED, sequence=stream)
        assert engine.finished(ticket, stream).reason == "max_tokens"
    n_prompt_rows = sum(n for step in engine.evaluated() for first, n in step if first < n_prompt)
    assert n_prompt_rows == n_prompt
    assert engine.complete(prompt, sampling=SEEDED, max_outputs=20) == engine.tokens(ticket, 0)
    engine.assert_at_rest()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 6])
def test_gen_20_r14_ending_the_siblings_frees_everything_at_once(turns: int) -> None:
    """Ends them queued, between prefill chunks and in decode: each sequence has one ending, and no block remains."""
    engine = ScriptEngine(prefill_chunk=8)
    sequences = [engine.sequence() for _ in range(8)]
    ticket = engine.generate(prompt_of(20), sequence=sequences[0], siblings=sequences[1:], max_outputs=50)
    for _ in range(turns):
        engine.turn()
    for sequence in sequences:
        engine.core.end(ticket, sequence)
    engine.turn()
    assert [engine.finished(ticket, stream).reason for stream in range(8)] == ["cancelled"] * 8
    engine.assert_at_rest()


@pytest.mark.parametrize("asked", ["logprobs", "n_candidates", "logits", "scores"])
def test_gen_25_asking_for_more_changes_no_token(asked: str) -> None:
    prompt = prompt_of(37)
    plain = ScriptEngine().complete(prompt, max_outputs=20, sampling=PENALIZED)
    more = {asked: 3 if asked == "n_candidates" else True}
    assert ScriptEngine().complete(prompt, max_outputs=20, sampling=PENALIZED, **more) == plain
    assert plain == continuation(prompt, 20, PENALIZED)


def log_softmax(row: list[float]) -> np.ndarray:
    values = np.array(row, dtype=np.float64)
    return values - values.max() - math.log(np.exp(values - values.max()).sum())


@pytest.mark.few(12)
@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("max_logits_rows", [16, 64])
def test_gen_26_prompt_scores_are_one_per_token_and_the_first_is_nan(chunk: int, max_logits_rows: int) -> None:
    engine = ScriptEngine(prefill_chunk=chunk, script={"max_logits_rows": max_logits_rows})
    prompt = prompt_of(50)
    ticket = engine.generate(prompt, max_outputs=1, scores=True, n_score_candidates=2)
    engine.turn_until_idle()
    scores = engine.started(ticket).scores
    assert scores.tokens == prompt
    assert math.isnan(scores.logprobs[0])
    assert scores.candidates[0] == []
    for p in range(1, 50):
        expected = log_softmax(hash_logits(prompt[:p], 16))
        assert scores.logprobs[p] == np.float32(expected[prompt[p]])
        best = sorted(range(16), key=lambda i: (-expected[i], i))[:2]
        assert [c.token for c in scores.candidates[p]] == best
    assert all(len(step) == 1 and step[0].n_logits_rows <= max_logits_rows for step in engine.core.forwards)


def test_gen_26_scores_do_not_read_the_cache_and_the_cache_is_filled() -> None:
    engine = ScriptEngine()
    prompt = prompt_of(40)
    first = engine.generate(prompt, max_outputs=1)
    engine.turn_until_idle()
    scored = engine.generate(prompt, max_outputs=1, scores=True)
    engine.turn_until_idle()
    again = engine.generate(prompt, max_outputs=1)
    engine.turn_until_idle()
    assert [engine.started(t).n_cached_tokens for t in (first, scored, again)] == [0, 0, 32]
    assert len(engine.started(scored).scores.logprobs) == 40


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_rsm_17_scores_may_begin_behind_a_cached_prefix(chunk: int) -> None:
    """Told outputs are scored, and the prompt before them is not."""
    engine = ScriptEngine(prefill_chunk=chunk)
    prompt = prompt_of(50)
    whole = engine.generate(prompt, max_outputs=1, scores=True, n_score_candidates=2)
    engine.turn_until_idle()
    expected = engine.started(whole).scores
    for first, n_cached in ((1, 0), (16, 0), (17, 16), (33, 32), (49, 48), (50, 48)):
        ticket = engine.generate(prompt, max_outputs=1, scores=True, first_score=first, n_score_candidates=2)
        engine.turn_until_idle()
        found = engine.started(ticket)
        assert found.n_cached_tokens == n_cached
        assert (found.scores.tokens, found.scores.logprobs) == (prompt[first:], expected.logprobs[first:])
        ids = [[each.token for each in items] for items in found.scores.candidates]
        assert ids == [[each.token for each in items] for items in expected.candidates[first:]]


def test_gen_27_logits_of_another_width_end_their_own_request() -> None:
    """A batch with token 15 gives one logit too few: only that request ends."""
    engine = ScriptEngine(script={"narrow_token": 15, "vocab_size": 16})
    prompts = [[i, 3, 5, 15 if i == 2 else 4] for i in range(4)]
    biased = Sampler(logit_bias={15: -100.0})
    tickets = [engine.generate(prompt, max_outputs=6, sampling=biased) for prompt in prompts]
    engine.turn_until_idle()
    for i, (ticket, prompt) in enumerate(zip(tickets, prompts, strict=True)):
        if i == 2:
            with pytest.raises(Failed, match=r"BUG: .*\[1, 15\], expected \[1, 16\]"):
                engine.finished(ticket)
        else:
            assert engine.tokens(ticket) == continuation(prompt, 6, biased)
    engine.assert_at_rest()


def test_smp_21_the_whole_sampler_holds_from_the_first_output() -> None:
    """Every field reaches the sampler at output 0 and at output 1, in generations and in steps."""
    given = {
        "temperature": 0.5,
        "repetition_penalty": 1.5,
        "frequency_penalty": 0.25,
        "presence_penalty": -0.5,
        "penalty_window": 9,
        "seed": 11,
        "logit_bias": {3: 2.0},
    }
    engine = ScriptEngine()
    options = _core.SamplingOptions(**given)
    prompt = prompt_of(5)
    generated = engine.complete(prompt, max_outputs=2, sampling=options)
    session = engine.open(sampling=options)
    assert [engine.step(session, prompt), engine.step(session)] == generated
    for draw, (history, index) in zip(engine.core.draws, [(prompt, 0), ([*prompt, generated[0]], 1)] * 2, strict=True):
        assert {name: draw.params[name] for name in given} == given
        assert (draw.history, draw.n_output, draw.index, draw.sequence) == (history, index, index, 0)


def test_smp_24_suppressed_ids_are_masked_at_every_step() -> None:
    engine = ScriptEngine("counter", suppressed_tokens=[4, 6])
    outputs = engine.complete([3], max_outputs=12)
    expected = []
    tokens = [3]
    for _ in range(12):
        row = hash_logits(tokens, 16)
        row[(tokens[-1] + 1) % 16] = 16.0
        row[4] = row[6] = -math.inf
        tokens.append(row.index(max(row)))
        expected.append(tokens[-1])
    assert outputs == expected
    assert not {4, 6} & set(outputs)


def test_smp_26_ses_22_a_new_sampler_starts_at_index_0_with_an_empty_output_window() -> None:
    engine = ScriptEngine()
    session, prompt = engine.open(), prompt_of(6)
    held = list(prompt)
    held += [engine.step(session, prompt), engine.step(session), engine.step(session)]
    seeded = Sampler(temperature=1.0, seed=7, presence_penalty=1.5, repetition_penalty=1.2)
    outputs = [engine.step(session, sampling=seeded)]
    outputs += [engine.step(session) for _ in range(3)]
    assert outputs == continuation(held, 4, seeded)
    assert [(d.index, d.n_output, d.seed) for d in engine.core.draws[3:]] == [(i, i, 7) for i in range(4)]
    assert engine.core.draws[3].history == held
