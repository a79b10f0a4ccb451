"""A model with recurrent state gives the same text to clients of gRPC and HTTP, in a batch and after preemption."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import imp_service
from support.servers.http_served import serve_http
from support.servers.scraped import scrape
from support.servers.served_models import tiny_with_text

N_TOKENS = 80
N_SEQUENCES = 4
PROMPTS = [f"{'the other ' * (i % 4)}number {i} and the th" for i in range(8)]
SIZES = "limits.max_context=160"

Texts = list[str]


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen35", "qwen3next"])
def test_det_1_det_2_det_5_sch_4_text_of_recurrent_models_is_the_same_over_both_protocols(
    family: str, tmp_path: Path
) -> None:
    source = tiny_with_text(tmp_path, family, seed=3)
    path = tmp_path / f"tiny_{family}.gguf"
    with imp_service.load(path, "device.threads=1", "kv.prefix_cache=false", SIZES) as model:
        alone = [texts_of(model, prompt) for prompt in PROMPTS]
    assert len({text for texts in alone for text in texts}) > len(PROMPTS) * N_SEQUENCES // 2
    # The cache holds the sequences of one prompt. One call over HTTP asks for those of four at once.
    small = ("kv.bytes=65536", "scheduler.prefill_chunk=7", "device.threads=2", SIZES)
    with serve_http(*small, model=source) as http, imp_service.connect(http.served.address) as client:

        def over_http(prompts: list[str]) -> list[Texts]:
            fields = {"max_tokens": N_TOKENS, "temperature": 0.8, "seed": 1, "ignore_eos": True, "n": N_SEQUENCES}
            choices = http.connect().post("/v1/completions", {"prompt": prompts, **fields}).json["choices"]
            texts = [choice["text"] for choice in sorted(choices, key=lambda choice: choice["index"])]
            return [texts[i : i + N_SEQUENCES] for i in range(0, len(texts), N_SEQUENCES)]

        with ThreadPoolExecutor(len(PROMPTS)) as threads:

            def over_both(http_first: bool) -> list[Texts]:
                halves = PROMPTS[:4], PROMPTS[4:]
                of_http, of_grpc = halves if http_first else reversed(halves)
                called = threads.submit(over_http, of_http)
                streamed = list(threads.map(lambda prompt: texts_of(client, prompt), of_grpc))
                return [*called.result(), *streamed] if http_first else [*streamed, *called.result()]

            found = over_both(http_first=True), over_both(http_first=False)
        http.wait_for_rest()
        counted = scrape(http.served)
    assert found == (alone, alone)
    assert counted["imp_preemptions_total"] > 0


def texts_of(model: imp_service.LanguageModel | imp_service.Client, prompt: str) -> Texts:
    options = {"max_tokens": N_TOKENS, "temperature": 0.8, "ignore_eos": True, "num_sequences": N_SEQUENCES}
    return [each.text for each in model.generate(prompt, seed=1, **options).results()]
