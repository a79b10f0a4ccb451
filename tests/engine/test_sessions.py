"""Sessions: lock, replacement, truncation, forks and resuming; every refusal leaves them unchanged."""

from __future__ import annotations

import random

import pytest

from imp_service import _core
from support.engine.script_engine import Failed, ScriptEngine
from support.oracles.script_oracle import Sampler, continuation, hash_logits, prompt_of, sample
from support.run.release_run import repetitions

pytestmark = pytest.mark.usefixtures("ahead")
SEEDED = Sampler(temperature=0.9, seed=21)
N_OPERATIONS = repetitions(20_000, 700)


def failure(engine: ScriptEngine, ticket: int) -> Failed:
    engine.turn_until_idle()
    with pytest.raises(Failed) as caught:
        engine.finished(ticket)
    return caught.value


def command_failure(engine: ScriptEngine, name: str, *args: object) -> Failed:
    ticket = engine.command(name, *args)
    engine.turn_until_idle()
    with pytest.raises(Failed) as caught:
        engine.done(ticket)
    return caught.value


def test_ses_3_s08_a_step_at_a_wrong_position_is_refused() -> None:
    engine = ScriptEngine()
    session = engine.open()
    engine.step(session, prompt_of(10), position=0)
    n_forwards = engine.core.n_forwards
    for tokens in ([1, 2], []):
        for wrong in (9, 11, 12):
            error = failure(engine, engine.run(session, tokens, position=wrong))
            assert (error.reason, error.details) == ("POSITION_MISMATCH", {"expected": str(wrong), "held": "10"})
    assert engine.core.n_forwards == n_forwards
    assert engine.step(session, position=10) == continuation(prompt_of(10), 2)[1]


def test_ses_5_a_step_without_position_advances() -> None:
    engine = ScriptEngine()
    session = engine.open()
    engine.step(session, prompt_of(10))
    engine.step(session)
    engine.step(session)
    assert engine.core.held(session) == 12


def test_ses_6_s04_without_a_pending_token_an_empty_step_is_refused() -> None:
    engine = ScriptEngine("counter")
    session = engine.open()
    assert failure(engine, engine.run(session)).details == {"held": "0"}
    engine.step(session, [1, 2, 3], max_outputs=0)
    assert failure(engine, engine.run(session)).reason == "NO_PENDING_TOKEN"
    engine.step(session, [4])
    engine.command("truncate", session, 2)
    assert failure(engine, engine.run(session)).details == {"held": "2"}
    engine.step(session, [3], max_outputs=10, stop_tokens=[6])
    assert failure(engine, engine.run(session)).details == {"held": "5"}
    assert engine.step(session, [9]) == 10


def test_ses_7_ses_8_a_given_token_replaces_the_pending_one() -> None:
    engine = ScriptEngine()
    sampler = Sampler(temperature=0.5, seed=2, repetition_penalty=1.5)
    session, prompt = engine.open(sampling=sampler), prompt_of(18)
    drawn = engine.step(session, prompt)
    other = (drawn + 5) % 16
    ticket = engine.run(session, [other], logits=True)
    engine.turn_until_idle()
    (event,) = [e for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)]
    assert event.logits.tolist() == hash_logits([*prompt, other], 16)
    assert event.token == sample(event.logits.tolist(), sampler, [*prompt, other], 1)
    assert engine.evaluated()[-1] == [(18, 1)]
    assert engine.core.draws[-1].history == [*prompt, other]


