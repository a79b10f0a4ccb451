"""A run with told outputs goes on with the outputs of the one that broke: tokens, ends, scores, streams (ISO-1)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core, _testing
from support.engine.random_requests import random_sampler
from support.engine.script_engine import ScriptEngine, TurnedEngine
from support.models.forward_runs import load
from support.models.tiny_models import tiny
from support.oracles.script_oracle import Sampler, continuation, prompt_of
from support.oracles.section_oracle import VOCAB_SIZE, BoundedSection, bounded_continuation
from support.run.quick_run import Repeats

N_REQUESTS = 40
SAMPLED = Sampler(temperature=0.9, seed=11)
Told = list[tuple[list[int], bool]]
# Of the core's sampler: the script knows fewer options.
SAMPLERS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 7},
    {
        "temperature": 0.9,
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.4,
        "presence_penalty": 0.3,
        "penalty_window": 16,
        "seed": 3,
    },
    {"temperature": 0.7, "dry_multiplier": 1.5, "dry_base": 1.75, "dry_allowed_length": 2, "seed": 5},
    {"temperature": 1.2, "min_p": 0.05, "typical_p": 0.9, "seed": 9},
]


def resumed(engine: TurnedEngine, prompt: Sequence[int], told: Told, **given: Any) -> int:
    """The ticket of a generation that goes on behind told outputs."""
    ids = [engine.sequence() for _ in told]
    return engine.generate(prompt, sequence=ids[0], siblings=ids[1:], told=told, **given)


def end_of(engine: TurnedEngine, ticket: int, stream: int) -> tuple[str, int, bool]:
    end = engine.finished(ticket, stream)
    return end.reason, end.stop_token, end.eos


def logprobs(engine: TurnedEngine, ticket: int, stream: int) -> list[float]:
    return [e.logprob for e in engine.events[ticket] if isinstance(e, _core.TokenEvent) and e.stream == stream]


def random_section(rng: random.Random) -> BoundedSection:
    """A section whose markers random outputs often spell."""
    texts = [bytes(rng.choices(b"ab/ ", k=rng.randint(1, 3))) for _ in range(VOCAB_SIZE)]
    closing = bytes(rng.choices(b"ab/", k=rng.randint(1, 4)))
    return BoundedSection(
        bytes(rng.choices(b"ab/", k=rng.randint(1, 2))),
        closing,
        texts,
        [[rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 3))] for _ in closing],
        rng.choice([0, 1, 2, 3, 5, 12]),
        is_open=rng.random() < 0.5,
        recurs=rng.random() < 0.5,
    )


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("seed", range(2))
def test_iso_1_rsm_12_every_cut_of_random_generations_goes_on(seed: int) -> None:
    """The oracle knows the outputs. Each sequence is cut at a random place, and every place of some is tried."""
    rng = random.Random(seed)
    seen = set()
    for n in range(N_REQUESTS):
        engine = ScriptEngine(prefill_chunk=rng.choice([7, 32]), prefix_cache=n % 3 > 0)
        prompt, sampler = prompt_of(rng.randrange(1, 40), rng.randrange(9)), random_sampler(rng)
        section = random_section(rng) if n % 2 else None
        n_sequences, most = rng.choice([1, 1, 2, 3]), rng.choice([1, 7, 20])
        whole = [
            bounded_continuation(prompt, most, sampler, section, sequence=i).tokens
            if section
            else continuation(prompt, most, sampler, sequence=i)
            for i in range(n_sequences)
        ]
        given: dict[str, Any] = {"sampling": sampler, "max_outputs": most, "eos_tokens": []}
        if section:
            given["budget"] = section.budget()
        cuts = range(most + 1) if n % 4 == 0 else [rng.randint(0, most)]
        for cut in cuts:
            told = [(ids[: cut if n % 4 == 0 else rng.randint(0, most)], rng.random() < 0.2) for ids in whole]
            ticket = resumed(engine, prompt, told, **given)
            engine.turn_until_idle()
            for i, (ids, is_finished) in enumerate(told):
                behind = whole[i][max(len(ids) - 1, 0) :]
                expected = behind[: min(len(ids), 1)] if is_finished else behind
                assert engine.tokens(ticket, i) == expected, (n, cut, i, told)
                assert engine.finished(ticket, i).reason == "max_tokens"
                seen.add((len(ids) == most, is_finished, i))
        engine.assert_at_rest()
    assert {True, False} == {each[0] for each in seen} == {each[1] for each in seen} and {each[2] for each in seen} == {
        0,
        1,
        2,
    }


@pytest.mark.usefixtures("ahead")
def test_iso_1_a_lost_end_comes_back_for_each_reason() -> None:
    """Stop tokens, also before the fewest outputs, the limit, the context's edge. The stop token may be told too."""
    prompt = prompt_of(23)
    whole = continuation(prompt, 60, SAMPLED)
    stop = whole[12]
    first = whole.index(stop)
    for given in (
        {"max_outputs": 40, "stop_tokens": [stop]},
        {"max_outputs": 40, "stop_tokens": [stop], "min_outputs": first + 1},
        {"max_outputs": -1, "stop_tokens": []},
        {"max_outputs": 9, "stop_tokens": [whole[8]], "min_outputs": 9},
    ):
        engine = ScriptEngine(max_context=64)
        undisturbed = engine.generate(prompt, sampling=SAMPLED, eos_tokens=[], logprobs=True, **given)
        engine.turn_until_idle()
        ids, end = engine.tokens(undisturbed), end_of(engine, undisturbed, 0)
        told_ids = [*ids, end[1]] if end[1] >= 0 else ids
        for k in range(1, len(told_ids) + 1):
            ticket = resumed(
                engine, prompt, [(told_ids[:k], False)], sampling=SAMPLED, eos_tokens=[], logprobs=True, **given
            )
            engine.turn_until_idle()
            assert engine.tokens(ticket) == ids[k - 1 :] and end_of(engine, ticket, 0) == end
            assert logprobs(engine, ticket, 0) == logprobs(engine, undisturbed, 0)[k - 1 :]


