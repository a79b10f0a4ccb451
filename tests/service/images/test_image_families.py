"""Every family that reads images answers at both doors, and its tokens depend on nothing but the request."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import imp_service
from imp_service import Image, LanguageModel, PromptParts
from support.calls.generations import in_one, streamed
from support.media.png_writer import RGB, png
from support.models.fixed_depth import NO_DRAFTERS, fixed_depth
from support.models.whole_models import BETWEEN, QUESTION, TINY_SIGHTS, TinySight, pictures
from support.servers.http_served import serve_http
from support.servers.served_models import from_file
from support.servers.vision_served import asked, chat_of, data_url, encoded, said

SETTINGS = ("device.threads=1", "kv.bytes=8MiB")
TURN = "the cat and the dog, "
CYCLE = 3 * TURN
N_TOKENS = 24


@pytest.fixture(scope="module", params=TINY_SIGHTS)
def sight(request: pytest.FixtureRequest) -> TinySight:
    return TINY_SIGHTS[request.param]


@pytest.fixture(scope="module")
def path(sight: TinySight, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sight.write(tmp_path_factory.mktemp("sight"))


def test_med_11_vis_6_both_doors_answer_alike_and_count_the_cells_of_each_image(sight: TinySight, path: Path) -> None:
    files = [png(picture, RGB) for picture in pictures(2)]
    bounded = {} if sight.max_tokens is None else {"max_tokens": sight.max_tokens}
    with serve_http(*SETTINGS, model=from_file(path)) as http:
        one, other = (encoded(data, **bounded) for data in files)
        request = asked(chat_of(one, BETWEEN, other, QUESTION), n=12)
        whole, unary = streamed(http.served, request), in_one(http.served, request)
        by_http = chat_by_http(http, sight, files)
    assert whole.output == unary.output and len(whole.output.ids) == 12
    expected, at = [], 0
    prompt, cell = list(whole.started.prompt.token_ids), sight.words.token_to_id(sight.layout.cell)
    for image, grid in enumerate(sight.cells[:2]):
        n = math.prod(grid)
        at = prompt.index(cell, at)
        assert prompt[at : at + n] == [cell] * n and prompt[at + n] != cell
        expected.append((image, at, n, max(grid) if sight.has_grids else n))
        at += n
    for started in (whole.started, unary.started):
        spans = [(span.image, span.first_token, span.tokens, span.positions) for span in started.media]
        assert spans == expected
    n_cells = sum(math.prod(grid) for grid in sight.cells[:2])
    assert whole.usage.prompt_media_tokens == unary.usage.prompt_media_tokens == n_cells
    assert by_http["prompt_token_ids"] == prompt
    assert by_http["choices"][0]["token_ids"] == whole.output.ids
    assert by_http["usage"]["prompt_tokens_details"]["image_tokens"] == n_cells


def chat_by_http(http: Any, sight: TinySight, files: Sequence[bytes]) -> dict[str, Any]:
    shown = [{"type": "image_url", "image_url": data_url(data)} for data in files]
    content = [shown[0], {"type": "text", "text": BETWEEN}, shown[1], {"type": "text", "text": QUESTION}]
    numbers = {} if sight.max_tokens is None else {"mm_processor_kwargs": {"max_soft_tokens": sight.max_tokens}}
    greedy = {"temperature": 0, "max_tokens": 12, "ignore_eos": True, "return_token_ids": True}
    reply = http.chat(said(content), **greedy, **numbers)
    assert reply.status == 200, reply.content
    found: dict[str, Any] = json.loads(reply.content)
    return found


VARIANTS = {
    "chunk of 7": ("scheduler.prefill_chunk=7",),
    "two threads": ("device.threads=2",),
    "guesses": ('speculation.drafters=["ngram"]',),
}


def prompts_of(sight: TinySight) -> list[PromptParts]:
    one, two, three = (Image(picture, max_tokens=sight.max_tokens) for picture in pictures(3))
    return [
        PromptParts(parts)
        for parts in ((one, CYCLE), (CYCLE, two), (CYCLE, one, BETWEEN, two, three, CYCLE), (three, one))
    ]


def drawn(model: LanguageModel, prompt: PromptParts, seed: int) -> tuple[Any, ...]:
    given: dict[str, Any] = {"temperature": 0.7, "seed": seed, "max_tokens": N_TOKENS, "logprobs": True}
    words = {"regex": f"({TURN}){{20}}"} if seed % 2 == 0 else {"ignore_eos": True}  # words that prompt lookup finds
    result = model.generate(prompt, **given, **words).result()
    return result.token_ids, result.logprobs


def load(path: Path, *settings: str) -> LanguageModel:
    drafters = [] if any("drafters" in each for each in settings) else [NO_DRAFTERS]
    given = dict(each.split("=", 1) for each in (*SETTINGS, *drafters, *settings))
    with fixed_depth():
        return imp_service.load(path, *(f"{key}={value}" for key, value in given.items()))


def test_med_15_med_10_the_tokens_of_every_family_are_the_same_in_any_company(sight: TinySight, path: Path) -> None:
    prompts = prompts_of(sight)
    with load(path, "kv.prefix_cache=false") as model:
        alone = [drawn(model, prompt, seed) for seed, prompt in enumerate(prompts)]
        assert drawn(model, PromptParts((prompts[1].parts[1], CYCLE)), 0) != alone[0]  # another picture
    assert len({tuple(ids) for ids, _ in alone}) == len(prompts)
    for name, settings in VARIANTS.items():
        with load(path, *settings) as model:
            first = [drawn(model, prompt, seed) for seed, prompt in enumerate(prompts)]
            with ThreadPoolExecutor(len(prompts)) as threads:
                together = list(threads.map(lambda each: drawn(model, *each), zip(prompts, range(4), strict=True)))
            stats = model._runtime.client.engine.stats()
        assert first == alone, name
        assert together == alone, f"{name}, together and from the cache"
        assert stats.n_cached_tokens > 0
        assert (stats.drafts.n_drafted > 0) == (name == "guesses")