@pytest.mark.parametrize("k", [1, 2, 3, 17])
def test_ses_9_k_tokens_in_one_step_equal_k_steps(k: int) -> None:
    """Compares logits at the last position, cached content, and the scores of all tokens, the first included."""
    prompt, given = prompt_of(20), prompt_of(k, 8)
    seen = []
    for parts in ([given], [[token] for token in given]):
        engine = ScriptEngine(prefix_cache=False)
        session = engine.open()
        engine.step(session, prompt)
        scores: list[float] = []
        for part in parts:
            ticket = engine.run(session, part, scores=True, logits=True)
            engine.turn_until_idle()
            started = engine.started(ticket)
            assert (started.scores.tokens, started.n_tokens) == (part, len(part))
            scores += started.scores.logprobs
            row = next(e.logits.tobytes() for e in engine.events[ticket] if isinstance(e, _core.TokenEvent))
        cached = [engine.core.slot(engine.core.blocks(session)[p // 16], p % 16) for p in range(20 + k)]
        assert cached == prompt + given
        seen.append((scores, row, engine.core.tokens(session)))
    assert seen[0] == seen[1]


def test_ses_10_s01_one_failure_leaves_the_others_of_a_batch_whole() -> None:
    """One step has four sessions, one of them unknown and one at the end of its context."""
    engine = ScriptEngine(max_context=32, n_blocks=16)
    sessions = [engine.open() for _ in range(3)]
    lengths = [5, 32, 20]
    for session, n in zip(sessions, lengths, strict=True):
        engine.step(session, prompt_of(n, n))
    n_forwards = engine.core.n_forwards
    tickets = [engine.run(session) for session in [*sessions, 999]]
    engine.turn_until_idle()
    assert engine.evaluated()[n_forwards:] == [[(5, 1), (20, 1)]]
    for ticket, n in [(tickets[0], 5), (tickets[2], 20)]:
        assert engine.tokens(ticket) == continuation(prompt_of(n, n), 2)[1:]
    full = failure(engine, tickets[1])
    assert (full.reason, full.details) == ("CONTEXT_TOO_LONG", {"prompt_tokens": "33", "max_context_tokens": "32"})
    assert failure(engine, tickets[3]).reason == "SESSION_NOT_FOUND"


def test_ses_11_s05_a_second_step_is_refused_while_one_runs() -> None:
    engine = ScriptEngine()
    session = engine.open()
    tickets = [engine.run(session, prompt_of(30)) for _ in range(8)]
    engine.turn()
    busy = [command_failure(engine, "truncate", session, 0)] if not engine.events[tickets[0]] else []
    engine.turn_until_idle()
    assert engine.tokens(tickets[0]) == continuation(prompt_of(30), 1)
    assert [failure(engine, t).reason for t in tickets[1:]] == ["SESSION_BUSY"] * 7
    assert [error.reason for error in busy] in ([], ["SESSION_BUSY"])
    assert engine.core.held(session) == 30


def test_ses_11_fork_and_truncate_wait_for_no_run() -> None:
    engine = ScriptEngine()
    session = engine.open()
    engine.run(session, prompt_of(30), max_outputs=20)
    engine.turn()
    for name, args in [("truncate", (session, 0)), ("fork", (session, 77))]:
        ticket = engine.command(name, *args)
        engine.turn()
        with pytest.raises(Failed, match="SESSION_BUSY"):
            engine.done(ticket)
    engine.turn_until_idle()
    assert engine.core.held(session) == 49


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("forward", "BUG"),
        ("second chunk", "BUG"),
        ("sampling", "BUG"),
        ("KV", "KV_FULL"),
        ("NaN", "NON_FINITE"),
        ("no candidate", "NO_CANDIDATE"),
    ],
)
def test_ses_12_a_step_happens_wholly_or_not_at_all(where: str, reason: str) -> None:
    """After a failed step, held and pending tokens, cache and sampler are unchanged, and a retry succeeds."""
    engine = ScriptEngine(prefill_chunk=8, step_tokens=16, n_blocks=4, max_context=64, suppressed_tokens=[3])
    sampler = Sampler(temperature=0.9, seed=21, logit_bias={3: -100.0})  # like the suppressed id, never drawn
    prompt = prompt_of(21)
    given = [*prompt_of(5, 6), 15, *prompt_of(9, 7)]
    session, other = engine.open(sampling=sampler), engine.open()
    engine.step(session, prompt)
    engine.step(other, prompt_of(31, 2), max_outputs=0)
    assert engine.core.stats().blocks_free == 0

    def state() -> tuple[list[int], int, int, int]:
        live = engine.core.stats().blocks_live
        return engine.core.tokens(session), engine.core.held(session), engine.core.base(session), live

    if where != "KV":
        engine.command("close", other)
        engine.turn_until_idle()
    before = state()
    given_mask = {}
    if where in {"forward", "second chunk"}:
        engine.core.script.failing = [engine.core.n_forwards + (where == "second chunk")]
    elif where == "sampling":
        engine.core.failing_samples = [engine.core.n_sample_calls]
    elif where == "NaN":
        engine.core.script.nan_token = 15
    elif where == "no candidate":
        given_mask = {"allowed": (1 << 3).to_bytes(2, "little")}
    error = failure(engine, engine.run(session, given, sampling=Sampler(), **given_mask))
    assert error.reason == reason
    assert state() == before
    if where == "KV":
        assert error.details == {"needed": "1", "available": "0"}
        engine.command("close", other)
    engine.core.script.nan_token = -1
    tokens = prompt + given
    assert engine.step(session, given) == sample(hash_logits(tokens, 16), sampler, tokens, len(given))


def test_ses_12_a_failure_in_mid_run_leaves_the_last_whole_step() -> None:
    """The failure of a step that started ahead loses nothing: the step fails the run when it fails in its turn."""
    engine = ScriptEngine()
    session, prompt = engine.open(), prompt_of(20)
    engine.core.script.failing = [4, 5] if engine.ahead else [4]
    ticket = engine.run(session, prompt, max_outputs=10, max_draft_tokens=0)
    assert failure(engine, ticket).reason == "BUG"
    outputs = continuation(prompt, 10)
    assert engine.tokens(ticket) == outputs[:4]
    assert (engine.core.held(session), engine.core.tokens(session)) == (23, prompt + outputs[:4])
    assert engine.step(session) == outputs[4]


def test_ses_13_kv_3_s17_truncating_equals_never_having_had() -> None:
    """Truncates to every position of three blocks and continues: the same as a new session, base included."""
    tokens = prompt_of(40)
    for p in range(41):
        engine = ScriptEngine(prefix_cache=p % 2 == 0)
        session = engine.open(sampling=SEEDED)
        engine.step(session, tokens)
        ticket = engine.command("truncate", session, p)
        engine.turn_until_idle()
        assert engine.done(ticket).position == p
        assert engine.core.tokens(session)[p:] == (tokens[p:] if p < 40 else continuation(tokens, 1, SEEDED))[: p == 40]
        assert len(engine.core.blocks(session)) == (p + 15) // 16
        fresh = ScriptEngine()
        other = fresh.open(sampling=SEEDED)
        if p > 0:
            fresh.step(other, tokens[:p], max_outputs=0)
        given = [5, 6, 7]
        drawn = [engine.step(session, given, base=p), *[engine.step(session) for _ in range(20)]]
        assert drawn == [fresh.step(other, given, base=p), *[fresh.step(other) for _ in range(20)]]
        assert drawn == continuation([*tokens[:p], *given], 21, SEEDED, base=p)


def test_s16_kv_2_truncating_and_forking_beyond_the_end_are_refused() -> None:
    engine = ScriptEngine()
    session = engine.open()
    engine.step(session, prompt_of(10))
    for position in (11, 2**31 - 1):
        for error in (
            command_failure(engine, "truncate", session, position),
            command_failure(engine, "fork", session, 500 + position % 7, position),
        ):
            assert (error.reason, error.details) == ("POSITION_BEYOND_END", {"position": str(position), "held": "10"})
    assert engine.core.stats().sessions == 1


def test_ses_14_s18_a_fork_and_its_parent_go_on_as_two_sessions() -> None:
    tokens = prompt_of(38)
    for p in [*range(0, 39, 5), 37, 38]:
        engine = ScriptEngine()
        parent, copy = engine.open(sampling=SEEDED), engine.sequence()
        drawn = engine.step(parent, tokens)
        ticket = engine.command("fork", parent, copy, p)
        engine.turn_until_idle()
        assert (engine.done(ticket).sequence, engine.done(ticket).position) == (copy, p)
        shared = engine.core.blocks(parent)[: (p + 15) // 16]
        assert engine.core.blocks(copy) == shared
        assert engine.core.tokens(copy) == (tokens[:p] if p < 38 else [*tokens, drawn])
        content = [[engine.core.slot(block, slot) for slot in range(16)] for block in shared]
        ours = [engine.step(parent, [1]), *[engine.step(parent) for _ in range(20)]]
        theirs = [engine.step(copy, [2]), *[engine.step(copy) for _ in range(20)]]
        assert ours == continuation([*tokens, 1], 21, SEEDED, base=38)
        assert theirs == continuation([*tokens[:p], 2], 21, SEEDED, base=min(p, 38))
        full = p // 16
        assert [[engine.core.slot(block, slot) for slot in range(16)] for block in shared[:full]] == content[:full]
        engine.command("close", parent)
        engine.turn_until_idle()
        assert engine.step(copy) == continuation([*tokens[:p], 2], 22, SEEDED, base=min(p, 38))[-1]
        engine.command("close", copy)
        engine.turn_until_idle()
        engine.assert_at_rest()


def test_ses_14_forks_with_one_seed_draw_alike_and_with_two_differ() -> None:
    engine = ScriptEngine()
    parent, alike, apart = engine.open(sampling=SEEDED), engine.sequence(), engine.sequence()
    engine.step(parent, prompt_of(12))
    for copy in (alike, apart):
        engine.command("fork", parent, copy)
    steps = [
        [engine.step(s, sampling=Sampler(temperature=5.0, seed=seed)), *[engine.step(s) for _ in range(9)]]
        for s, seed in [(parent, 1), (alike, 1), (apart, 2)]
    ]
    assert steps[0] == steps[1] != steps[2]


def test_ses_15_s03_releasing_is_idempotent_and_ends_a_run() -> None:
    engine = ScriptEngine()
    session = engine.open()
    ticket = engine.run(session, prompt_of(30), max_outputs=50)
    engine.turn()
    engine.turn()
    closings = [engine.command("close", session) for _ in range(2)]
    engine.turn()
    assert [engine.done(closing).existed for closing in closings] == [True, False]
    assert engine.finished(ticket).reason == "cancelled"
    engine.assert_at_rest()


def test_ses_18_s12_beyond_the_limit_opening_is_refused_until_one_closes() -> None:
    engine = ScriptEngine(max_sessions=3)
    sessions = [engine.open() for _ in range(3)]
    for _ in range(100):
        with pytest.raises(_core.ResourceExhausted) as refusal:
            engine.open()
        assert refusal.value.reason == "SESSIONS_FULL"
    with pytest.raises(_core.ResourceExhausted, match="SESSIONS_FULL"):
        engine.command("fork", sessions[0], 99)
    engine.command("close", sessions[1])
    engine.turn_until_idle()
    engine.open()
    engine.turn_until_idle()
    assert engine.core.stats().sessions == 3


@pytest.mark.parametrize("evict", [False, True])
def test_ses_19_s21_idle_sessions_keep_their_blocks_unless_configured_otherwise(evict: bool) -> None:
    """Idle sessions fill a pool of 8 blocks: new work is refused, or evicts the longest idle session."""
    engine = ScriptEngine(n_blocks=8, max_context=128, evict_sessions=evict)
    sessions = []
    for i in range(4):
        engine.core.now_ns = i
        sessions.append(engine.open())
        engine.step(sessions[-1], prompt_of(31, i), max_outputs=0)
    engine.core.now_ns = 10
    engine.step(sessions[0], [1])  # used again: sessions[1] is now the longest idle
    ticket = engine.generate(prompt_of(20, 9), max_outputs=4)
    engine.turn_until_idle()
    if evict:
        assert engine.tokens(ticket) == continuation(prompt_of(20, 9), 4)
        (expired,) = [e for e in engine.all_events if e.ticket == 0]
        assert (expired.sequence, expired.reason) == (sessions[1], "SESSION_EXPIRED")
        assert failure(engine, engine.run(sessions[1], [1])).reason == "SESSION_NOT_FOUND"
        assert engine.core.stats().sessions == 3
        return
    error = failure(engine, ticket)
    assert (error.reason, error.details) == ("KV_FULL", {"needed": "2", "available": "0"})
    assert failure(engine, engine.run(sessions[2], [1, 2, 3])).reason == "KV_FULL"  # growth
    assert failure(engine, engine.run(engine.open(), [1])).reason == "KV_FULL"  # a new session
    assert engine.step(sessions[3], [7]) == continuation([*prompt_of(31, 3), 7], 1)[0]  # fits in its own block


def test_ses_19_no_session_is_ended_for_blocks_that_do_not_become_free() -> None:
    """The longest idle sessions are one without blocks, and one that shares all blocks with a running fork."""
    engine = ScriptEngine(n_blocks=8, max_context=128, evict_sessions=True)
    empty = engine.open()
    shared = engine.open()
    engine.step(shared, prompt_of(32), max_outputs=0)
    copy = engine.sequence()
    forking = engine.command("fork", shared, copy)
    engine.turn_until_idle()
    assert engine.done(forking).position == 32
    engine.core.now_ns = 5
    idle = engine.open()
    engine.step(idle, prompt_of(64, 1), max_outputs=0)
    running = engine.run(copy, prompt_of(16, 3), max_outputs=16)
    engine.turn()
    ticket = engine.generate(prompt_of(20, 9), max_outputs=4)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt_of(20, 9), 4)
    assert len(engine.tokens(running)) == 16
    assert [e.sequence for e in engine.all_events if e.ticket == 0] == [idle]
    assert engine.step(shared, [7]) == continuation([*prompt_of(32), 7], 1)[0]
    assert engine.step(empty, [7]) == continuation([7], 1)[0]


def test_ses_19_what_a_fork_holds_too_goes_last_though_it_rests_for_longest() -> None:
    engine = ScriptEngine(n_blocks=8, max_context=128, evict_sessions=True)
    parent = engine.open()
    engine.step(parent, prompt_of(32), max_outputs=0)
    copy = engine.sequence()
    engine.command("fork", parent, copy)
    engine.turn_until_idle()
    engine.core.now_ns = 5
    alone = engine.open()
    engine.step(alone, prompt_of(80, 1), max_outputs=0)
    engine.core.now_ns = 9
    engine.step(copy, prompt_of(16, 2), max_outputs=0)
    ticket = engine.generate(prompt_of(20, 9), max_outputs=4)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt_of(20, 9), 4)
    assert [e.sequence for e in engine.all_events if e.ticket == 0] == [alone]


