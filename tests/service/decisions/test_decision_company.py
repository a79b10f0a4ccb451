"""The same bits of decisions alone and in any company, over every door; against a transformer in float64."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import imp_service
from imp_service import Decision, LanguageModel
from imp_service.models import demo_model_path
from support.calls.decisions import answers, asked, bits, inputs, message, question, typed
from support.models.fixed_depth import NO_DRAFTERS
from support.oracles.decision_oracle import label_probabilities
from support.oracles.numpy_qwen3 import NumpyQwen3
from support.oracles.tolerances import LOG_ODDS
from support.run.release_run import repetitions
from support.servers.http_served import HttpServed, serve_http

N = repetitions(200, 60)
TEXTS = inputs(N)
BODIES = [question(i) for i in range(N)]
LABELS = [list(typed(body).labels) for body in BODIES]
CHATS = [asked(text, body) for text, body in zip(TEXTS, BODIES, strict=True)]
ALONE = ("device.threads=1", "kv.prefix_cache=false", NO_DRAFTERS)


@pytest.fixture(scope="module")
def alone() -> list[Decision]:
    """Each decision by itself, on one thread, without the prefix cache."""
    with imp_service.load(None, *ALONE) as model:
        found = [model.decide(chat, labels) for chat, labels in zip(CHATS, LABELS, strict=True)]
    assert len({str(bits(each)) for each in found}) == N
    assert {each.evaluations > 0 for each in found} == {False, True}
    return found


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http("scheduler.prefill_chunk=32") as it:
        yield it


def batched(model: LanguageModel, numbers: list[int]) -> dict[int, Decision]:
    """The decisions of these questions: those with the same labels in one batch."""
    found: dict[int, Decision] = {}
    for labels in sorted({tuple(LABELS[i]) for i in numbers}):
        same = [i for i in numbers if tuple(LABELS[i]) == labels]
        found |= dict(zip(same, model.decide([CHATS[i] for i in same], labels), strict=True))
    return found


@pytest.mark.parametrize(
    "settings", [(), ("scheduler.prefill_chunk=7",), ("device.threads=3", "kv.prefix_cache=false")], ids=str
)
def test_dec_3_a_batch_gives_the_bits_of_each_alone(settings: tuple[str, ...], alone: list[Decision]) -> None:
    with imp_service.load(None, *settings) as model:
        found = batched(model, list(range(N)))
        again = batched(model, list(range(0, N, 10)))
    assert [i for i in range(N) if bits(found[i]) != bits(alone[i])] == []
    assert [i for i in again if bits(again[i]) != bits(alone[i])] == []
    if "kv.prefix_cache=false" not in settings:
        assert any(each.usage.cached_prompt_tokens > 0 for each in again.values())


def test_dec_3_dec_9_both_doors_give_the_same_bits_beside_each_other_and_generations(
    http: HttpServed, alone: list[Decision]
) -> None:
    stub, stop = http.served.inference, threading.Event()

    def generate() -> None:
        while not stop.is_set():
            http.chat("Tell a story", max_tokens=40, seed=3)

    def over_grpc(i: int) -> Any:
        return bits(stub.Decide(message(TEXTS[i], BODIES[i])))

    def over_http(i: int) -> Any:
        return http.client.post("/v1/decisions", {"input": TEXTS[i], "questions": [BODIES[i]]}).json["answers"]

    others = threading.Thread(target=generate)
    others.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            asked_both = [(pool.submit(over_grpc, i), pool.submit(over_http, N - 1 - i)) for i in range(N)]
            by_grpc = [each.result() for each, _ in asked_both]
            by_http = [each.result() for _, each in asked_both][::-1]
    finally:
        stop.set()
        others.join()
    assert [i for i in range(N) if by_grpc[i] != bits(alone[i])] == []
    assert by_http == [answers([body], [decision]) for body, decision in zip(BODIES, alone, strict=True)]
    assert over_grpc(1) != bits(alone[0]) and over_http(1) != answers([BODIES[0]], [alone[0]])


def test_dec_3_questions_of_one_request_do_not_change_each_other(http: HttpServed, alone: list[Decision]) -> None:
    """Forty questions about one text, which the later ones find in the cache."""
    bodies = [question(i) for i in range(40)]
    with imp_service.load(None, *ALONE) as model:
        expected = [model.decide(asked(TEXTS[0], body), list(typed(body).labels)) for body in bodies]
    reply = http.client.post("/v1/decisions", {"input": TEXTS[0], "questions": bodies})
    assert reply.json["answers"] == answers(bodies, expected)
    usage = reply.json["usage"]
    assert usage["input_tokens"] == sum(each.usage.prompt_tokens for each in expected)
    assert usage["input_tokens_details"]["cached_tokens"] > usage["input_tokens"] // 4


def test_dec_1_probabilities_are_those_of_a_transformer_in_float64(library: LanguageModel) -> None:
    oracle = NumpyQwen3.load(demo_model_path())
    cases: list[tuple[str, list[str]]] = [
        ("Is the sky blue? ", ["yes", "no"]),
        ("Once upon a time, there was a ", ["dog", "cat", "little girl", "little boy"]),
        ("2 plus 2 is ", ["4", "1", "10", "12", "100"]),
    ]
    for prompt, labels in cases:
        decision = library.decide(prompt, labels)
        paths = [each.token_ids for each in decision.labels]
        assert max(map(len, paths)) > 1
        ids = library.tokenize(prompt)
        rows: dict[Any, Any] = {}

        def after(path: tuple[int, ...], ids: list[int] = ids, rows: dict[Any, Any] = rows) -> Any:
            if path not in rows:
                rows[path] = np.asarray(oracle.logits([*ids, *path]))[-1][: library.num_tokens]
            return rows[path]

        expected = np.log(label_probabilities(after, paths))
        found = log_probabilities(decision)
        assert np.abs(found - expected).max() < LOG_ODDS
        # Other labels and other prompts are far from it.
        assert np.abs(found - expected[::-1]).max() > 2 * LOG_ODDS
        assert np.abs(log_probabilities(library.decide(f"No. {prompt}", labels)) - expected).max() > LOG_ODDS


def log_probabilities(decision: Decision) -> Any:
    return np.log([each.probability for each in decision.labels])
