"""Guesses of constrained runs: each row has the mask of its own output, and a round is one round trip."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from imp_service import _core
from support.engine.random_requests import record_of
from support.engine.script_engine import ScriptEngine
from support.oracles.script_oracle import Sampler, continuation, mix, prompt_of

N_REQUESTS = 1000
VOCAB = 16
ALL = b"\xff\xff\0\0"


def drafting(right: float = 1.0, **options: Any) -> ScriptEngine:
    """Returns an engine whose drafter is right in this share of its guesses."""
    return ScriptEngine(script={"drafts": right}, **options)


class Rules:
    """A constraint: the tokens that may follow some outputs. No token may follow where the text must end."""

    def __init__(self, seed: int, length: int | None = None, most: int = 6) -> None:
        self._seed, self._length, self._most = seed, length, most

    def allowed(self, outputs: Sequence[int]) -> list[int]:
        if self._length is not None and len(outputs) >= self._length:
            return []
        state = self._seed
        for token in outputs[-3:]:
            state = mix(state ^ (token + 1))
        rng = random.Random(state ^ len(outputs))
        return sorted(rng.sample(range(VOCAB), rng.randint(1, self._most)))


def asks(engine: ScriptEngine, ticket: int) -> bool:
    """Whether the run has just asked for guesses."""
    return isinstance(engine.events[ticket][-1], _core.DraftedEvent)


def mask_of(tokens: Sequence[int]) -> bytes:
    return sum(1 << token for token in tokens).to_bytes(4, "little")


Guesser = Callable[[int, list[int], Any], list[int]]
"""From the number of the request, the outputs so far and the DraftedEvent to guesses, allowed or not."""


class TextSide:
    """Answers the events of constrained runs as the service does, but with guesses that the test chooses."""

    def __init__(self, engine: ScriptEngine, guess: Guesser | None = None, mask_ns: int = 0) -> None:
        """A mask, and the search for guesses, takes `mask_ns` of the engine's clock."""
        self.engine, self._guess, self._mask_ns = engine, guess, mask_ns
        self._rules: dict[int, tuple[int, Rules, list[int]]] = {}
        self._outputs: dict[tuple[int, int], list[int]] = {}
        self._n_seen = 0
        self.n_answers = 0
        self.n_rounds = 0

    def watch(self, number: int, ticket: int, rules: Rules, sequences: list[int]) -> None:
        self._rules[ticket] = number, rules, sequences
        for stream in range(len(sequences)):
            self._outputs[ticket, stream] = []
            self._answer(ticket, stream, None)

    def turn(self) -> bool:
        worked = self.engine.turn()
        events, self._n_seen = self.engine.all_events[self._n_seen :], len(self.engine.all_events)
        for event in events:
            if event.ticket not in self._rules:
                continue
            if isinstance(event, _core.TokenEvent):
                self._outputs[event.ticket, event.stream].append(event.token)
                if event.awaits_mask:
                    self._answer(event.ticket, event.stream, None)
            elif isinstance(event, _core.DraftedEvent):
                self.n_rounds += 1
                self._answer(event.ticket, event.stream, event)
        return worked or bool(events)

    def turn_until_idle(self) -> None:
        while self.turn():
            pass

    def _answer(self, ticket: int, stream: int, event: Any) -> None:
        number, rules, sequences = self._rules[ticket]
        outputs, core, sequence = self._outputs[ticket, stream], self.engine.core, sequences[stream]
        self.n_answers += 1
        core.now_ns += self._mask_ns
        allowed = rules.allowed(outputs)
        if event is None:
            core.mask(ticket, sequence, len(outputs), mask_of(allowed), end=not allowed)
            return
        if not allowed:
            core.draft(ticket, sequence, len(outputs), [], [], end=True)
            return
        guesses = [] if self._guess is None else self._guess(number, outputs, event)
        core.now_ns += self._mask_ns
        tokens, masks, ends = [], [mask_of(allowed)], False
        for token in guesses[: event.n_most]:
            tokens.append(token)
            core.now_ns += self._mask_ns
            following = rules.allowed([*outputs, *tokens])
            ends = not following
            if ends:
                break
            masks.append(mask_of(following))
        core.draft(ticket, sequence, len(outputs), tokens, masks, end=ends)