def test_ses_19_forks_that_are_idle_together_give_way_together() -> None:
    engine = ScriptEngine(n_blocks=8, max_context=128, evict_sessions=True)
    parent = engine.open()
    engine.step(parent, prompt_of(112), max_outputs=0)
    copies = [engine.sequence() for _ in range(2)]
    for copy in copies:
        engine.command("fork", parent, copy)
        engine.turn_until_idle()
    ticket = engine.generate(prompt_of(20, 9), max_outputs=4)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt_of(20, 9), 4)
    assert sorted(e.sequence for e in engine.all_events if e.ticket == 0) == sorted([parent, *copies])


@pytest.mark.parametrize("sampler", [Sampler(), SEEDED], ids=["greedy", "seeded"])
def test_ses_20_resuming_draws_from_the_last_held_position(sampler: Sampler) -> None:
    prompt = prompt_of(32)  # the last held token fills a shared block
    outputs = continuation(prompt, 8, sampler)
    for sampled in (True, False):
        engine = ScriptEngine()
        session = engine.open(sampling=sampler)
        engine.step(session, prompt, max_outputs=int(sampled))
        copy = engine.sequence()
        engine.command("fork", session, copy)
        ticket = engine.run(session, resume=True, max_outputs=6)
        engine.turn_until_idle()
        assert engine.tokens(ticket) == outputs[sampled : 6 + sampled]
        assert engine.step(copy, resume=True) == outputs[sampled]
    engine = ScriptEngine()
    empty = engine.open()
    assert failure(engine, engine.run(empty, resume=True)).reason == "NO_PENDING_TOKEN"
    with pytest.raises(_core.InvalidArgument, match="resume"):
        engine.run(empty, [1], resume=True)


