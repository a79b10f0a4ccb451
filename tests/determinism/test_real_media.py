"""A real model draws from the embeddings of a sentence what it draws from its tokens, to the bit."""

from __future__ import annotations

from typing import Any

import pytest

from determinism.test_real_weights import real_weights, with_real_weights
from imp_service import _core, _testing
from support.engine.embedding_prompts import embeddings_prompt
from support.engine.script_engine import TurnedEngine
from support.models.head_runs import load_path
from support.oracles.script_oracle import Sampler

pytestmark = [with_real_weights, pytest.mark.timeout(600)]
SENTENCE = tuple(range(2000, 2060))


def answer(given: dict[str, Any], chunk: int, drafters: tuple[str, ...]) -> tuple[list[int], list[bytes]]:
    model = load_path(real_weights(), kv_dtype="bf16", takes_media=True, kv_bytes=64 << 20)
    options = _core.EngineOptions(
        n_blocks=64, max_context=512, max_running=4, step_tokens=128, prefill_chunk=chunk, media_rows=128,
        cache_secret=(3, 5), fixed_depth=True, drafters=list(drafters),
    )  # fmt: skip
    engine = TurnedEngine(_testing.ManualModelEngine(model, options, encoder="embeddings"))
    ticket = engine.generate(**given, max_outputs=24, logits=True, max_draft_tokens=4, sampling=Sampler())
    engine.turn_until_idle()
    engine.finished(ticket)
    rows = [e.logits.tobytes() for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)]
    return engine.tokens(ticket), rows


@pytest.mark.parametrize(("chunk", "drafters"), [(128, ()), (7, ()), (128, ("ngram",))])
def test_med_25_a_real_model_draws_from_embeddings_what_it_draws_from_tokens(
    chunk: int, drafters: tuple[str, ...]
) -> None:
    prompt, tokens = embeddings_prompt([1, 500, 501], SENTENCE, [700, 701], SENTENCE[:20], [9])
    assert answer(prompt.given(), chunk, drafters) == answer({"tokens": tokens}, 128, ())


def test_med_25_one_other_embedding_changes_the_logits_of_a_real_model() -> None:
    """The control of the test above."""
    prompts = [embeddings_prompt([1], (*SENTENCE[:-1], last), [9])[0] for last in (2059, 2060)]
    first, second = (answer(prompt.given(), 128, ()) for prompt in prompts)
    assert first[1] != second[1]
