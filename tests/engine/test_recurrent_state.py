"""A model with recurrent state: chunks, other requests, forks, truncation, preemption and cache change no token."""

from __future__ import annotations

import random
from typing import Any

import pytest

from imp_service import _core
from support.engine.script_engine import Failed, Sampler, ScriptEngine
from support.oracles.script_oracle import continuation, hash_logits, prompt_of
from support.run.release_run import repetitions

pytestmark = pytest.mark.usefixtures("ahead")
N_COMMANDS = repetitions(100_000, 2_500)
SEEDED = Sampler(temperature=0.9, seed=11)


def state_engine(n_state_slots: int = 40, *, block_tokens: int = 4, **given: Any) -> ScriptEngine:
    """Makes an engine with blocks of 4 tokens and a snapshot every 16. A wrong state changes the logits."""
    script = {"state": True, "block_tokens": block_tokens, **given.pop("script", {})}
    options = {"n_blocks": 256, "state_snapshot_tokens": 16, **given}
    return ScriptEngine(n_state_slots=n_state_slots, script=script, **options)


def n_held(engine: ScriptEngine) -> int:
    """Returns the number of slots that sequences or steps hold."""
    held, snapshots, free = engine.core.states()
    assert held + snapshots + free > 0
    return int(held)


def n_evaluated(engine: ScriptEngine) -> int:
    return sum(rows for step in engine.evaluated() for _, rows in step)


@pytest.mark.parametrize("chunk", [1, 7, 64, 512])
def test_det_2_rec_1_chunks_change_no_token(chunk: int) -> None:
    engine = state_engine(prefill_chunk=chunk, step_tokens=512)
    prompt = prompt_of(150)
    assert engine.complete(prompt, max_outputs=40, sampling=SEEDED) == continuation(prompt, 40, SEEDED)
    engine.assert_at_rest()
    assert n_held(engine) == 0


def test_rec_1_negative_control_a_wrong_state_is_seen() -> None:
    engine = state_engine()
    sequence, prompt = engine.sequence(), prompt_of(21)
    ticket = engine.generate(prompt, sequence=sequence, max_outputs=20)
    while not engine.tokens(ticket):
        engine.turn()
    engine.core.break_state(engine.core.state_slot(sequence))
    engine.turn_until_idle()
    assert engine.tokens(ticket) != continuation(prompt, 20)
    assert engine.tokens(ticket)[:1] == continuation(prompt, 1)


@pytest.mark.few(9)
@pytest.mark.parametrize("n_state_slots", [2, 3, 5, 9, 64])
def test_det_1_rec_2_output_depends_neither_on_company_nor_on_the_number_of_slots(n_state_slots: int) -> None:
    """With two slots the requests run one after the other; none is refused."""
    engine = state_engine(n_state_slots, prefill_chunk=16, step_tokens=40)
    wanted = [(prompt_of(2 + 9 * i % 61, i % 3), 5 + 7 * i % 30) for i in range(12)]
    tickets = []
    for prompt, n in wanted:
        tickets.append(engine.generate(prompt, max_outputs=n, sampling=SEEDED))
        engine.turn()
    most = 0
    while engine.turn():
        most = max(most, engine.core.stats().running)
    assert 1 <= most <= n_state_slots - 1
    for ticket, (prompt, n) in zip(tickets, wanted, strict=True):
        assert engine.tokens(ticket) == continuation(prompt, n, SEEDED)
    engine.assert_at_rest()
    assert n_held(engine) == 0


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_det_5_rec_3_preemption_after_every_token_changes_none(prefix_cache: bool) -> None:
    """With the cache, a preempted run resumes at the last snapshot."""
    engine = state_engine(prefix_cache=prefix_cache)
    sequence, prompt = engine.sequence(), prompt_of(37)
    ticket = engine.generate(prompt, sequence=sequence, max_outputs=60, sampling=SEEDED)
    n_outputs = n_preempted = 0
    while engine.turn():
        if n_outputs < len(engine.tokens(ticket)) < 60:
            n_outputs = len(engine.tokens(ticket))
            n_preempted += 1
            assert engine.core.preempt(sequence)
    assert engine.tokens(ticket) == continuation(prompt, 60, SEEDED)
    assert engine.finished(ticket).n_preemptions == n_preempted
    assert n_preempted == 59 or (ScriptEngine.drafts > 0 and n_preempted > 12)
    lowest = min(first for step in engine.evaluated()[-6:] for first, _ in step)
    assert lowest in ((64, 80) if prefix_cache else (0,))
    engine.assert_at_rest()
    assert n_held(engine) == 0