def test_ses_20_a_session_has_one_sequence() -> None:
    engine = ScriptEngine()
    session = engine.open()
    error = failure(engine, engine.run(session, [1, 2], siblings=[50]))
    assert (error.reason, error.details) == ("FIELD_INVALID", {"field": "num_sequences"})


def test_ses_23_s15_beyond_the_context_a_step_is_refused_and_the_session_stays_whole() -> None:
    engine = ScriptEngine(max_context=32)
    session, prompt = engine.open(), prompt_of(30)
    engine.step(session, prompt)
    error = failure(engine, engine.run(session, [1, 2, 3]))
    assert error.reason == "CONTEXT_TOO_LONG"
    assert (engine.core.held(session), engine.core.tokens(session)) == (30, prompt + continuation(prompt, 1))
    engine.step(session, [1, 2])
    assert failure(engine, engine.run(session)).reason == "CONTEXT_TOO_LONG"
    engine.command("truncate", session, 30)
    assert engine.step(session, [4]) == continuation([*prompt, 4], 1)[0]


def test_s24_base_decides_the_draws_after_truncation_and_replay() -> None:
    """After truncation from output 5 to 3 the draws are the same, as are those of a new session with that base."""
    engine = ScriptEngine()
    sampler = Sampler(temperature=1.0, seed=3, presence_penalty=1.0, frequency_penalty=0.5)
    session, prompt = engine.open(sampling=sampler), prompt_of(14)
    outputs = [engine.step(session, prompt), *[engine.step(session) for _ in range(5)]]
    assert outputs == continuation(prompt, 6, sampler)
    engine.command("truncate", session, 14 + 2)
    assert engine.step(session, [outputs[2]]) == outputs[3]
    assert engine.core.base(session) == 14
    engine.command("truncate", session, 9)
    engine.turn_until_idle()
    assert engine.core.base(session) == 9
    error = failure(engine, engine.run(session, [1], base=11))
    assert str(error) == "FIELD_INVALID: base: 11, expected at most the position after this run, 10"
    ticket = engine.run(session, prompt[9:], rebase=True, max_outputs=6)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == outputs


