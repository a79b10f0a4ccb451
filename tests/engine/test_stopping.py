"""Stop tokens, minimum lengths, and ends and masks from outside that arrive late."""

from __future__ import annotations

import random

import pytest

from imp_service import _core
from support.engine.script_engine import Failed, ScriptEngine
from support.oracles.script_oracle import Sampler, continuation, hash_logits, prompt_of, sample

pytestmark = pytest.mark.usefixtures("ahead")
SEEDED = Sampler(temperature=0.9, seed=21)


def mask_bytes(allowed: set[int], vocab_size: int = 16) -> bytes:
    """Returns a mask with a bit per id, lowest first."""
    return sum(1 << token for token in allowed).to_bytes((vocab_size + 7) // 8, "little")


@pytest.mark.parametrize(("stop", "eos"), [([9], []), ([], [9]), ([9], [9])], ids=["stop id", "EOS", "both"])
def test_txt_1_a_stop_token_is_named_and_not_delivered(stop: list[int], eos: list[int]) -> None:
    engine = ScriptEngine("counter")
    ticket = engine.generate([1, 3], max_outputs=50, stop_tokens=stop, eos_tokens=eos, logprobs=True, n_candidates=2)
    engine.turn_until_idle()
    end = engine.finished(ticket)
    assert engine.tokens(ticket) == [4, 5, 6, 7, 8]
    assert (end.reason, end.stop_token, end.eos, end.n_outputs) == ("stop", 9, bool(eos), 5)
    assert end.stop_candidates[0].token == 9
    assert end.stop_logprob == end.stop_candidates[0].logprob < 0


def test_txt_2_gen_7_eos_as_first_token_ends_at_once() -> None:
    engine = ScriptEngine("counter")
    ticket = engine.generate([1, 3], max_outputs=50, eos_tokens=[4])
    engine.turn_until_idle()
    assert (engine.tokens(ticket), engine.finished(ticket).n_outputs, engine.finished(ticket).reason) == ([], 0, "stop")
    assert engine.started(ticket).n_tokens == 2
    # A step only flags it: the token is pending, and the session continues past it.
    session = engine.open()
    step = engine.run(session, [1, 3], eos_tokens=[4], ends_at_eos=False)
    engine.turn_until_idle()
    (event,) = [e for e in engine.events[step] if isinstance(e, _core.TokenEvent)]
    assert (event.token, event.eos, engine.finished(step).pending) == (4, True, True)
    assert engine.step(session) == 5


def test_txt_9_before_min_outputs_stop_tokens_are_ordinary() -> None:
    engine = ScriptEngine("counter")
    for stop, expected in [(6, [4, 5, 6, 7, 8, 9]), (7, [4, 5, 6])]:
        ticket = engine.generate([3], max_outputs=6, min_outputs=3, stop_tokens=[stop], eos_tokens=[stop])
        engine.turn_until_idle()
        assert engine.tokens(ticket) == expected
    with pytest.raises(_core.InvalidArgument, match="min_tokens: 4, expected at most max_tokens, 3"):
        engine.generate([3], max_outputs=3, min_outputs=4)


@pytest.mark.few(30)
@pytest.mark.parametrize("delay", [0, 1, 7])
@pytest.mark.parametrize("n_kept", [1, 4, 9])
@pytest.mark.parametrize("max_outputs", [10, 40])
def test_txt_8_running_ahead_is_invisible(delay: int, n_kept: int, max_outputs: int) -> None:
    """The text layer finds the end `delay` steps late, perhaps after the run's own end; the result is as if in time."""
    prompt = prompt_of(30)
    engine = ScriptEngine()
    session = engine.open(sampling=SEEDED)
    ticket = engine.run(session, prompt, max_outputs=max_outputs)
    while len(engine.tokens(ticket)) < min(n_kept + delay, max_outputs):
        engine.turn()
    has_ended = len(engine.tokens(ticket)) == max_outputs
    engine.core.end(ticket, session, "stop", n_outputs=n_kept)
    engine.turn_until_idle()
    outputs = continuation(prompt, 40, SEEDED)
    assert engine.tokens(ticket)[:n_kept] == outputs[:n_kept]
    assert engine.core.held(session) == 30 + n_kept - 1
    assert engine.core.tokens(session) == prompt + outputs[:n_kept]
    assert len(engine.core.blocks(session)) == (30 + n_kept - 1 + 15) // 16
    assert engine.core.stats().blocks_live == len(engine.core.blocks(session))
    if not has_ended:
        end = engine.finished(ticket)
        assert (end.reason, end.n_outputs, end.position, end.pending) == ("stop", n_kept, 30 + n_kept - 1, True)
    # Later draws have the index that follows.
    assert [engine.step(session) for _ in range(5)] == outputs[n_kept : n_kept + 5]


def test_txt_8_a_stop_token_drawn_beyond_the_end_never_existed() -> None:
    engine = ScriptEngine("counter")
    session = engine.open()
    ticket = engine.run(session, [1, 2], max_outputs=30, stop_tokens=[9])
    engine.turn_until_idle()
    assert engine.tokens(ticket) == [3, 4, 5, 6, 7, 8]
    engine.core.end(ticket, session, "stop", n_outputs=4)
    engine.turn_until_idle()
    assert (engine.core.tokens(session), engine.core.held(session)) == ([1, 2, 3, 4, 5, 6], 5)
    assert engine.step(session) == 7


def test_txt_8_an_end_of_an_earlier_run_hits_no_later_one() -> None:
    engine = ScriptEngine("counter")
    session = engine.open()
    first = engine.run(session, [1, 2], max_outputs=3)
    engine.turn_until_idle()
    second = engine.run(session, max_outputs=5)
    engine.turn()
    engine.core.end(first, session, "cancelled", n_outputs=1)
    engine.turn_until_idle()
    assert engine.tokens(second) == [6, 7, 8, 9, 10]
    assert engine.finished(second).reason == "max_tokens"


def test_txt_8_an_end_at_an_output_that_was_never_drawn_is_an_error() -> None:
    engine = ScriptEngine("counter")
    sequence = engine.sequence()
    ticket = engine.generate([1], sequence=sequence, max_outputs=30)
    engine.turn()
    engine.core.end(ticket, sequence, "stop", n_outputs=9)
    engine.turn_until_idle()
    with pytest.raises(Failed, match="FIELD_INVALID"):
        engine.finished(ticket)


def test_ses_21_s23_a_session_keeps_what_was_delivered_when_cancelled() -> None:
    engine = ScriptEngine()
    prompt = prompt_of(10)
    outputs = continuation(prompt, 20)
    for n_kept in (None, 7, 0):
        session = engine.open()
        ticket = engine.run(session, prompt, max_outputs=100)
        while len(engine.tokens(ticket)) < 9:
            engine.turn()
        kept = len(engine.tokens(ticket)) if n_kept is None else n_kept
        engine.core.end(ticket, session, n_outputs=n_kept)
        engine.turn_until_idle()
        end = engine.finished(ticket)
        assert (end.reason, end.n_outputs, end.position + end.pending) == ("cancelled", kept, 10 + kept)
        assert engine.core.tokens(session) == prompt + outputs[:kept]
        assert engine.step(session, resume=True) == outputs[kept]


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_s11_a_run_ended_before_its_prompt_is_evaluated_leaves_no_trace(turns: int) -> None:
    """A run ends queued or between chunks: position, pending token and sampler are the old ones."""
    engine = ScriptEngine(prefill_chunk=8, step_tokens=16)
    prompt = prompt_of(12)
    session = engine.open(sampling=SEEDED)
    engine.step(session, prompt)
    live = engine.core.stats().blocks_live
    ticket = engine.run(session, prompt_of(40, 5), sampling=Sampler(), base=3)
    for _ in range(turns):
        engine.turn()
    engine.core.end(ticket, session, "time_limit")
    engine.turn_until_idle()
    end = engine.finished(ticket)
    assert (end.reason, end.n_outputs, end.position, end.pending) == ("time_limit", 0, 12, True)
    assert engine.core.stats().blocks_live == live
    assert [engine.step(session) for _ in range(3)] == continuation(prompt, 4, SEEDED)[1:]


def constrained_oracle(prompt: list[int], masks: list[set[int]], sampler: Sampler) -> list[int]:
    tokens = list(prompt)
    for i, mask in enumerate(masks):
        tokens.append(sample(hash_logits(tokens, 16), sampler, tokens, i, allowed=mask.__contains__))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("delay", [0, 1, 5])
def test_txt_20_no_constrained_output_is_drawn_before_its_mask_and_nobody_else_waits(delay: int) -> None:
    rng = random.Random(2)
    masks = [set(rng.sample(range(16), rng.randrange(1, 5))) for _ in range(6)]
    engine = ScriptEngine()
    prompt = prompt_of(20)
    sequence = engine.sequence()
    constrained = engine.generate(prompt, sequence=sequence, sampling=SEEDED, max_outputs=6, constrained=True)
    free = engine.generate(prompt_of(9, 1), max_outputs=60, max_draft_tokens=0)
    for i, mask in enumerate(masks):
        n_free = len(engine.tokens(free))
        for _ in range(delay):
            engine.turn()
            assert len(engine.tokens(constrained)) == i
        assert len(engine.tokens(free)) == n_free + delay
        engine.core.mask(constrained, sequence, i, mask_bytes(mask))
        engine.turn()
        engine.turn()
    engine.turn_until_idle()
    assert engine.tokens(constrained) == constrained_oracle(prompt, masks, SEEDED)
    assert engine.tokens(free) == continuation(prompt_of(9, 1), 60)


def test_txt_20_masks_may_come_early_and_late_ones_are_ignored() -> None:
    engine = ScriptEngine()
    prompt = prompt_of(11)
    masks = [{1, 2}, {3, 9, 12}, {0, 15}]
    sequence = engine.sequence()
    ticket = engine.generate(prompt, sequence=sequence, max_outputs=3, constrained=True)
    for i in (2, 0, 1):
        engine.core.mask(ticket, sequence, i, mask_bytes(masks[i]))
    engine.core.mask(ticket, sequence, 0, mask_bytes({7}))  # the first word counts
    engine.turn_until_idle()
    assert engine.tokens(ticket) == constrained_oracle(prompt, masks, Sampler())
    engine.core.mask(ticket, sequence, 3, mask_bytes({7}))
    engine.turn_until_idle()
    engine.assert_at_rest()


def test_txt_23_where_only_the_end_is_possible_the_run_ends_with_stop() -> None:
    for n_before in (0, 2):
        engine = ScriptEngine()
        session, prompt = engine.open(), prompt_of(11)
        ticket = engine.run(session, prompt, max_outputs=9, min_outputs=5, constrained=True)
        for i in range(n_before):
            engine.core.mask(ticket, session, i, mask_bytes({3 + i}))
        engine.core.mask(ticket, session, n_before, end=True)
        engine.turn_until_idle()
        end = engine.finished(ticket)
        assert engine.tokens(ticket) == [3, 4][:n_before]
        assert (end.reason, end.stop_token, end.n_outputs) == ("stop", -1, n_before)
        assert (end.position, end.pending) == (11 + max(n_before - 1, 0), n_before > 0)
        assert engine.started(ticket).n_tokens == 11


def test_txt_21_constraints_hold_in_a_batch_and_among_siblings() -> None:
    """Three constrained generations, one with siblings, and a free one in one batch: each is as alone."""
    rng = random.Random(4)
    engine = ScriptEngine(prefill_chunk=16)
    expected: dict[tuple[int, int], list[int]] = {}
    free = engine.generate(prompt_of(25, 9), max_outputs=30)
    for request in range(3):
        prompt = prompt_of(5 + 20 * request, request)
        sequences = [engine.sequence() for _ in range(3 if request == 1 else 1)]
        ticket = engine.generate(prompt, sequence=sequences[0], siblings=sequences[1:], max_outputs=5, constrained=True)
        for stream, sequence in enumerate(sequences):
            masks = [set(rng.sample(range(16), 3)) for _ in range(5)]
            expected[ticket, stream] = constrained_oracle(prompt, masks, Sampler())
            for i, mask in enumerate(masks):
                engine.core.mask(ticket, sequence, i, mask_bytes(mask))
    engine.turn_until_idle()
    assert {key: engine.tokens(*key) for key in expected} == expected
    assert engine.tokens(free) == continuation(prompt_of(25, 9), 30)


@pytest.mark.few(2)
def test_smp_23_a_mask_restricts_the_draw_only() -> None:
    """With 1000 random masks, the drawn id is the oracle's, also with penalties on allowed ids."""
    rng = random.Random(8)
    sampler = Sampler(temperature=0.7, seed=5, repetition_penalty=1.4)
    engine = ScriptEngine(max_context=1100, n_blocks=80)
    session = engine.open(sampling=sampler)
    tokens = prompt_of(4)
    given = list(tokens)
    for i in range(1000):
        mask = set(rng.sample(range(16), 1 if i % 3 == 0 else rng.randrange(1, 17)))
        drawn = engine.step(session, given, allowed=mask_bytes(mask))
        assert drawn == sample(hash_logits(tokens, 16), sampler, tokens, i, allowed=mask.__contains__)
        tokens.append(drawn)
        given = []


@pytest.mark.parametrize(
    "bad", [b"\x00\x00", b"\x01\x00\x01", b"\x01\x00\x00\x00\x00"], ids=["no bit", "a bit at V", "a word too many"]
)
def test_ses_26_p37_a_mask_has_a_bit_and_none_beyond_the_vocabulary(bad: bytes) -> None:
    engine = ScriptEngine()
    session = engine.open()
    with pytest.raises(_core.InvalidArgument, match="FIELD_INVALID: allowed_token_mask"):
        engine.run(session, [1], allowed=bad)
    with pytest.raises(_core.InvalidArgument, match="FIELD_INVALID: mask"):
        engine.core.mask(1, session, 0, bad)
    engine.turn_until_idle()
    assert engine.core.n_forwards == 0