@pytest.mark.parametrize(("n_state_slots", "most"), [(2, 0), (4, 1), (9, 2), (40, 10), (400, 16)])
def test_spc_11_rec_2_guesses_take_a_quarter_of_the_slots_for_their_step(n_state_slots: int, most: int) -> None:
    """They evict snapshots, but no more than that."""
    engine = state_engine(n_state_slots, script={"drafts": 1.0, "ahead": False})
    for i in range(12):
        engine.complete(prompt_of(40, i), max_outputs=1, max_draft_tokens=0)
    n_before, n_steps, prompt = engine.core.states()[1], len(engine.evaluated()), prompt_of(21, 13)
    ticket = engine.generate(prompt, max_outputs=40, max_draft_tokens=16)
    fewest = n_before
    while engine.turn():
        fewest = min(fewest, engine.core.states()[1])
    assert engine.tokens(ticket) == continuation(prompt, 40)
    assert max(n for step in engine.evaluated()[n_steps:] for first, n in step if first >= 21) == 1 + most
    assert fewest >= n_before - most - 2
    assert n_held(engine) == 0


@pytest.mark.parametrize("right", [0.0, 0.5, 1.0])
def test_spc_5_rec_3_rounds_leave_the_snapshots_of_single_steps(right: float) -> None:
    """A state that is kept within a round is that of its position, and those after it do not count."""
    engine = state_engine(400, script={"drafts": right, "ahead": False})
    prompt = prompt_of(10)
    reply = engine.complete(prompt, max_outputs=60, max_draft_tokens=9)
    assert reply == continuation(prompt, 60)
    assert engine.core.states()[1:] == (5, 395)  # after 8, 16, 32, 48 and 64 tokens
    for n_common in (17, 33, 50, 69):
        again = [*prompt, *reply][:n_common]
        ticket = engine.generate(again, max_outputs=4, max_draft_tokens=0)
        engine.turn_until_idle()
        assert engine.tokens(ticket) == continuation(again, 4)
        assert engine.started(ticket).n_cached_tokens == max(p for p in (16, 32, 48, 64) if p < n_common)


@pytest.mark.few(2)
def test_pfx_1_rec_3_a_prefix_is_found_up_to_its_last_snapshot() -> None:
    """A prompt of 70 has snapshots at 16, 32, 48, 64 and 68; prompts with a common prefix resume at one of them."""
    for n_common in range(1, 71):
        engine = state_engine()
        prompt = prompt_of(70)
        engine.complete(prompt, max_outputs=1)
        other = [*prompt[:n_common], *[(token + 1) % 16 for token in prompt[n_common:]]]
        ticket = engine.generate(other, max_outputs=8)
        engine.turn_until_idle()
        assert engine.tokens(ticket) == continuation(other, 8)
        expected = max(p for p in (0, 16, 32, 48, 64, 68) if p <= min(n_common, 69))
        assert engine.started(ticket).n_cached_tokens == expected


def test_rec_3_the_next_turn_of_a_chat_evaluates_only_what_is_new() -> None:
    engine = state_engine(state_snapshot_tokens=128, prefill_chunk=64, max_context=256)
    prompt = prompt_of(61)
    reply = engine.complete(prompt, max_outputs=20)
    ticket = engine.generate([*prompt, *reply, 3, 5], max_outputs=4)
    engine.turn_until_idle()
    assert engine.started(ticket).n_cached_tokens == 60
    assert engine.tokens(ticket) == continuation([*prompt, *reply, 3, 5], 4)


def test_rec_3_outputs_have_snapshots_too() -> None:
    engine = state_engine()
    prompt = prompt_of(10)
    reply = engine.complete(prompt, max_outputs=60)
    ticket = engine.generate([*prompt, *reply], max_outputs=4)
    engine.turn_until_idle()
    assert engine.started(ticket).n_cached_tokens == 64