def random_requests(seed: int, n: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "tokens": prompt_of(rng.randrange(1, 50), rng.randrange(9)),
            "sampling": Sampler(
                temperature=rng.choice([0.0, 0.7, 1.3]),
                seed=rng.randrange(100),
                repetition_penalty=rng.choice([1.0, 1.3]),
                presence_penalty=rng.choice([0.0, 0.4]),
                logit_bias=rng.choice([{}, {3: -4.0, 9: 1.5}]),
            ),
            "max_outputs": rng.choice([1, 2, 7, 20, 40]),
            "stop_tokens": sorted(rng.sample(range(VOCAB), rng.choice([0, 0, 1]))),
            "eos_tokens": rng.choice([[], [5]]),
            "logprobs": rng.random() < 0.5,
            "n_candidates": rng.choice([0, 3]),
            "logits": rng.random() < 0.2,
            "n_sequences": rng.choice([1, 1, 1, 3]),
            "rules": Rules(rng.randrange(1 << 30), rng.choice([None, 3, 12])) if rng.random() < 0.7 else None,
        }
        for _ in range(n)
    ]


def run_all(
    engine: ScriptEngine,
    requests: list[dict[str, Any]],
    rng: random.Random,
    depths: list[int],
    guess: Guesser | None,
) -> tuple[list[Any], TextSide]:
    """Runs the requests in random batches. Returns what their clients see."""
    side, tickets = TextSide(engine, guess), []
    for number, request in enumerate(requests):
        given = dict(request)
        n_sequences, rules = given.pop("n_sequences"), given.pop("rules")
        sequences = [engine.sequence() for _ in range(n_sequences)]
        ticket = engine.generate(
            **given, sequence=sequences[0], siblings=sequences[1:], max_draft_tokens=rng.choice(depths),
            constrained=rules is not None,
        )  # fmt: skip
        tickets.append((ticket, n_sequences, rules))
        if rules is not None:
            side.watch(number, ticket, rules, sequences)
        for _ in range(rng.randrange(4)):
            side.turn()
    side.turn_until_idle()
    engine.assert_at_rest()

    def reason_of(rules: Rules | None) -> Callable[[str, list[int]], str]:
        """A text may be complete with the output that reaches a limit: the service then says that it is complete."""
        return lambda reason, outputs: "complete" if rules is not None and not rules.allowed(outputs) else reason

    return [record_of(engine, ticket, n, reason_of(rules)) for ticket, n, rules in tickets], side