def test_iso_1_a_siblings_stream_is_named() -> None:
    """Without its number a sequence draws as the first one."""
    prompt = prompt_of(9)
    whole = [continuation(prompt, 12, SAMPLED, sequence=i) for i in range(3)]
    engine = ScriptEngine()
    ticket = resumed(
        engine, prompt, [(ids[:4], False) for ids in whole], sampling=SAMPLED, max_outputs=12, eos_tokens=[]
    )
    engine.turn_until_idle()
    assert [engine.tokens(ticket, i) for i in range(3)] == [ids[3:] for ids in whole]
    assert whole[1] != whole[0]
    alone = resumed(engine, prompt, [(whole[1][:4], False)], sampling=SAMPLED, max_outputs=12, eos_tokens=[])
    engine.turn_until_idle()
    assert engine.tokens(alone) != whole[1][3:]


def test_iso_1_the_runs_of_one_request_take_their_places_together() -> None:
    """A prompt of any length may wait alone, and so may a resumed one of several sequences. Else none is queued."""
    prompt = prompt_of(30)
    engine = ScriptEngine(max_waiting=3, max_waiting_tokens=40)
    told = [(continuation(prompt, 2, SAMPLED, sequence=i), False) for i in range(3)]
    ticket = resumed(engine, prompt, told, sampling=SAMPLED, max_outputs=4, eos_tokens=[])
    assert (engine.core.stats().queued, engine.core.stats().waiting_tokens) == (3, 3 * 31)
    with pytest.raises(_core.ResourceExhausted, match="QUEUE_FULL"):
        resumed(engine, prompt, told[:2], sampling=SAMPLED, max_outputs=4)
    engine.turn_until_idle()
    assert [engine.tokens(ticket, i) for i in range(3)] == [
        continuation(prompt, 4, SAMPLED, sequence=i)[1:] for i in range(3)
    ]
    assert (engine.core.stats().queued, engine.core.stats().waiting_tokens) == (0, 0)
    with pytest.raises(_core.ResourceExhausted, match="QUEUE_FULL"):
        resumed(engine, prompt, [*told, *told], sampling=SAMPLED, max_outputs=4)
    engine.assert_at_rest()