@pytest.mark.parametrize("every", [1, 4, 13, 16, 1 << 20])
def test_rec_3_snapshots_are_as_far_apart_as_asked(every: int) -> None:
    engine = state_engine(state_snapshot_tokens=every)
    engine.complete(prompt_of(50), max_outputs=1)
    rounded = -(-every // 4) * 4
    expected = {*range(rounded, 51, rounded), 48}
    assert engine.core.states()[1] == len(expected)


def test_rec_3_a_snapshot_leaves_with_its_block() -> None:
    engine = state_engine()
    engine.complete(prompt_of(50), max_outputs=1)
    assert engine.core.states()[1] == 3
    engine.command("flush")
    engine.turn_until_idle()
    assert engine.core.states() == (0, 0, 40)


def test_rec_4_without_a_slot_to_spare_there_are_no_snapshots() -> None:
    engine = state_engine(2, prefix_cache=True)
    prompt = prompt_of(50)
    assert engine.complete(prompt, max_outputs=30) == continuation(prompt, 30)
    assert sum(engine.core.states()) == 2


@pytest.mark.few(6)
@pytest.mark.parametrize("n_state_slots", [2, 4, 40])
def test_ses_14_rec_5_truncated_to_any_position_a_session_goes_on(n_state_slots: int) -> None:
    """This holds even if the snapshots were evicted: then the tokens are evaluated again."""
    engine = state_engine(n_state_slots)
    prompt = prompt_of(45)
    for position in range(46):
        session = engine.open()
        engine.step(session, prompt, max_outputs=0)
        ticket = engine.command("truncate", session, position)
        engine.turn_until_idle()
        assert engine.done(ticket).position == position
        ticket = engine.run(session, [7, 9], max_outputs=6)
        engine.turn_until_idle()
        assert engine.tokens(ticket) == continuation([*prompt[:position], 7, 9], 6)
        assert engine.started(ticket).n_tokens == 2
        assert engine.finished(ticket).position == position + 7
        engine.command("close", session)
        engine.turn_until_idle()
    engine.assert_at_rest()
    assert n_held(engine) == 0


def test_rec_5_a_truncated_session_evaluates_no_more_than_from_the_last_snapshot() -> None:
    engine = state_engine()
    session = engine.open()
    engine.step(session, prompt_of(45), max_outputs=0)
    engine.command("truncate", session, 39)
    engine.turn_until_idle()
    before = n_evaluated(engine)
    engine.step(session, [1], max_outputs=1)
    assert n_evaluated(engine) - before == 39 - 32 + 1


@pytest.mark.parametrize("n_state_slots", [2, 4, 40])
def test_ses_14_rec_5_a_fork_at_any_position_and_its_parent_go_on(n_state_slots: int) -> None:
    engine = state_engine(n_state_slots)
    prompt = prompt_of(37)
    parent = engine.open()
    engine.step(parent, prompt, max_outputs=0)
    grown = list(prompt)
    for position in range(38):
        copy = engine.sequence()
        engine.command("fork", parent, copy, position)
        tickets = [engine.run(copy, [2, 3], max_outputs=5), engine.run(parent, [4], max_outputs=1)]
        engine.turn_until_idle()
        assert engine.tokens(tickets[0]) == continuation([*grown[:position], 2, 3], 5)
        assert engine.tokens(tickets[1]) == continuation([*grown, 4], 1)
        grown.append(4)
        engine.command("close", copy)
        engine.turn_until_idle()
    engine.command("close", parent)
    engine.turn_until_idle()
    engine.assert_at_rest()
    assert n_held(engine) == 0


def test_rec_5_an_idle_session_goes_on_at_once_and_forks_share_its_state() -> None:
    engine = state_engine()
    session, copy = engine.open(), engine.sequence()
    engine.step(session, prompt_of(30), max_outputs=0)
    free = engine.core.states()[2]
    engine.command("fork", session, copy)
    engine.turn_until_idle()
    assert (n_held(engine), engine.core.states()[2]) == (0, free)
    before = n_evaluated(engine)
    engine.step(session, [1], max_outputs=1)
    engine.step(copy, [1], max_outputs=1)
    assert n_evaluated(engine) - before == 2


def test_rec_5_drawing_again_and_scores_go_back_to_a_snapshot() -> None:
    """The state before the last token is gone, so tokens are evaluated again; the client does not see them twice."""
    engine = state_engine()
    session, prompt = engine.open(), prompt_of(30)
    engine.step(session, prompt, max_outputs=0)
    ticket = engine.run(session, [], max_outputs=1, resume=True)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt, 1)
    engine.command("truncate", session, 30)
    scored = engine.run(session, [5, 6, 7], max_outputs=1, scores=True)
    engine.turn_until_idle()
    assert engine.tokens(scored) == continuation([*prompt, 5, 6, 7], 1)
    assert engine.started(scored).scores.tokens == [5, 6, 7]