def outputs_of(record: list[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in record:
        if isinstance(row[-1], bytes):
            found.setdefault(row[0], []).append(row[2])
    return found


def guesses_like(plain: list[Any], right: float, seed: int) -> Guesser:
    """Guesses what the run without guesses drew, with this share of right tokens; the wrong ones may be forbidden."""
    known = [list(outputs_of(record).values()) for record in plain]
    rng = random.Random(seed)

    def guess(number: int, outputs: list[int], event: Any) -> list[int]:
        streams = [tokens for tokens in known[number] if tokens[: len(outputs)] == outputs]
        following = (streams[0] if streams else [])[len(outputs) :][: rng.randint(0, event.n_most)]
        return [token if rng.random() < right else rng.randrange(VOCAB) for token in following]

    return guess


@pytest.mark.few(2)
@pytest.mark.parametrize("right", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("n_blocks", [48, 90], ids=["few-blocks", "many-blocks"])
def test_spc_1_spc_17_constrained_runs_are_the_same_with_guesses(right: float, n_blocks: int) -> None:
    """Random requests, of which most are constrained, in random batches and with preemptions."""
    n = N_REQUESTS // 6
    requests = random_requests(int(10 * right) + n_blocks, n)
    plain, _ = run_all(ScriptEngine(max_running=8), requests, random.Random(1), [0], None)
    engine = ScriptEngine(script={"drafts": 0.5}, n_blocks=n_blocks, max_running=8)
    found, side = run_all(engine, requests, random.Random(2), [1, 3, 16], guesses_like(plain, right, 5))
    for number, (a, b) in enumerate(zip(found, plain, strict=True)):
        assert a == b, number
    drafts = engine.core.stats().drafts
    assert drafts.n_drafted > n and drafts.n_accepted > 0
    assert side.n_rounds > n


def test_spc_1_the_mask_of_a_wrong_output_is_noticed() -> None:
    """The comparison fails if a row is drawn from with the mask of the row before it."""
    requests = random_requests(7, 60)
    plain, _ = run_all(ScriptEngine(max_running=8), requests, random.Random(1), [0], None)
    for shifts_masks in (False, True):
        engine = ScriptEngine(script={"drafts": 0.5}, n_blocks=90, max_running=8)
        engine.core.shifts_masks = shifts_masks
        found, _ = run_all(engine, requests, random.Random(2), [1, 3, 16], guesses_like(plain, 1.0, 5))
        assert (found == plain) != shifts_masks


def test_spc_17_a_round_is_one_round_trip() -> None:
    """The text side answers once for each step of the run, and each step keeps its right guesses and one more."""
    rules, prompt = Rules(3), prompt_of(20)
    plain = ScriptEngine()
    side = TextSide(plain)
    ticket = plain.generate(prompt, sequence=1, max_outputs=41, constrained=True)
    side.watch(0, ticket, rules, [1])
    side.turn_until_idle()
    outputs = plain.tokens(ticket)
    assert len(outputs) == 41 and side.n_answers == 41

    engine = drafting()
    side = TextSide(engine, lambda _n, known, event: outputs[len(known) :][: min(event.n_most, 3)])
    ticket = engine.generate(prompt, sequence=1, max_outputs=41, max_draft_tokens=16, constrained=True)
    side.watch(0, ticket, rules, [1])
    n_steps = 0
    while side.turn():
        n_steps += 1
    assert engine.tokens(ticket) == outputs
    # One output for the prompt, then ten rounds of three guesses: four outputs each.
    assert [n for step in engine.evaluated() for _, n in step] == [20] + [4] * 10
    assert (side.n_rounds, side.n_answers) == (10, 11)
    drafts = engine.finished(ticket).drafts
    assert (drafts.n_rounds, drafts.n_drafted, drafts.n_accepted) == (10, 30, 30)


def test_spc_17_the_engine_proposes_what_its_drafters_guess() -> None:
    outputs = continuation(prompt_of(20), 12)
    engine = drafting()
    ticket = engine.generate(prompt_of(20), sequence=1, max_outputs=12, max_draft_tokens=5, constrained=True)
    engine.core.mask(ticket, 1, 0, ALL)
    engine.turn()
    (event,) = [e for e in engine.events[ticket] if isinstance(e, _core.DraftedEvent)]
    assert (event.output, event.n_most, event.tokens, event.stream) == (1, 5, outputs[1:6], 0)
    assert not engine.turn(), "it waits for the mask"


@pytest.mark.parametrize(("max_draft_tokens", "max_outputs", "most"), [(64, 40, 8), (3, 40, 3), (64, 4, 2), (8, -1, 3)])
def test_spc_11_a_constrained_run_asks_for_what_its_limits_leave(
    max_draft_tokens: int, max_outputs: int, most: int
) -> None:
    """At most 8, as many as outputs may follow, and as the context holds."""
    engine = drafting(max_context=24 if max_outputs < 0 else 256)
    ticket = engine.generate(
        prompt_of(20), sequence=1, max_outputs=max_outputs, max_draft_tokens=max_draft_tokens, constrained=True
    )
    engine.core.mask(ticket, 1, 0, ALL)
    engine.turn()
    (event,) = [e for e in engine.events[ticket] if isinstance(e, _core.DraftedEvent)]
    assert (event.n_most, len(event.tokens)) == (most, most)


def test_spc_17_a_forbidden_guess_is_never_evaluated() -> None:
    """The guesses end before the first one that its mask forbids, and before the first one without a mask behind it."""
    outputs = continuation(prompt_of(20), 12)
    others = [token for token in range(VOCAB) if token != outputs[2]]
    cases: list[tuple[list[int], list[bytes], bool, int]] = [
        (outputs[1:5], [ALL] * 5, False, 4),
        (outputs[1:5], [ALL, mask_of(others), ALL, ALL, ALL], False, 1),
        (outputs[1:5], [mask_of([token for token in range(VOCAB) if token != outputs[1]]), *[ALL] * 4], False, 0),
        (outputs[1:5], [ALL] * 3, False, 2),
        (outputs[1:5], [ALL], False, 0),
        (outputs[1:4], [ALL] * 3, True, 2),  # nothing is drawn behind the last one
    ]
    for guesses, masks, end, n_used in cases:
        engine = drafting()
        ticket = engine.generate(prompt_of(20), sequence=1, max_outputs=12, max_draft_tokens=8, constrained=True)
        engine.core.mask(ticket, 1, 0, ALL)
        engine.turn()
        engine.core.draft(ticket, 1, 1, guesses, masks, end=end)
        engine.turn()
        assert engine.core.forwards[-1][0].tokens == [outputs[0], *guesses[:n_used]]
        if end:
            assert engine.finished(ticket).reason == "stop"
            assert engine.tokens(ticket) == outputs[:4]


def test_spc_17_masks_that_assume_a_wrong_guess_are_forgotten() -> None:
    """A mask, and an end, behind a guess that is wrong says nothing of the outputs that are there."""
    outputs = continuation(prompt_of(20), 12)
    wrong = (outputs[1] + 1) % VOCAB
    for end in (False, True):
        engine = drafting()
        ticket = engine.generate(prompt_of(20), sequence=1, max_outputs=12, max_draft_tokens=8, constrained=True)
        engine.core.mask(ticket, 1, 0, ALL)
        engine.turn()
        masks = [ALL] if end else [ALL, mask_of([wrong])]
        engine.core.draft(ticket, 1, 1, [wrong], masks, end=end)
        engine.turn()
        assert engine.tokens(ticket) == outputs[:2]
        assert not engine.turn(), "it waits for the mask of the next output"
        engine.core.draft(ticket, 1, 2, [], [ALL])
        engine.turn()
        assert engine.tokens(ticket) == outputs[:3]


def test_spc_17_an_answer_to_an_earlier_round_is_ignored() -> None:
    outputs = continuation(prompt_of(20), 12)
    engine = drafting()
    ticket = engine.generate(prompt_of(20), sequence=1, max_outputs=12, max_draft_tokens=8, constrained=True)
    engine.core.mask(ticket, 1, 0, ALL)
    engine.turn()
    engine.core.draft(ticket, 1, 1, outputs[1:3], [ALL] * 3)
    engine.core.draft(ticket, 1, 1, [outputs[1], 7], [ALL] * 3)
    engine.turn()
    assert engine.tokens(ticket) == outputs[:4]
    engine.core.draft(ticket, 1, 2, outputs[2:4], [ALL] * 3)
    engine.core.mask(ticket, 1, 5, ALL)
    assert not engine.turn(), "it waits for output 4"
    for ended in (2, ticket):
        engine.core.draft(ended, 1, 4, [], [ALL])
    engine.turn()
    assert engine.tokens(ticket) == outputs[:5]


def test_spc_17_an_output_says_whether_its_run_waits_for_a_mask_alone() -> None:
    """Only the last output of a step says it, and not if the run asks for guesses or ends."""

    def awaiting(engine: ScriptEngine, ticket: int) -> list[bool]:
        return [e.awaits_mask for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)]

    outputs = continuation(prompt_of(20), 6)
    for engine in (ScriptEngine(), drafting()):
        ticket = engine.generate(prompt_of(20), sequence=1, max_outputs=6, max_draft_tokens=3, constrained=True)
        engine.core.mask(ticket, 1, 0, ALL)
        engine.turn()
        if asks(engine, ticket):
            assert awaiting(engine, ticket) == [False]
            engine.core.draft(ticket, 1, 1, outputs[1:4], [ALL] * 4)
        else:
            assert awaiting(engine, ticket) == [True]
            for output in range(1, 5):
                engine.core.mask(ticket, 1, output, ALL)
        engine.turn_until_idle()
        # One output is left, so no guess can be of use.
        assert not asks(engine, ticket) and awaiting(engine, ticket)[1:] == [False, False, False, True]
        engine.core.mask(ticket, 1, 5, ALL)
        engine.turn()
        assert engine.tokens(ticket) == outputs and not awaiting(engine, ticket)[-1]
    free = ScriptEngine()
    ticket = free.generate(prompt_of(20), max_outputs=6)
    free.turn_until_idle()
    assert not any(awaiting(free, ticket))


def test_spc_17_a_step_that_asks_for_nothing_is_as_without_guesses() -> None:
    """Until the control knows what a step and a mask cost, the events are those of a run without drafters."""

    def run(engine: ScriptEngine) -> list[tuple[type, int]]:
        ticket = engine.generate(prompt_of(20), sequence=1, max_outputs=30, max_draft_tokens=8, constrained=True)
        for output in range(30):
            engine.core.mask(ticket, 1, output, ALL)
            engine.turn()
        assert engine.finished(ticket).n_outputs == 30
        return [(type(e), getattr(e, "token", 0), getattr(e, "awaits_mask", False)) for e in engine.events[ticket]]

    engine = drafting(fixed_depth=False)  # its clock is stopped, so that no mask takes any time
    assert run(engine) == run(ScriptEngine())
    with pytest.raises(AssertionError):
        run(drafting())


@pytest.mark.few(4)
@pytest.mark.parametrize("mask_ns", [10**4, 10**5, 6 * 10**5, 3 * 10**6])
@pytest.mark.parametrize("right", [0.0, 1.0])
def test_spc_33_a_run_asks_where_the_masks_of_guesses_pay(mask_ns: int, right: float) -> None:
    """Steps take a millisecond, with any number of rows, and masks a hundredth of it to three times as long."""
    rules, prompt, n = Rules(3), prompt_of(20), 400
    seen: list[tuple[list[int], int, int]] = []
    for drafts in (False, True):
        engine = ScriptEngine(script={"drafts": 0.5 if drafts else -1.0}, max_context=512, fixed_depth=False)
        engine.core.forward_ns = 10**6
        known = seen[0][0] if seen else []
        rng = random.Random(7)

        def guess(_number: int, outputs: list[int], event: Any, known: list[int] = known, rng: Any = rng) -> list[int]:
            following = known[len(outputs) :][: event.n_most]
            return [token if rng.random() < right else (token + 1) % VOCAB for token in following]

        side = TextSide(engine, guess, mask_ns)
        ticket = engine.generate(prompt, sequence=1, max_outputs=n, max_draft_tokens=8, constrained=True)
        side.watch(0, ticket, rules, [1])
        side.turn_until_idle()
        seen.append((engine.tokens(ticket), engine.core.now_ns, side.n_rounds))
    (outputs, plain_ns, n_plain), (found, ns, n_rounds) = seen
    assert len(outputs) == n and found == outputs
    assert plain_ns >= 0.97 * ns
    assert n_plain == 0 < n_rounds
    if right == 0:
        assert n_rounds < n / 10
    elif mask_ns <= 10**5:
        assert plain_ns > 2 * ns


def test_spc_17_a_late_mask_delays_its_run_alone() -> None:
    engine = drafting()
    first, last = engine.sequence(), engine.sequence()
    late = engine.generate(prompt_of(20), sequence=first, max_outputs=12, max_draft_tokens=8, constrained=True)
    others = [engine.generate(prompt_of(20, i), max_outputs=60, max_draft_tokens=2) for i in (1, 2)]
    rules, prompt = Rules(3), prompt_of(20, 3)
    side = TextSide(engine)
    served = engine.generate(prompt, sequence=last, max_outputs=12, max_draft_tokens=8, constrained=True)
    side.watch(0, served, rules, [last])
    engine.core.mask(late, first, 0, ALL)
    side.turn_until_idle()
    assert engine.tokens(late) == continuation(prompt_of(20), 1)
    assert engine.finished(served).n_outputs == 12
    for number, ticket in enumerate(others):
        assert engine.tokens(ticket) == continuation(prompt_of(20, 1 + number), 60)
    engine.core.draft(late, first, 1, [], [ALL])
    engine.turn()
    assert engine.tokens(late) == continuation(prompt_of(20), 2)


def begin_on_session(engine: ScriptEngine, outputs: list[int]) -> tuple[int, int]:
    """Returns a session and its constrained run, which has four outputs and waits for the mask of the next."""
    session = engine.open()
    ticket = engine.run(session, prompt_of(20), max_outputs=20, max_draft_tokens=4, constrained=True)
    engine.core.mask(ticket, session, 0, ALL)
    engine.turn()
    if asks(engine, ticket):
        engine.core.draft(ticket, session, 1, outputs[1:3], [ALL] * 3)
        engine.turn()
    else:
        for output in (1, 2, 3):
            engine.core.mask(ticket, session, output, ALL)
            engine.turn()
    assert engine.tokens(ticket) == outputs[:4]
    return session, ticket


def state_of(engine: ScriptEngine, session: int) -> tuple[int, list[int], int, int]:
    core = engine.core
    return core.held(session), core.tokens(session), core.base(session), len(core.blocks(session))


@pytest.mark.parametrize("way", ["cancel", "cut", "pause", "step"])
@pytest.mark.parametrize("has_answer", [False, True], ids=["waiting", "answered"])
def test_spc_17_every_way_out_leaves_the_state_of_a_run_without_guesses(way: str, has_answer: bool) -> None:
    """A session is left in the middle of a round, before or after the answer. It is forked, cut and used again."""
    states = []
    outputs = continuation(prompt_of(20), 30)
    for engine in (ScriptEngine(), drafting()):
        session, ticket = begin_on_session(engine, outputs)
        is_asked = asks(engine, ticket)
        if way == "pause":
            engine.core.pause(ticket, session, True)
        if has_answer and is_asked:
            engine.core.draft(ticket, session, 4, [outputs[4], 3], [ALL] * 3)
        elif has_answer:
            engine.core.mask(ticket, session, 4, ALL)
        if way == "step":
            engine.turn()
        engine.core.end(ticket, session, "stop", n_outputs=2 if way == "cut" else 4)
        engine.turn_until_idle()
        copy = engine.sequence()
        engine.command("fork", session, copy, position=20)
        engine.turn_until_idle()
        seen = [state_of(engine, each) for each in (session, copy)]
        for used in (session, copy):
            after = engine.run(used, resume=True, max_outputs=6, max_draft_tokens=4)
            engine.turn_until_idle()
            states.append((seen, engine.tokens(after), state_of(engine, used)))
            engine.command("truncate", used, 21)
            engine.turn_until_idle()
            states.append((state_of(engine, used), [], None))
    assert states[: len(states) // 2] == states[len(states) // 2 :]


def test_spc_17_a_failed_step_is_repeated_without_guesses() -> None:
    """A guess that breaks the batch changes nothing: its run draws one output, and asks for guesses again."""

    def run(engine: ScriptEngine, known: list[int]) -> tuple[list[int], Any]:
        side = TextSide(engine, lambda _n, outputs, event: known[len(outputs) :][: min(event.n_most, 3)])
        ticket = engine.generate(prompt_of(20), sequence=1, max_outputs=20, max_draft_tokens=4, constrained=True)
        side.watch(0, ticket, Rules(11), [1])
        side.turn_until_idle()
        return engine.tokens(ticket), engine.finished(ticket)

    outputs, _ = run(ScriptEngine(), [])
    engine = drafting()
    engine.core.script.failing = [1, 4]
    found, finished = run(engine, outputs)
    assert found == outputs
    assert 3 < finished.drafts.n_accepted < finished.n_outputs


@pytest.mark.parametrize("right", [1.0, 0.6])
def test_spc_17_models_with_a_recurrent_state_give_the_same_with_guesses(right: float) -> None:
    requests = random_requests(int(10 * right), 40)
    given: dict[str, Any] = {"n_state_slots": 40, "max_running": 8}
    plain, _ = run_all(ScriptEngine(script={"state": True}, **given), requests, random.Random(1), [0], None)
    engine = ScriptEngine(script={"state": True, "drafts": 0.5}, **given)
    found, side = run_all(engine, requests, random.Random(2), [1, 3, 16], guesses_like(plain, right, 5))
    assert found == plain
    assert engine.core.stats().drafts.n_accepted > 40 < side.n_rounds


def test_spc_28_without_drafters_or_guesses_a_constrained_run_asks_for_none() -> None:
    for engine, most in ((ScriptEngine(), 4), (drafting(), 0)):
        ticket = engine.generate(prompt_of(20), sequence=1, max_outputs=3, max_draft_tokens=most, constrained=True)
        for output in range(3):
            engine.core.mask(ticket, 1, output, ALL)
        engine.turn_until_idle()
        assert engine.finished(ticket).n_outputs == 3
        assert not any(isinstance(event, _core.DraftedEvent) for event in engine.all_events)


def test_spc_17_bad_guesses_are_refused() -> None:
    engine = drafting()
    cases: list[tuple[int, list[int], str]] = [
        (0, [1] * 9, "tokens: 9 guesses, expected at most 8"),
        (0, [VOCAB], r"tokens\[0\]: 16, expected a token id below 16"),
        (-1, [], "output: -1"),
    ]
    for output, tokens, message in cases:
        with pytest.raises(_core.InvalidArgument, match=message):
            engine.core.draft(1, 1, output, tokens, [ALL])
