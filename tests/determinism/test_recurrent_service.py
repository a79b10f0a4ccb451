"""A model with recurrent state gives the same text to clients of gRPC and HTTP, in company and after preemption."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import imp_service
from support.http_served import serve_http
from support.scraped import scrape
from support.served_models import tiny_with_text

N_TOKENS = 80
PROMPTS = [f"{'the other ' * (i % 4)}number {i} and the th" for i in range(16)]
SIZES = "limits.max_context=160"


@pytest.mark.parametrize("family", ["qwen35", "qwen3next"])
def test_det_1_det_2_det_5_sch_4_text_of_recurrent_models_is_the_same_over_both_protocols(
    family: str, tmp_path: Path
) -> None:
    source = tiny_with_text(tmp_path, family, seed=3)
    path = tmp_path / f"tiny_{family}.gguf"
    with imp_service.load(path, "device.threads=1", "kv.prefix_cache=false", SIZES) as model:
        alone = [text_of(model)(i) for i in range(len(PROMPTS))]
    assert len(set(alone)) > len(PROMPTS) // 2
    # A third of the blocks that all requests need.
    small = ("kv.bytes=65536", "scheduler.prefill_chunk=7", "device.threads=2", SIZES)
    with serve_http(*small, model=source) as http, imp_service.connect(http.served.address) as client:

        def over_http(i: int) -> str:
            fields = {"max_tokens": N_TOKENS, "temperature": 0.8, "seed": i, "ignore_eos": True}
            text: str = (
                http.connect().post("/v1/completions", {"prompt": PROMPTS[i], **fields}).json["choices"][0]["text"]
            )
            return text

        ways: list[Callable[[int], str]] = [text_of(client), over_http]
        with ThreadPoolExecutor(len(PROMPTS)) as threads:
            found = list(threads.map(lambda i: ways[i % 2](i), range(len(PROMPTS))))
            swapped = list(threads.map(lambda i: ways[1 - i % 2](i), range(len(PROMPTS))))
        http.wait_for_rest()
        counted = scrape(http.served)
    assert (found, swapped) == (alone, alone)
    assert counted["imp_preemptions_total"] > 0


def text_of(model: imp_service.LanguageModel | imp_service.Client) -> Callable[[int], str]:
    options = {"max_tokens": N_TOKENS, "temperature": 0.8, "ignore_eos": True}
    return lambda i: model.generate(PROMPTS[i], seed=i, **options).result().text
