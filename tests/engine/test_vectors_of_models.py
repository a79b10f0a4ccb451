"""Vectors that the engine makes with real models equal those of one forward pass, divided by their length."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core, _testing
from support.engine.script_engine import TurnedEngine
from support.models.forward_runs import load
from support.models.text_cases import Text
from support.models.text_runs import vectors
from support.models.tiny_encoders import TinyEncoder
from support.models.tiny_models import tiny
from support.oracles.vector_oracle import finished

RNG = random.Random(5)
TEXTS = [[RNG.randrange(51) for _ in range(RNG.choice([2, 5, 17, 40, 64]))] for _ in range(24)]


def model_of(kind: str, folder: Path) -> _core.Model:
    if kind == "encoder":
        return load(TinyEncoder("mean").write_folder(folder / "model"), folder)
    return load(tiny("qwen3").contents().write(folder / "model.gguf"), folder, pooling=kind)


def engine_of(model: _core.Model, **options: Any) -> TurnedEngine:
    given = {
        "n_blocks": 32, "max_context": 64, "max_running": 8, "step_tokens": 64, "max_waiting": 512,
        "n_tokens": model.n_tokens, **options,
    }  # fmt: skip
    return TurnedEngine(_testing.ManualModelEngine(model, _core.EngineOptions(**given)))


def embed(engine: TurnedEngine, tokens: list[int], **given: Any) -> int:
    return engine.generate(tokens, max_outputs=0, vector=_core.VectorRequest(), **given)


def assert_vectors(engine: TurnedEngine, tickets: list[int], wanted: list[Any]) -> None:
    engine.turn_until_idle()
    for ticket, vector in zip(tickets, wanted, strict=True):
        engine.finished(ticket)
        assert engine.started(ticket).vector.tobytes() == vector.tobytes()


@pytest.mark.parametrize("kind", ["encoder", "mean", "last"])
def test_emb_2_the_engine_gives_the_vector_of_one_pass_over_the_text(kind: str, tmp_path: Path) -> None:
    model = model_of(kind, tmp_path)
    wanted = [finished(vectors(model, [Text(text)])[0].tolist()) for text in TEXTS]
    assert len({vector.tobytes() for vector in wanted}) == len(TEXTS)
    for chunk in (1, 16, 64):
        engine = engine_of(model, prefill_chunk=chunk)
        for order in (TEXTS, TEXTS[::-1]):  # the second time after prefixes in the cache
            tickets = [embed(engine, text) for text in order]
            assert_vectors(engine, tickets, wanted if order is TEXTS else wanted[::-1])
        del engine


def test_emb_2_a_decoder_that_is_preempted_makes_the_same_vector(tmp_path: Path) -> None:
    model = model_of("last", tmp_path)
    text = TEXTS[0] * 8
    wanted = finished(vectors(model, [Text(text[:64])])[0].tolist())
    engine = engine_of(model, prefill_chunk=16)
    sequence = engine.sequence()
    ticket = embed(engine, text[:64], sequence=sequence, bypass_prefix=True)
    for n_chunks in range(1, 4):
        for _ in range(n_chunks):
            engine.turn()
        assert engine.core.preempt(sequence)
    assert_vectors(engine, [ticket], [wanted])


def test_emb_2_an_encoder_tells_the_texts_of_a_pair_apart(tmp_path: Path) -> None:
    model = model_of("encoder", tmp_path)
    text = [7, 3, 9, 11, 2, 40, 6]
    wanted = [finished(vectors(model, [Text(text, second=second)])[0].tolist()) for second in (3, 4)]
    engine = engine_of(model)
    assert_vectors(engine, [embed(engine, text, second_text=second) for second in (3, 4)], wanted)
    assert wanted[0].tobytes() != wanted[1].tobytes()
