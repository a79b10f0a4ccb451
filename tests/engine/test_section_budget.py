"""A section of outputs that is full is closed: at the same output, with the same tokens, in any company (BUD)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from imp_service import _core
from support.engine.random_requests import random_sampler
from support.engine.script_engine import ScriptEngine
from support.oracles.script_oracle import Sampler, continuation, prompt_of
from support.oracles.section_oracle import VOCAB_SIZE, BoundedSection, bounded_continuation

N_REQUESTS = 40
# Short texts of few letters, so that outputs often spell a marker, in all divisions.
LETTERS = b"ab/ "


def random_section(rng: random.Random) -> BoundedSection:
    texts = [bytes(rng.choices(LETTERS, k=rng.randint(1, 3))) for _ in range(VOCAB_SIZE)]
    closing = bytes(rng.choices(b"ab/", k=rng.randint(1, 4)))
    return BoundedSection(
        bytes(rng.choices(b"ab/", k=rng.randint(1, 2))),
        closing,
        texts,
        [[rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 3))] for _ in closing],
        rng.choice([0, 0, 1, 2, 3, 5, 12]),
        is_open=rng.random() < 0.5,
        recurs=rng.random() < 0.5,
    )


def random_asks(seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "tokens": prompt_of(rng.randrange(1, 50), rng.randrange(9)),
            "sampling": random_sampler(rng),
            "max_outputs": rng.choice([2, 7, 20, 40]),
            "section": random_section(rng),
            "n_sequences": rng.choice([1, 1, 2]),
        }
        for _ in range(N_REQUESTS)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_bud_1_bud_2_a_full_section_is_closed_as_defined(seed: int, ahead: bool) -> None:
    """Random requests join, are preempted and guess; each gives the outputs of the definition."""
    rng = random.Random(seed)
    engine = ScriptEngine(
        n_blocks=90, max_running=8, prefill_chunk=rng.choice([7, 32]), prefix_cache=bool(seed), fixed_depth=seed != 1
    )
    live, seen = [], Counter[str]()
    for ask in random_asks(seed):
        given = {name: ask[name] for name in ("tokens", "sampling", "max_outputs")}
        sequences = [engine.sequence() for _ in range(ask["n_sequences"])]
        ticket = engine.generate(
            **given, sequence=sequences[0], siblings=sequences[1:], budget=ask["section"].budget(), eos_tokens=[]
        )
        live.append((ticket, ask))
        for _ in range(rng.randrange(4)):
            engine.turn()
            if rng.random() < 0.3 and not any(isinstance(e, _core.FinishedEvent) for e in engine.events[ticket]):
                engine.core.preempt(sequences[0])
    engine.turn_until_idle()
    for ticket, ask in live:
        for i in range(ask["n_sequences"]):
            wanted = ask["tokens"], ask["max_outputs"], ask["sampling"]
            expected = bounded_continuation(*wanted, ask["section"], sequence=i)
            assert engine.tokens(ticket, i) == expected.tokens, ask
            seen.update(expected.seen)
    assert {"written", "closed", "cut"} <= seen.keys()
    assert (engine.core.stats().drafts.n_drafted > 0) == (engine.drafts >= 0)
    engine.assert_at_rest()


def test_bud_1_hon_11_negative_control_the_definition_is_not_what_is_drawn() -> None:
    asks = random_asks(0)
    plain = [continuation(each["tokens"], each["max_outputs"], each["sampling"]) for each in asks]
    bounded = [
        bounded_continuation(each["tokens"], each["max_outputs"], each["sampling"], each["section"]).tokens
        for each in asks
    ]
    assert sum(a != b for a, b in zip(plain, bounded, strict=True)) > N_REQUESTS // 3


# The texts of tokens 0 to 15: <, /, >, then letters; two of them go on in one token.
TEXTS = [b"<", b"/", b">", b"</", b"/>", *(bytes([97 + i]) for i in range(11))]
PLAIN = BoundedSection(b"<>", b"</>", TEXTS, [[3, 2], [1, 2], [2]], 4, is_open=True)


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize(
    ("written", "most", "expected"),
    [
        # The closing is written at once, after one output, after three.
        ([5, 6, 7, 8], 0, [3, 2, 7, 8]),
        ([5, 6, 7, 8], 1, [5, 3, 2, 8]),
        ([5, 6, 7, 8, 9, 10], 3, [5, 6, 7, 3, 2, 10]),
        # The model closes the section at the last moment, and one output before it.
        ([5, 6, 3, 2, 7, 8], 2, [5, 6, 3, 2, 7, 8]),
        ([5, 3, 2, 6, 7, 8], 3, [5, 3, 2, 6, 7, 8]),
        # A part of the closing is there: only the rest is written.
        ([5, 0, 6, 7], 2, [5, 0, 1, 2]),
        ([5, 3, 6, 7], 2, [5, 3, 2, 7]),
        ([5, 0, 1, 6], 3, [5, 0, 1, 2]),
        # What looked like a part is none.
        ([0, 1, 6, 7, 8], 3, [0, 1, 6, 3, 2]),
        # The output ends before the closing, and within it.
        ([5, 6], 2, [5, 6]),
        ([5, 6, 7], 2, [5, 6, 3]),
    ],
)
def test_bud_1_the_border_is_exact(written: list[int], most: int, expected: list[int]) -> None:
    """The model would write a list, whatever its outputs are."""
    engine = ScriptEngine("table", script={"table": written})
    budget = replace(PLAIN, most=most).budget()
    assert engine.complete([15], max_outputs=len(expected), budget=budget) == expected


def test_bud_3_a_closing_has_the_log_probability_that_the_model_gives_it() -> None:
    engine = ScriptEngine()
    prompt = prompt_of(9)
    unspelled = replace(PLAIN, closing=b"~~~", closings=[[3, 2]] * 3)
    for sampler in (Sampler(), Sampler(temperature=1.1, seed=3)):
        given = {"sampling": sampler, "max_outputs": 12}
        ticket = engine.generate(prompt, **given, budget=unspelled.budget(), logprobs=True, n_candidates=3)
        engine.turn_until_idle()
        events = [each for each in engine.events[ticket] if isinstance(each, _core.TokenEvent)]
        outputs = [each.token for each in events]
        assert outputs[4:6] == [3, 2]
        scored = engine.generate(prompt + outputs, max_outputs=0, scores=True)
        engine.turn_until_idle()
        assert [each.logprob for each in events] == list(engine.started(scored).scores.logprobs)[len(prompt) :]
        assert all(each.candidates[0].logprob >= each.logprob for each in events)


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize(
    ("forbidden", "expected"),
    [
        # Output -> a token that its mask does not allow.
        ({}, [5, 6, 3, 2, 9, 10, 11]),
        ({2: 3, 3: 3}, [5, 6, 7, 8, 3, 2, 11]),
        # The closing begins anew after an output that is not a part of it.
        ({3: 2}, [5, 6, 3, 8, 3, 2, 11]),
        ({2: 3, 3: 3, 4: 3, 5: 3, 6: 3}, [5, 6, 7, 8, 9, 10, 11]),
    ],
)
def test_bud_7_a_closing_waits_until_the_masks_allow_it(forbidden: dict[int, int], expected: list[int]) -> None:
    engine = ScriptEngine("table", script={"table": [5, 6, 7, 8, 9, 10, 11]})
    sequence, budget = engine.sequence(), replace(PLAIN, most=2).budget()
    ticket = engine.generate([15], sequence=sequence, max_outputs=7, constrained=True, budget=budget)
    for output in range(7):
        allowed = 0xFFFF & ~sum(1 << token for at, token in forbidden.items() if at == output)
        engine.core.mask(ticket, sequence, output, allowed.to_bytes(2, "little"))
    engine.turn_until_idle()
    assert engine.tokens(ticket) == expected


def test_bud_2_a_session_goes_on_with_a_bounded_run() -> None:
    engine = ScriptEngine()
    sampler = Sampler(temperature=0.9, seed=4)
    session, prompt = engine.open(sampling=sampler), prompt_of(12)
    engine.step(session, prompt, max_outputs=0)
    ticket = engine.run(session, resume=True, max_outputs=10, budget=PLAIN.budget())
    engine.turn_until_idle()
    assert engine.tokens(ticket) == bounded_continuation(prompt, 10, sampler, PLAIN).tokens


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"most": -1}, "max_reasoning_tokens"),
        ({"closings": [[3], [1]]}, "closings"),
        ({"closings": [[3], [], [2]]}, "closings"),
        ({"closings": [[3], [1], [16]]}, "closings"),
        ({"closing": b"", "closings": []}, "closing"),
    ],
)
def test_bud_4_a_budget_that_cannot_be_is_refused(changes: dict[str, Any], field: str) -> None:
    engine = ScriptEngine()
    with pytest.raises(_core.Error, match=field):
        engine.generate(prompt_of(4), max_outputs=2, budget=replace(PLAIN, **changes).budget())
    for steps in ([(0, 16, 1)], [(0, 1, 4)], [(3, 1, 1)], [(-1, 1, 1)]):
        section = _core.Section(_core.Marker(0, []), _core.Marker(3, steps), [[3], [1], [2]])
        with pytest.raises(_core.Error, match="closing"):
            engine.generate(prompt_of(4), max_outputs=2, budget=_core.SectionBudget(section, 1))
    engine.assert_at_rest()