def test_gen_20_rec_6_siblings_share_the_state_of_their_prompt() -> None:
    engine = state_engine()
    prompt, sequences = prompt_of(30), [engine.sequence() for _ in range(4)]
    ticket = engine.generate(prompt, sequence=sequences[0], siblings=sequences[1:], sampling=SEEDED, max_outputs=20)
    engine.turn_until_idle()
    for stream in range(4):
        assert engine.tokens(ticket, stream) == continuation(prompt, 20, SEEDED, sequence=stream)
    engine.assert_at_rest()
    assert n_held(engine) == 0


def test_gen_20_rec_6_more_siblings_than_slots_are_refused() -> None:
    engine = state_engine(4)
    sequences = [engine.sequence() for _ in range(4)]
    with pytest.raises(_core.InvalidArgument, match=r"num_sequences.*at most 3"):
        engine.generate(prompt_of(5), sequence=sequences[0], siblings=sequences[1:])
    ticket = engine.generate(prompt_of(5), sequence=sequences[0], siblings=sequences[1:3], max_outputs=6)
    engine.turn_until_idle()
    assert [len(engine.tokens(ticket, stream)) for stream in range(3)] == [6] * 3


@pytest.mark.parametrize("n_state_slots", [3, 40])
@pytest.mark.parametrize("failing", ["forward", "sample"])
def test_ses_12_rec_7_a_failed_step_changes_no_state(n_state_slots: int, failing: str) -> None:
    """Each step fails once; then its rows run one by one, or the session repeats the step."""
    prompt = prompt_of(25)
    for number in range(4):
        engine = state_engine(n_state_slots, prefill_chunk=16)
        session = engine.open()
        engine.step(session, prompt, max_outputs=0)
        if failing == "forward":
            script = engine.core.script
            script.failing = [engine.core.n_forwards + number]
        else:
            engine.core.failing_samples = [engine.core.n_sample_calls + number]
        other = engine.generate(prompt_of(9, 5), max_outputs=12)
        tokens, n_failed = [*prompt], 0
        while len(tokens) < 40:
            ticket = engine.run(session, [len(tokens) % 16], max_outputs=1)
            engine.turn_until_idle()
            try:
                engine.finished(ticket)
            except Failed:
                n_failed += 1
                continue
            tokens.append(len(tokens) % 16)
            assert engine.tokens(ticket) == continuation(tokens, 1)
        try:
            engine.finished(other)
            assert engine.tokens(other) == continuation(prompt_of(9, 5), 12)
        except Failed:
            n_failed += 1
        assert n_failed <= 1
        engine.command("close", session)
        engine.turn_until_idle()
        engine.assert_at_rest()
        assert n_held(engine) == 0


def test_rec_7_a_cancelled_run_leaves_the_state_before_it() -> None:
    engine = state_engine(prefill_chunk=8)
    session, prompt = engine.open(), prompt_of(22)
    engine.step(session, prompt, max_outputs=0)
    ticket = engine.run(session, prompt_of(40, 1), max_outputs=4)
    for _ in range(3):
        engine.turn()
    engine.core.end(ticket, session)
    engine.turn_until_idle()
    ticket = engine.run(session, [1, 2], max_outputs=3)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation([*prompt, 1, 2], 3)


def test_rec_2_a_paused_generation_holds_nobody_up() -> None:
    """With two slots, a second generation runs while the reader pauses the first, which then resumes."""
    engine = state_engine(2)
    sequence, prompt = engine.sequence(), prompt_of(20)
    first = engine.generate(prompt, sequence=sequence, max_outputs=20, sampling=SEEDED)
    while len(engine.tokens(first)) < 5:
        engine.turn()
    engine.core.pause(first, sequence, paused=True)
    second = engine.generate(prompt_of(9, 3), max_outputs=8)
    engine.turn_until_idle()
    assert engine.tokens(second) == continuation(prompt_of(9, 3), 8)
    assert len(engine.tokens(first)) < 8
    engine.core.pause(first, sequence, paused=False)
    engine.turn_until_idle()
    assert engine.tokens(first) == continuation(prompt, 20, SEEDED)
    engine.assert_at_rest()


def test_rec_2_a_model_without_state_takes_no_slots_and_one_with_state_needs_two() -> None:
    with pytest.raises(_core.InvalidArgument, match="n_state_slots"):
        ScriptEngine(n_state_slots=2)
    for n in (0, 1):
        with pytest.raises(_core.InvalidArgument, match="n_state_slots"):
            state_engine(n)
    assert ScriptEngine().core.states() == (0, 0, 0)


