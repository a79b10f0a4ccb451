"""Speculative decoding: guesses change when tokens come, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core, _testing
from support.engine.random_requests import random_requests, random_sampler, run_all
from support.engine.script_engine import Failed, ScriptEngine, TurnedEngine
from support.models.forward_runs import load
from support.models.forward_runs import prompt as random_prompt
from support.models.tiny_models import tiny
from support.oracles.script_oracle import continuation, prompt_of

N_REQUESTS = 1000


def drafting(right: float = 1.0, rule: str = "hash", *, ahead: bool = False, **options: Any) -> ScriptEngine:
    """Returns an engine whose drafter is right in this share of its guesses."""
    return ScriptEngine(rule, script={"drafts": right, "ahead": ahead}, **options)


@pytest.mark.few(2)
@pytest.mark.parametrize("right", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("ahead", [False, True], ids=["waited-for", "ahead"])
@pytest.mark.parametrize("fixed", [False, True], ids=["adaptive", "fixed"])
def test_spc_1_guesses_change_nothing_that_a_client_sees(right: float, ahead: bool, fixed: bool) -> None:
    """1,000 random requests with guesses, in random batches, equal the same requests one by one without guesses."""
    n = N_REQUESTS // 6
    requests = random_requests(int(10 * right) + ahead, n)
    plain = run_all(ScriptEngine(max_running=8), requests, random.Random(1), [0])
    engine = drafting(right, ahead=ahead, n_blocks=90, max_running=8, fixed_depth=fixed)
    assert run_all(engine, requests, random.Random(2), [1, 3, 16]) == plain
    if not fixed:
        return
    drafts = engine.core.stats().drafts
    assert drafts.n_drafted > n and (drafts.n_accepted > 0) == (right > 0)


@pytest.mark.few(2)
@pytest.mark.parametrize("jumps_ns", [0, 10**6, 10**9, 10**17], ids=["frozen", "random", "wild", "adversarial"])
@pytest.mark.parametrize("right", [1.0, 0.6])
def test_spc_26_no_clock_changes_a_token(right: float, jumps_ns: int) -> None:
    """The times of steps decide how many guesses there are, and so which rows are evaluated together."""
    requests = [{**each, "max_outputs": 4 * each["max_outputs"]} for each in random_requests(11, 60)]
    plain = run_all(ScriptEngine(max_running=8), requests, random.Random(1), [0])
    engine = drafting(right, n_blocks=90, max_running=8, fixed_depth=False)
    engine.core.clock_jumps_ns = jumps_ns
    engine.core.forward_ns = 10**9
    assert run_all(engine, requests, random.Random(2), [3, 16]) == plain
    # Where looking for guesses seems to take as long as a step, none are made.
    assert engine.core.stats().drafts.n_drafted > 0 or jumps_ns >= 10**9


def test_spc_27_counts_by_drafter_and_reason_add_up() -> None:
    """Every step of a run that may draft verified guesses or was skipped for one reason."""
    engine = drafting(0.5, fixed_depth=False)
    engine.core.forward_ns = 10**6
    tickets = [engine.generate(prompt_of(9, i), max_outputs=160, max_draft_tokens=4 if i else 0) for i in range(5)]
    engine.turn_until_idle()
    stats = engine.core.stats()
    ends = [engine.finished(ticket) for ticket in tickets]
    assert list(stats.drafters) == ["script", "grammar"] == list(ends[0].drafters)
    for name in ("n_rounds", "n_drafted", "n_accepted"):
        total = getattr(stats.drafts, name)
        assert getattr(stats.drafters["script"], name) == total > 0
        assert sum(getattr(end.drafters["script"], name) for end in ends) == total
    n_singles = sum(1 for step in engine.evaluated() for first, n in step if first >= 9 and n == 1)
    n_skips = sum(stats.draft_skips.values())
    assert n_skips == n_singles - 159
    assert [end.drafts_off for end in ends] == ["disabled", "", "", "", ""]


def test_spc_25_guesses_that_are_never_right_stop() -> None:
    engine = drafting(0.0, fixed_depth=False, max_context=1000, n_blocks=100)
    ticket = engine.generate(prompt_of(9), max_outputs=400, max_draft_tokens=8)
    engine.turn_until_idle()
    end = engine.finished(ticket)
    assert 0 < end.drafts.n_rounds < 64 and end.drafts.n_accepted == 0
    assert engine.core.stats().draft_skips["not_worth_it"] > 300


def test_spc_1_spc_6_sessions_with_guesses_equal_those_without() -> None:
    """The same random commands on both: runs, cuts, forks, truncations, replaced tokens, draws again."""
    for seed in range(40):
        states = []
        for engine in (ScriptEngine(), drafting(0.7)):
            rng = random.Random(seed)
            sessions = [engine.open(sampling=random_sampler(rng))]
            engine.turn_until_idle()
            seen: list[Any] = []
            for _ in range(25):
                session = rng.choice(sessions)
                held = engine.core.held(session)
                match rng.choice(["run", "run", "run", "cut", "truncate", "fork"]):
                    case "truncate" if held > 0:
                        engine.command("truncate", session, rng.randrange(held + 1))
                        engine.turn_until_idle()
                    case "fork" if held > 0 and len(sessions) < 4:
                        copy = engine.sequence()
                        engine.command("fork", session, copy, position=rng.choice([None, rng.randrange(held + 1)]))
                        engine.turn_until_idle()
                        sessions.append(copy)
                    case kind if held < 200:
                        tokens = prompt_of(rng.randrange(1, 9), rng.randrange(9)) if rng.random() < 0.6 else []
                        n = rng.choice([0, 1, 6, 12])
                        resume = not tokens
                        if not tokens and held == 0:
                            continue
                        ticket = engine.run(session, tokens, resume=resume, max_outputs=n, max_draft_tokens=4)
                        n_kept = rng.randrange(n + 1)
                        if kind == "cut" and n > 0:
                            while len(engine.tokens(ticket)) < n_kept:
                                engine.turn()
                            engine.core.end(ticket, session, "stop", n_outputs=n_kept)
                        engine.turn_until_idle()
                        seen.append(engine.tokens(ticket)[: n_kept if kind == "cut" else None])
                    case _:
                        pass
                seen += [(engine.core.held(s), engine.core.tokens(s), engine.core.base(s)) for s in sessions]
                seen.append([len(engine.core.blocks(s)) for s in sessions])
            states.append(seen)
        assert states[0] == states[1], seed


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_spc_2_a_verified_row_has_the_bits_of_a_single_step(tmp_path: Path, kind: str) -> None:
    """Logits after k right guesses, at depths around the borders of blocks, equal those of a run without guesses."""
    model = load(tiny("llama", context=256), tmp_path, threads=2, kv_dtype=kind)
    options = _core.EngineOptions(n_blocks=model.n_blocks, max_context=model.max_context, fixed_depth=True)
    for n_prompt in (14, 15, 16, 31, 63):
        prompt = random_prompt(n_prompt, 51)

        def rows(guess: Any, prompt: list[int] = prompt) -> list[tuple[int, bytes]]:
            engine = TurnedEngine(_testing.ManualModelEngine(model, options, guess))
            ticket = engine.generate(prompt, max_outputs=34, logits=True, max_draft_tokens=17)
            engine.turn_until_idle()
            assert engine.finished(ticket).drafts.n_drafted > 0 or guess is None
            return [(e.token, e.logits.tobytes()) for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)]

        plain = rows(None)
        whole = [*prompt, *(token for token, _ in plain)]
        for n_right in (1, 3, 7, 16):

            def guess(tokens: list[int], n: int, whole: list[int] = whole, n_right: int = n_right) -> list[int]:
                known = whole[len(tokens) :][: min(n, n_right)]
                return [*known, (known[-1] + 1) % 5] if known else []

            assert rows(guess) == plain


@pytest.mark.parametrize("n_right", [0, 1, 2, 3])
def test_spc_3_a_round_keeps_its_right_guesses_and_one_more(n_right: int) -> None:
    outputs = continuation(prompt_of(20), 12)
    engine = drafting()
    engine.core.script.drafts = 1.0
    ticket = engine.generate(prompt_of(20), max_outputs=12, max_draft_tokens=n_right or 3)
    if n_right == 0:
        engine.core.script = _testing.Script(drafts=0.0)
    engine.turn()
    assert engine.tokens(ticket) == outputs[:1]
    engine.turn()
    assert engine.tokens(ticket) == outputs[: 1 + n_right + 1]
    engine.turn_until_idle()
    assert engine.tokens(ticket) == outputs


def test_spc_3_rows_behind_a_wrong_guess_fail_nothing() -> None:
    """A guess with non-finite logits that is wrong is dropped; as an output it fails its run as without guesses."""
    outputs = continuation(prompt_of(20), 12)
    unused = next(token for token in range(16) if token not in outputs and token not in prompt_of(20))
    wrong = TurnedEngine(_testing.ManualEngine(
        _testing.Script(nan_token=unused), _core.EngineOptions(n_blocks=64, max_context=256, fixed_depth=True),
        lambda _tokens, n: [unused] * n,
    ))  # fmt: skip
    ticket = wrong.generate(prompt_of(20), max_outputs=12, max_draft_tokens=4)
    wrong.turn_until_idle()
    assert wrong.tokens(ticket) == outputs
    assert wrong.finished(ticket).drafts.n_drafted > 12
    for drafts in (-1.0, 1.0):
        engine = ScriptEngine(script={"nan_token": outputs[5], "drafts": drafts})
        ticket = engine.generate(prompt_of(20), max_outputs=12, max_draft_tokens=4)
        engine.turn_until_idle()
        with pytest.raises(Failed, match="NON_FINITE"):
            engine.finished(ticket)
        first = next(i for i, token in enumerate(prompt_of(20) + outputs) if token == outputs[5])
        assert len(engine.tokens(ticket)) == max(0, first - 19)


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("end", ["stop token", "eos", "limit", "context"])
def test_spc_4_an_end_inside_a_round_ends_it_there(end: str, place: int) -> None:
    """All guesses are right, and the run ends at each place of the round: nothing after it is sent, held or cached."""
    prompt = [2, 3, 4]
    n = 1 + place
    given: dict[str, Any] = {
        "stop token": {"max_outputs": 30, "stop_tokens": [5 + n]},
        "eos": {"max_outputs": 30, "eos_tokens": [5 + n]},
        "limit": {"max_outputs": n},
        "context": {"max_outputs": -1},
    }[end]
    context = len(prompt) + n - 1 if end == "context" else 64
    results = []
    for engine in (
        ScriptEngine("counter", max_context=context, script={"block_tokens": 2}),
        drafting(1.0, "counter", max_context=context),
    ):
        session = engine.open()
        ticket = engine.run(session, prompt, max_draft_tokens=8, **given)
        engine.turn_until_idle()
        finished = engine.finished(ticket)
        assert engine.tokens(ticket) == [5 + i for i in range(n)]
        results.append(
            (finished.reason, finished.n_outputs, finished.position, finished.pending, finished.stop_token,
             engine.core.held(session), engine.core.tokens(session))
        )  # fmt: skip
    assert results[0] == results[1]


def test_spc_5_wrong_guesses_leave_no_block_and_no_cache_entry() -> None:
    """After each round a sequence has the blocks of its tokens; another request finds what it finds without guesses."""
    for drafts in (-1.0, 0.0, 0.5):
        engine = ScriptEngine(script={"drafts": drafts, "block_tokens": 4}, max_context=200, n_blocks=60)
        sequence = engine.sequence()
        ticket = engine.generate(prompt_of(9), sequence=sequence, max_outputs=150, max_draft_tokens=6)
        while engine.turn():
            if engine.core.stats().running:
                held = engine.core.held(sequence)
                assert len(engine.core.blocks(sequence)) == -(-held // 4) == engine.core.stats().blocks_live
        again = engine.generate([*prompt_of(9), *engine.tokens(ticket)], max_outputs=1)
        engine.turn_until_idle()
        assert engine.started(again).n_cached_tokens == (9 + 149) // 4 * 4


@pytest.mark.parametrize("n_blocks", [34, 40, 48, 64, 90])
def test_spc_7_guesses_preempt_and_evict_nobody(n_blocks: int) -> None:
    """Whatever the size of the pool, wrong guesses cause no preemption and no eviction that is not there without."""
    counts = []
    for drafts in (-1.0, 0.0):
        engine = ScriptEngine(
            script={"drafts": drafts, "block_tokens": 4}, n_blocks=n_blocks, max_context=128, max_running=6
        )
        engine.complete(prompt_of(60, 8), max_outputs=1)  # its blocks stay in the prefix cache
        n_cached = engine.core.stats().blocks_cached
        tickets = [engine.generate(prompt_of(11, i), max_outputs=24, max_draft_tokens=5) for i in range(5)]
        cached = []
        while engine.turn():
            cached.append(engine.core.stats().blocks_cached)
        assert n_cached > 0
        counts.append(([engine.tokens(t) for t in tickets], engine.core.stats().n_preemptions, cached))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("n_right", [0.0, 1.0])
def test_spc_8_a_batch_that_fails_fails_without_its_guesses(n_right: float) -> None:
    """A guess that breaks the batch costs a repeated step. An output that breaks it fails its own run alone."""
    outputs = [continuation(prompt_of(20, i), 12) for i in range(3)]
    used = {token for i in range(3) for token in prompt_of(20, i)}
    engine = drafting(n_right, "counter")
    engine.core.script.failing = [2]
    tickets = [engine.generate(prompt_of(20, i), max_outputs=12, max_draft_tokens=3) for i in range(3)]
    engine.turn_until_idle()
    assert all(engine.finished(ticket).reason == "max_tokens" for ticket in tickets)
    assert len(used) > 0 and len(outputs) == 3
    engine.assert_at_rest()
    broken = drafting(n_right)
    victim = broken.generate(prompt_of(20), max_outputs=12, max_draft_tokens=3)
    other = broken.generate(prompt_of(20, 1), max_outputs=12, max_draft_tokens=3)
    broken.core.failing_samples = [1, 2]  # the batch with guesses, and then the first of its sequences
    broken.turn_until_idle()
    with pytest.raises(Failed, match="BUG"):
        broken.finished(victim)
    assert broken.tokens(victim) == outputs[0][:1]
    assert broken.tokens(other) == outputs[1]


LIMITS = [
    ({"max_draft_tokens": 5}, 5),
    ({"max_draft_tokens": 0}, 0),
    ({"max_outputs": 4}, 2),  # after the first output three are left; the last one needs no guess
    ({"max_outputs": 2}, 0),
    ({"max_context": 24}, 3),
    ({"max_context": 21}, 0),
    ({"step_tokens": 16, "max_running": 8}, 15),
    ({"script": {"max_logits_rows": 8}, "max_running": 8}, 7),
    ({"n_blocks": 2, "max_context": 32, "max_draft_tokens": 64}, 11),
]


@pytest.mark.parametrize(("given", "most"), LIMITS)
def test_spc_11_guesses_take_what_the_limits_leave(given: dict[str, Any], most: int) -> None:
    asked = {name: given[name] for name in ("max_draft_tokens", "max_outputs") if name in given}
    options = {name: value for name, value in given.items() if name not in asked and name != "script"}
    engine = ScriptEngine(script={"drafts": 1.0, **given.get("script", {})}, **options)
    sequence = engine.sequence()
    engine.generate(prompt_of(20), sequence=sequence, **{"max_draft_tokens": 64, "max_outputs": 100, **asked})
    for _ in range(3):
        engine.turn()
    n_evaluated = [n for step in engine.evaluated() for first, n in step if first == 20]
    assert n_evaluated in ([1 + most], []) and (most == 0 or n_evaluated)


def test_spc_11_a_run_asks_for_at_most_64_guesses() -> None:
    for bad in (-1, 65):
        with pytest.raises(_core.InvalidArgument, match=f"speculation.max_draft_tokens: {bad}, expected 0 to 64"):
            ScriptEngine().generate([1], max_draft_tokens=bad)


def test_spc_3_drafted_and_accepted_are_counted() -> None:
    """Counts of the runs add up to those of the engine, and accepted to the outputs that no step of their own gave."""
    engine = drafting(0.6)
    tickets = [engine.generate(prompt_of(9, i), max_outputs=30, max_draft_tokens=4) for i in range(7)]
    engine.turn_until_idle()
    ends = [engine.finished(ticket).drafts for ticket in tickets]
    total = engine.core.stats().drafts
    for name in ("n_rounds", "n_drafted", "n_accepted"):
        assert sum(getattr(end, name) for end in ends) == getattr(total, name) > 0
    n_rows = sum(n for step in engine.evaluated() for first, n in step if first >= 9)
    assert n_rows == 7 * 29 + total.n_drafted - total.n_accepted


def test_an_unknown_drafter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(_core.Error, match=r"drafters\[1\]: nosuch, expected one of .*ngram, .*model"):
        ScriptEngine(drafters=["ngram", "nosuch"])
