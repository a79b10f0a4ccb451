"""Whole models that read images give the logits of `transformers`: pixels, layout, positions, tower and decoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import imp_service
from imp_service import ChatMessage, ChatPrompt, GenerationResult, Image, LanguageModel
from imp_service.api.replies import Started
from support.models.cell_prompts import centred
from support.models.whole_models import (
    BETWEEN,
    QUESTION,
    WHOLE_CASES,
    PeerPrompt,
    WholeCase,
    peer_logits,
    peer_prompt,
    pictures,
)

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SETTINGS = ("device.threads=1", "kv.dtype=f32", "kv.bytes=8MiB", "kv.prefix_cache=false")
N_CANDIDATES = 20
SIZES = range(4)  # of images


@dataclass(frozen=True)
class Whole:
    case: WholeCase
    peer: Any
    models: dict[str, LanguageModel]  # by format


@pytest.fixture(scope="module", params=WHOLE_CASES)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    case, folder = WHOLE_CASES[request.param], tmp_path_factory.mktemp(request.param)
    peer = case.peer()
    file, saved = case.write_files(folder / "files", peer), case.write_directory(folder / "saved", peer)
    given = {"file": (file,), "directory": (saved,), "chunks": (file, "scheduler.prefill_chunk=7")}
    with ExitStack() as stack:
        models = {
            form: stack.enter_context(imp_service.load(path, *SETTINGS, *more)) for form, (path, *more) in given.items()
        }
        yield Whole(case, peer, models)


def chat_of(case: WholeCase, n_images: int) -> ChatPrompt:
    """Returns a conversation that shows so many images."""
    content: list[str | Image] = []
    for picture in pictures(n_images):
        content += [BETWEEN, Image(picture, max_tokens=case.max_tokens)]
    return ChatPrompt((ChatMessage("user", (*content[1:], QUESTION)),))


def asked(model: LanguageModel, case: WholeCase, n_images: int) -> GenerationResult:
    scores: dict[str, Any] = {"prompt_logprobs": True, "prompt_token_ids": True, "logprobs": True}
    greedy: dict[str, Any] = {"temperature": 0, "max_tokens": 1, "ignore_eos": True}
    return model.chat(chat_of(case, n_images), top_logprobs=N_CANDIDATES, **scores, **greedy).result()


def error_of(result: GenerationResult, prompt: PeerPrompt, logits: NDArray[np.float64]) -> float:
    """Returns the greatest error of a token of the text or a candidate, relative to the logits' root mean square."""
    assert result.prompt.token_ids == prompt.tokens
    assert list(np.isnan(result.prompt.logprobs)) == [row == 0 or cell for row, cell in enumerate(prompt.is_cell)]
    expected = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    texts = [row + 1 for row in prompt.scored[:-1]]
    found = [*(result.prompt.candidates[at] for at in texts), result.candidates[0]]
    errors = [
        abs(result.prompt.logprobs[at] - row[prompt.tokens[at]]) for at, row in zip(texts, expected, strict=False)
    ]
    for candidates, row in zip(found, expected, strict=True):
        assert len(candidates) == N_CANDIDATES
        errors += [abs(each.logprob - row[each.token_id]) for each in candidates]
    return float(max(errors) / np.sqrt(np.mean(centred(logits) ** 2)))


@pytest.mark.parametrize("n_images", SIZES)
def test_vis_4_a_whole_model_equals_transformers(whole: Whole, n_images: int) -> None:
    prompt = peer_prompt(whole.case, pictures(n_images))
    logits, bound = peer_logits(whole.peer, prompt), whole.case.bound(whole.peer)
    found = {form: asked(model, whole.case, n_images) for form, model in whole.models.items()}
    errors = {form: error_of(result, prompt, logits) for form, result in found.items()}
    assert max(errors.values()) < bound, (errors, bound)
    assert found["file"].logprobs == found["directory"].logprobs == found["chunks"].logprobs


def test_med_11_med_18_positions_advance_as_in_transformers(whole: Whole) -> None:
    """Where a row has one position, that is the number of its cell."""
    prompt, chat = peer_prompt(whole.case, pictures(3)), chat_of(whole.case, 3)
    spans = next(reply for reply in whole.models["file"].chat(chat, max_tokens=1) if isinstance(reply, Started)).media
    expected = np.arange(len(prompt.tokens))
    if "image_grid_thw" in prompt.inputs:
        kinds = prompt.inputs["mm_token_type_ids"]
        planes, _ = whole.peer.model.get_rope_index(
            prompt.inputs["input_ids"], kinds, image_grid_thw=prompt.inputs["image_grid_thw"]
        )
        expected = planes[0, 0].numpy()
    found = np.arange(len(prompt.tokens))
    for span in spans:
        found[span.first_token + span.tokens :] += span.positions - span.tokens
    assert list(found[~prompt.is_cell]) == list(expected[~prompt.is_cell])
    assert sum(span.tokens for span in spans) == prompt.is_cell.sum()


def test_vis_4_hon_1_each_fact_of_a_whole_model_is_seen(whole: Whole) -> None:
    prompt, result = peer_prompt(whole.case, pictures(3)), asked(whole.models["file"], whole.case, 3)
    for fact, turn_off in whole.case.decoder.off.items():
        other = whole.case.peer()
        turn_off(other)
        error = error_of(result, prompt, peer_logits(other, prompt))
        assert error > 4 * whole.case.bound(other), fact