class ListModel:
    """The expected sessions: for each, the held tokens, the pending token, and the base."""

    def __init__(self, engine: ScriptEngine, sampler: Sampler, max_context: int) -> None:
        self.engine, self.sampler, self.max_context = engine, sampler, max_context
        self.sessions: dict[int, tuple[list[int], list[int], int]] = {}

    def open(self) -> None:
        self.sessions[self.engine.open(sampling=self.sampler)] = [], [], -1

    def run(self, name: int, given: list[int], n: int) -> None:
        """Evaluates `given`, or the pending token, for n outputs."""
        ticket = self.engine.run(name, given, max_outputs=n)
        self.engine.turn_until_idle()
        held, pending, base = self.sessions[name]
        held = held + (given or pending)
        if not (given or pending) or len(held) > self.max_context:
            with pytest.raises(Failed):
                self.engine.finished(ticket)
            return
        base = len(held) if base < 0 else base
        outputs = continuation(held, n, self.sampler, base=base)[: self.max_context - len(held) + 1]
        assert self.engine.tokens(ticket) == outputs
        self.sessions[name] = held + outputs[:-1], outputs[-1:], base

    def fork(self, name: int, position: int) -> None:
        held, pending, base = self.sessions[name]
        copy = self.engine.sequence()
        self.engine.command("fork", name, copy, position)
        self.sessions[copy] = held[:position], pending if position == len(held) else [], min(base, position)

    def truncate(self, name: int, position: int) -> None:
        held, _, base = self.sessions[name]
        self.engine.command("truncate", name, position)
        if position < len(held):
            self.sessions[name] = held[:position], [], min(base, position)

    def close(self, name: int) -> None:
        self.engine.command("close", name)
        del self.sessions[name]

    def check(self) -> None:
        self.engine.turn_until_idle()
        core = self.engine.core
        for name, (held, pending, base) in self.sessions.items():
            assert (core.held(name), core.tokens(name), core.base(name)) == (len(held), held + pending, base)
            assert len(core.blocks(name)) == (len(held) + 3) // 4
        assert core.stats().blocks_live == len({block for name in self.sessions for block in core.blocks(name)})