def test_iso_1_wrong_told_outputs_are_refused_and_nothing_is_queued() -> None:
    engine, prompt = ScriptEngine(), prompt_of(5)
    for told, given, field in (
        ([([1], False)] * 2, {}, "told"),
        ([([1, 2, 3], False)], {"max_outputs": 2}, r"told\[0\]"),
        ([([1, 99, 3], False)], {"max_outputs": 4}, r"tokens\[6\]"),
        ([([1], False)], {"max_outputs": 4, "forced": [1]}, "forced"),
    ):
        with pytest.raises(_core.InvalidArgument, match=f"FIELD_INVALID: {field}"):
            engine.generate(prompt, told=told, **given)
    assert engine.core.stats().queued == 0
    assert not engine.turn()


def test_iso_1_masks_count_from_the_first_output_that_is_drawn() -> None:
    """A constrained run: each output may be one token of four, which depend on its place in the whole output."""
    prompt, sampler = prompt_of(7), SAMPLED

    def mask(place: int) -> bytes:
        return (0b1111 << place % 12).to_bytes(4, "little")

    def run(told: list[int], n: int) -> list[int]:
        engine = ScriptEngine()
        place = max(len(told) - 1, 0)
        sequence = engine.sequence()
        given = {"sampling": sampler, "max_outputs": n, "eos_tokens": [], "constrained": True}
        ticket = engine.generate(prompt, sequence=sequence, told=[(told, False)], **given)
        for output in range(n - place):
            engine.core.mask(ticket, sequence, output, mask(place + output))
            engine.turn_until_idle()
        assert engine.finished(ticket).reason == "max_tokens"
        return engine.tokens(ticket)

    whole = run([], 14)
    assert len(set(whole)) > 4
    assert all(run(whole[:k], 14) == whole[k - 1 :] for k in range(1, 15))


@pytest.mark.parametrize("family", ["llama", "qwen35", "qwen3next"])
def test_iso_1_every_cut_on_kernels_with_every_sampler(family: str, tmp_path: Path, repeats: Repeats) -> None:
    """Kernels, also with recurrent state: guesses on and off, another number of threads, other chunks."""
    path = tiny(family, context=256).write(tmp_path / "m.gguf")
    n, prompt = 24, [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    engines = [
        engine_over(load(path, tmp_path, threads=1, max_rows=64), prefill_chunk=64),
        engine_over(
            load(path, tmp_path, threads=2, max_rows=64), prefill_chunk=5, drafters=["ngram"], fixed_depth=True
        ),
    ]
    for sampler in SAMPLERS[: repeats(len(SAMPLERS))]:
        given = {"sampling": _core.SamplingOptions(**sampler), "max_outputs": n, "eos_tokens": [], "logprobs": True}
        ids = [engines[0].sequence() for _ in range(2)]
        first = engines[0].generate(prompt, sequence=ids[0], siblings=ids[1:], **given)
        engines[0].turn_until_idle()
        whole = [engines[0].tokens(first, i) for i in range(2)]
        for k in range(1, n + 1):
            other = engines[k % 2]
            told = [(tokens[:k], False) for tokens in whole]
            ticket = resumed(other, prompt, told, max_draft_tokens=3 * (k % 2), **given)
            other.turn_until_idle()
            for i in range(2):
                assert other.tokens(ticket, i) == whole[i][k - 1 :], (sampler, k, i)
                assert logprobs(other, ticket, i) == logprobs(engines[0], first, i)[k - 1 :]
    assert engines[1].core.stats().drafts.n_drafted > 0 or family != "llama"


def engine_over(model: Any, **options: Any) -> TurnedEngine:
    given = {"n_blocks": model.n_blocks, "n_state_slots": model.n_state_slots, "max_context": 256, "max_running": 8}
    given |= {"step_tokens": 64, **options}
    return TurnedEngine(_testing.ManualModelEngine(model, _core.EngineOptions(**given)))
