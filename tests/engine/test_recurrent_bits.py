"""Models with recurrent state, on the CPU: no bit of a logit depends on chunks, cache, company, threads or kernels.

tests/engine/test_recurrent_state.py shows the same of a scripted model. Here the states are those of the kernels.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core, _testing
from support.engine.script_engine import TurnedEngine
from support.models.forward_runs import BLOCK, load
from support.models.forward_runs import prompt as random_prompt
from support.models.tiny_models import tiny
from support.oracles.script_oracle import Sampler
from support.run.quick_run import Repeats

# Sizes that quantized weights allow.
WIDE: dict[str, Any] = {
    "hidden_size": 64, "ffn_size": 96, "delta_key_dim": 16, "delta_value_dim": 16, "delta_value_heads": 6,
}  # fmt: skip
KINDS = {
    "qwen35": tiny("qwen35", context=1024),
    "qwen35moe": tiny("qwen35moe", context=1024),
    "qwen3next": tiny("qwen3next", context=1024),
    "qwen35_q8_0": tiny("qwen35", context=1024, dtype="q8_0", **WIDE),
    "qwen3next_q8_0": tiny("qwen3next", context=1024, dtype="q8_0", expert_ffn_size=32, shared_ffn_size=32, **WIDE),
}
QUICK = ("qwen35", "qwen3next_q8_0")
ISAS = _testing.isas_here()
EVERY = 48  # tokens between snapshots
LONG = 530
MIXED = 20
SAMPLERS = (Sampler(), Sampler(temperature=0.9, seed=11))

# Outputs, and the logits that each was drawn from.
Drawn = tuple[list[int], list[bytes]]


@dataclasses.dataclass
class Models:
    """One model, loaded once for each instruction set and number of threads."""

    path: Path
    loaded: dict[tuple[str, int], Any] = dataclasses.field(default_factory=dict)
    known: dict[tuple[Any, ...], Drawn] = dataclasses.field(default_factory=dict)

    def engine(self, isa: str = "auto", threads: int = 1, **options: Any) -> TurnedEngine:
        if (isa, threads) not in self.loaded:
            self.loaded[isa, threads] = load(self.path, self.path.parent, isa=isa, threads=threads, max_rows=600)
        model = self.loaded[isa, threads]
        given = {
            "n_blocks": model.n_blocks, "n_state_slots": model.n_state_slots, "max_context": 700, "max_running": 8,
            "step_tokens": 600, "prefill_chunk": 600, "state_snapshot_tokens": EVERY, **options,
        }  # fmt: skip
        return TurnedEngine(_testing.ManualModelEngine(model, _core.EngineOptions(**given)))

    def alone(self, tokens: Sequence[int], n: int, sampler: Sampler = SAMPLERS[0]) -> Drawn:
        """Returns what a run draws that has an engine to itself, no cache, and its prompt in one piece."""
        key = (*tokens, n, sampler.temperature)
        if key not in self.known:
            engine = self.engine(prefix_cache=False)
            ticket = engine.generate(tokens, max_outputs=n, sampling=sampler, logits=True)
            engine.turn_until_idle()
            self.known[key] = drawn(engine, ticket)
            assert engine.core.stats().n_cached_tokens == 0
        return self.known[key]


@pytest.fixture(scope="module", params=KINDS)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(KINDS[request.param].write(tmp_path_factory.mktemp(request.param) / "m.gguf"))


def drawn(engine: TurnedEngine, ticket: int) -> Drawn:
    engine.finished(ticket)
    events = [event for event in engine.events[ticket] if isinstance(event, _core.TokenEvent)]
    return [event.token for event in events], [event.logits.tobytes() for event in events]


def prompt(n: int, seed: int = 1) -> list[int]:
    return random_prompt(n, 51, seed)


def run(engine: TurnedEngine, tokens: Sequence[int], n: int, **given: Any) -> tuple[int, Drawn]:
    """Returns the ticket of a generation that has ended, and what it drew."""
    ticket = engine.generate(tokens, max_outputs=n, logits=True, **given)
    engine.turn_until_idle()
    return ticket, drawn(engine, ticket)


def grow(engine: TurnedEngine, session: int, tokens: Sequence[int], n: int) -> Drawn:
    ticket = engine.run(session, tokens, max_outputs=n, logits=True)
    engine.turn_until_idle()
    return drawn(engine, ticket)


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("chunk", [1, 7, 64, 512])
def test_det_2_det_4_rec_1_chunks_and_threads_change_no_bit(models: Models, chunk: int, threads: int) -> None:
    tokens = prompt(LONG)
    engine = models.engine(threads=threads, prefill_chunk=chunk)
    assert run(engine, tokens, 6, sampling=SAMPLERS[1])[1] == models.alone(tokens, 6, SAMPLERS[1])
    assert engine.core.stats().n_steps == -(-LONG // chunk) + 5


@pytest.mark.sweep(quick=lambda models, **_: models in QUICK)
@pytest.mark.parametrize("every", [1, 16, EVERY, 512])
def test_rec_1_rec_3_snapshots_change_no_bit(models: Models, every: int) -> None:
    """States are saved in the middle of a chunk, at its end, and not at all."""
    tokens = prompt(LONG)
    engine = models.engine(state_snapshot_tokens=every, prefill_chunk=200)
    assert run(engine, tokens, 2)[1] == models.alone(tokens, 2)
    rounded = -(-every // BLOCK) * BLOCK
    expected = {*range(rounded, LONG, rounded), (LONG - 1) // BLOCK * BLOCK}
    assert engine.core.states()[1] == min(len(expected), sum(engine.core.states()))


@pytest.mark.long
def test_det_3_pfx_1_rec_3_a_prefix_hit_changes_no_bit(models: Models) -> None:
    """The common prefix ends at a snapshot, just before or after one, and between two."""
    first = prompt(170)
    snapshots = (0, 48, 96, 144, 160)
    for n_common in (1, 47, 48, 49, 63, 64, 80, 95, 96, 100, 143, 144, 145, 159, 160, 161, 169, 170):
        engine = models.engine(prefill_chunk=64)
        engine.complete(first, max_outputs=1)
        other = [*first[:n_common], *[(token + 1) % 51 for token in first[n_common:]]]
        for n_known in (n_common, 170):  # the second time all of it
            ticket, found = run(engine, other, 5)
            assert found == models.alone(other, 5), n_common
            expected = max(position for position in snapshots if position <= min(n_known, 169))
            assert engine.started(ticket).n_cached_tokens == expected


@pytest.mark.sweep(quick=lambda models: models in QUICK)
def test_ses_14_rec_5_truncation_to_any_position_changes_no_bit(models: Models) -> None:
    tokens = prompt(131)
    engine = models.engine(prefill_chunk=50)
    for position in (0, 1, 15, 16, 17, 47, 48, 49, 70, 96, 97, 127, 128, 129, 130, 131):
        session = engine.open()
        engine.step(session, tokens, max_outputs=0)
        engine.command("truncate", session, position)
        assert grow(engine, session, [7, 9, 11], 4) == models.alone([*tokens[:position], 7, 9, 11], 4), position
        engine.command("close", session)
        engine.turn_until_idle()


@pytest.mark.sweep(quick=lambda models: models in QUICK)
def test_ses_14_rec_5_a_session_refilled_with_other_tokens_has_their_state(models: Models) -> None:
    """After a refill, the state of the old tokens at the same length is not reused."""
    tokens, other = prompt(131), prompt(131, seed=2)
    engine = models.engine()
    for position in (0, 96, 127, 128, 129, 130):
        session = engine.open()
        engine.step(session, tokens, max_outputs=0)
        engine.command("truncate", session, position)
        engine.step(session, other[position:], max_outputs=0)
        expected = models.alone([*tokens[:position], *other[position:], 5], 4)
        assert grow(engine, session, [5], 4) == expected, position
        engine.command("close", session)
        engine.turn_until_idle()


@pytest.mark.sweep(quick=lambda models: models in QUICK)
def test_ses_14_rec_5_a_fork_at_any_position_and_its_parent_change_no_bit(models: Models) -> None:
    """Both go on in the same steps."""
    held = prompt(131)
    engine = models.engine()
    parent = engine.open()
    engine.step(parent, held, max_outputs=0)
    for position in (0, 1, 16, 47, 48, 49, 70, 96, 128, 129, 131, None):
        copy = engine.sequence()
        engine.command("fork", parent, copy, position)
        tickets = [
            engine.run(copy, [2, 3], max_outputs=4, logits=True), engine.run(parent, [4], max_outputs=1, logits=True)
        ]  # fmt: skip
        engine.turn_until_idle()
        assert drawn(engine, tickets[0]) == models.alone([*held[:position], 2, 3], 4), position
        held = [*held, 4]
        assert drawn(engine, tickets[1]) == models.alone(held, 1), position
        engine.command("close", copy)
        engine.turn_until_idle()


@pytest.mark.sweep(quick=lambda models, **_: models in QUICK)
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_det_5_rec_3_preemption_after_every_token_changes_no_bit(models: Models, prefix_cache: bool) -> None:
    """With the cache a preempted run goes on at its last snapshot, without it at the beginning."""
    tokens, n = prompt(61), 50
    engine = models.engine(prefix_cache=prefix_cache, prefill_chunk=40)
    sequence = engine.sequence()
    ticket = engine.generate(tokens, sequence=sequence, max_outputs=n, sampling=SAMPLERS[1], logits=True)
    n_preempted = 0
    while engine.turn():
        if n_preempted < len(engine.tokens(ticket)) < n:
            n_preempted += 1
            assert engine.core.preempt(sequence)
    assert drawn(engine, ticket) == models.alone(tokens, n, SAMPLERS[1])
    assert engine.finished(ticket).n_preemptions == n - 1
    rows = engine.core.stats().n_prefill_rows
    from_the_beginning = sum(range(len(tokens), len(tokens) + n))
    assert (rows < from_the_beginning / 3) == prefix_cache


def mixed(engine: TurnedEngine) -> list[tuple[int, list[int], int, Sampler]]:
    """Runs requests that arrive one after the other, some preempted, some with a prefix of earlier ones."""
    rng, requests = random.Random(MIXED), []
    for i in range(MIXED):
        tokens = prompt(rng.randrange(3, 150), seed=1 + i % 3)
        sequence, sampler, n = engine.sequence(), SAMPLERS[i % 2], rng.randrange(2, 20)
        ticket = engine.generate(tokens, sequence=sequence, max_outputs=n, sampling=sampler, logits=True)
        requests.append((ticket, tokens, n, sampler))
        for _ in range(rng.randrange(3)):
            engine.turn()
        if rng.random() < 0.3 and engine.tokens(ticket) and len(engine.tokens(ticket)) < n:
            engine.core.preempt(sequence)
    engine.turn_until_idle()
    return requests


@pytest.mark.long
@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("isa", ISAS)
def test_det_1_det_7_sch_1_company_on_every_instruction_set_changes_no_bit(
    models: Models, isa: str, threads: int, chunk: int
) -> None:
    engine = models.engine(isa, threads, prefill_chunk=chunk, step_tokens=100)
    for ticket, tokens, n, sampler in mixed(engine):
        assert drawn(engine, ticket) == models.alone(tokens, n, sampler)
    stats = engine.core.stats()
    assert stats.n_cached_tokens > 0
    assert stats.n_steps < stats.n_decode_rows


@pytest.mark.long
@pytest.mark.parametrize("n_guesses", [1, 5, 16])
def test_spc_1_spc_2_rec_1_guesses_change_no_bit(models: Models, n_guesses: int) -> None:
    """The sequence continues from the state of the last accepted token, whatever number of guesses was rejected."""
    engine = models.engine(drafters=["ngram"], threads=2, fixed_depth=True)
    engine.max_draft_tokens = n_guesses
    for n_repeats, sampler in ((1, SAMPLERS[0]), (3, SAMPLERS[0]), (3, SAMPLERS[1])):
        tokens = prompt(40) * n_repeats
        assert run(engine, tokens, 90, sampling=sampler)[1] == models.alone(tokens, 90, sampler)
    for ticket, tokens, n, sampler in mixed(engine):
        assert drawn(engine, ticket) == models.alone(tokens, n, sampler)
    drafts = engine.core.stats().drafts
    assert 0 < drafts.n_accepted < drafts.n_drafted
    assert engine.core.states()[0] == 0


def test_det_7_hon_2_instruction_sets_have_kernels_of_their_own(models: Models) -> None:
    """Sets of which a later one has a kernel for these weights that an earlier one has not."""
    for isa in ISAS:
        models.engine(isa)
    kernels = {isa: {name for w in models.loaded[isa, 1].weights for name in w["kernels"]} for isa in ISAS}
    assert len({frozenset(names) for names in kernels.values()}) >= min(3, len(ISAS)), kernels


class Commands:
    """Random commands to sessions and generations of one engine, with what each must give."""

    def __init__(self, models: Models, rng: random.Random) -> None:
        self.models, self.rng = models, rng
        self.engine = models.engine(
            rng.choice(ISAS[1:] or ISAS), rng.choice([1, 2]), prefill_chunk=rng.choice([1, 7, 64, 512]),
            prefix_cache=rng.random() < 0.8, n_state_slots=rng.choice([5, 9, 16]), max_running=rng.choice([2, 4]),
            state_snapshot_tokens=rng.choice([16, EVERY, 512]), drafters=rng.choice([[], ["ngram"]]),
        )  # fmt: skip
        self.engine.max_draft_tokens = 7
        self.sessions: dict[int, list[int]] = {}
        self.generations: dict[int, tuple[int, list[int], int]] = {}  # ticket -> sequence, prompt, outputs

    def act(self) -> None:
        rng = self.rng
        name = rng.choice(["open", "grow", "grow", "fork", "truncate", "close", "generate"])
        session = rng.choice(sorted(self.sessions)) if self.sessions else 0
        if name == "open" or not session:
            self.sessions[self.engine.open()] = []
        elif name == "generate":
            sequence, tokens, n = self.engine.sequence(), prompt(rng.randrange(1, 120), rng.randrange(1, 3)), 8
            ticket = self.engine.generate(tokens, sequence=sequence, max_outputs=n, logits=True)
            self.generations[ticket] = sequence, tokens, n
        elif name == "grow" and len(self.sessions[session]) < 300:
            held = [*self.sessions[session], *prompt(rng.randrange(1, 70), rng.randrange(1, 3))]
            found = grow(self.engine, session, held[len(self.sessions[session]) :], 2)
            assert found == self.models.alone(held, 2)
            self.sessions[session] = [*held, found[0][0]]  # the last one is pending
        elif name == "fork" and len(self.sessions) < 5:
            position, copy = rng.randrange(len(self.sessions[session]) + 1), self.engine.sequence()
            self.engine.command("fork", session, copy, position)
            self.sessions[copy] = self.sessions[session][:position]
        elif name == "truncate":
            position = rng.randrange(len(self.sessions[session]) + 1)
            self.engine.command("truncate", session, position)
            del self.sessions[session][position:]
        elif name == "close":
            self.engine.command("close", session)
            del self.sessions[session]
        for _ in range(rng.randrange(4)):
            self.engine.turn()
        self.preempt()

    def preempt(self) -> None:
        for ticket, (sequence, _, n) in self.generations.items():
            if self.rng.random() < 0.2 and 0 < len(self.engine.tokens(ticket)) < n:
                self.engine.core.preempt(sequence)

    def check(self) -> None:
        self.engine.turn_until_idle()
        for ticket, (_, tokens, n) in self.generations.items():
            assert drawn(self.engine, ticket) == self.models.alone(tokens, n)


@pytest.mark.long
def test_det_9_rec_1_random_commands_change_no_bit(models: Models, repeats: Repeats) -> None:
    rng = random.Random(23)
    for _ in range(repeats(30)):
        commands = Commands(models, rng)
        for _ in range(30):
            commands.act()
        commands.check()


def test_hon_1_a_token_less_or_another_one_is_seen(models: Models) -> None:
    """The models remember: the first token of a long prompt changes the logits after the last one."""
    tokens = prompt(100)
    right = models.alone(tokens, 1)[1]
    assert models.alone(tokens[1:], 1)[1] != right
    assert models.alone([(tokens[0] + 1) % 51, *tokens[1:]], 1)[1] != right