class Client:
    """Runs random commands over a few sessions and predicts each answer from a list of tokens per session."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.engine = state_engine(
            rng.choice([2, 3, 5, 12, 60]),
            n_blocks=rng.choice([64, 120, 400]),
            max_running=rng.choice([1, 3, 16]),
            prefill_chunk=rng.choice([1, 7, 16, 64]),
            prefix_cache=rng.random() < 0.8,
            state_snapshot_tokens=rng.choice([4, 16, 40]),
            script={"records": False},
        )
        self.sessions: dict[int, list[int]] = {}
        self.expected: dict[int, tuple[int, list[int]]] = {}
        self.running: dict[int, int] = {}  # ticket -> generation

    def act(self) -> None:
        rng = self.rng
        name = rng.choice(["open", "step", "step", "step", "fork", "truncate", "close", "generate", "generate", "many"])
        session = rng.choice(sorted(self.sessions)) if self.sessions else 0
        if name == "open" and len(self.sessions) < 6:
            self.sessions[self.engine.open()] = []
        elif name in {"generate", "many"}:
            self.generate()
            if name == "many" and rng.random() < 0.3:
                self.engine.command("flush")
        elif session and name == "step":
            self.step(session)
        elif session and name == "fork" and len(self.sessions) < 6:
            self.fork(session)
        elif session and name == "truncate":
            position = rng.randrange(len(self.sessions[session]) + 1)
            self.engine.command("truncate", session, position)
            del self.sessions[session][position:]
        elif session and name == "close" and rng.random() < 0.5:
            self.engine.command("close", session)
            del self.sessions[session]
        for _ in range(rng.randrange(5)):
            self.engine.turn()
            if self.running and rng.random() < 0.2:
                self.disturb()

    def tokens(self, most: int) -> list[int]:
        return [self.rng.randrange(2) for _ in range(self.rng.randrange(1, most))]

    def step(self, session: int) -> None:
        held = self.sessions[session]
        given, n = self.tokens(30), self.rng.randrange(3)
        if len(held) + len(given) + n > 120:
            return
        ticket = self.engine.run(session, given, max_outputs=n)
        self.engine.turn_until_idle()
        held += given
        try:
            self.engine.finished(ticket)
        except Failed as failed:
            assert failed.reason == "KV_FULL"
            del held[len(held) - len(given) :]
            return
        outputs = continuation(held, n)
        assert self.engine.tokens(ticket) == outputs
        held += outputs[:-1]  # the last one is pending

    def fork(self, session: int) -> None:
        copy = self.engine.sequence()
        position = self.rng.randrange(len(self.sessions[session]) + 1)
        self.engine.command("fork", session, copy, position)
        self.sessions[copy] = self.sessions[session][:position]

    def generate(self) -> None:
        sequence, prompt, n = self.engine.sequence(), self.tokens(70), self.rng.randrange(1, 40)
        ticket = self.engine.generate(prompt, sequence=sequence, max_outputs=n)
        self.expected[ticket] = sequence, continuation(prompt, n)
        self.running[ticket] = sequence

    def disturb(self) -> None:
        ticket, sequence = self.rng.choice(sorted(self.running.items()))
        if any(isinstance(event, _core.FinishedEvent | _core.FailedEvent) for event in self.engine.events[ticket]):
            del self.running[ticket]
        elif self.rng.random() < 0.7:
            self.engine.core.preempt(sequence)

    def check(self) -> None:
        for session in self.sessions:  # a preempted generation may wait for these blocks
            self.engine.command("close", session)
        self.engine.turn_until_idle()
        for ticket, (_, expected) in self.expected.items():
            try:
                self.engine.finished(ticket)
                assert self.engine.tokens(ticket) == expected
            except Failed as failed:
                assert failed.reason == "KV_FULL"
        assert n_held(self.engine) == 0
        self.engine.command("flush")
        self.engine.turn_until_idle()
        self.engine.assert_at_rest()
        held, snapshots, _ = self.engine.core.states()
        assert (held, snapshots) == (0, 0)


@pytest.mark.few(2)
def test_det_9_rec_1_random_commands_give_what_a_list_of_tokens_gives() -> None:
    rng = random.Random(5)
    for _ in range(N_COMMANDS // 50):
        client = Client(rng)
        for _ in range(50):
            client.act()
        client.check()


def test_rec_1_the_oracle_sees_every_token() -> None:
    """Checks the model itself: a missing or different token changes the logits."""
    prompt = prompt_of(20)
    assert hash_logits(prompt, 16) != hash_logits(prompt[1:], 16)