def test_s29_random_operations_against_a_list_model() -> None:
    """Compares tokens, positions, bases and blocks after each random open, extend, step, fork, truncate and close."""
    rng = random.Random(17)
    engine = ScriptEngine(n_blocks=200, max_context=96, prefill_chunk=8, step_tokens=24, script={"block_tokens": 4})
    model = ListModel(engine, Sampler(temperature=1.3, seed=9, presence_penalty=0.3), 96)
    for _ in range(N_OPERATIONS):
        operation = rng.choice(["open", "extend", "extend", "step", "step", "run", "fork", "truncate", "close"])
        if operation == "open" or not model.sessions:
            if len(model.sessions) < 6:
                model.open()
            continue
        name = rng.choice(sorted(model.sessions))
        position = rng.randrange(len(model.sessions[name][0]) + 1)
        if operation == "step":
            model.run(name, [], 1)
        elif operation in {"extend", "run"}:
            n = rng.randrange(2) if operation == "extend" else rng.randrange(1, 8)
            model.run(name, prompt_of(rng.randrange(1, 20), rng.randrange(3)), n)
        elif operation == "fork" and len(model.sessions) < 8:
            model.fork(name, position)
        elif operation == "truncate":
            model.truncate(name, position)
        elif operation == "close":
            model.close(name)
        model.check()
    for name in list(model.sessions):
        model.close(name)
    engine.turn_until_idle()
    engine.assert_at_rest()
