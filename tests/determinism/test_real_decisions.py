"""Decisions of a real model have the same bits alone, in batches, with hits in the prefix cache and at both doors."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import imp_service
from determinism.test_real_weights import real_weights, with_real_weights
from imp_service import Decision, LanguageModel
from support.calls.decisions import answers, asked, bits, inputs, message, question, typed
from support.models.fixed_depth import NO_DRAFTERS
from support.servers.http_served import serve_http
from support.servers.served_models import from_file

pytestmark = [with_real_weights, pytest.mark.timeout(1800)]

N = 200
TEXTS = inputs(N)
BODIES = [question(i) for i in range(N)]
LABELS = [list(typed(body).labels) for body in BODIES]
CHATS = [asked(text, body) for text, body in zip(TEXTS, BODIES, strict=True)]


@pytest.fixture(scope="module")
def alone() -> list[Decision]:
    """Each decision by itself, on one thread, without the prefix cache."""
    with imp_service.load(real_weights(), "device.threads=1", "kv.prefix_cache=false", NO_DRAFTERS) as model:
        return [model.decide(chat, labels) for chat, labels in zip(CHATS, LABELS, strict=True)]


@pytest.fixture(scope="module")
def model() -> Iterator[LanguageModel]:
    with imp_service.load(real_weights()) as it:
        yield it


def test_dec_3_batches_and_prefix_hits_change_no_bit_of_a_real_model(
    model: LanguageModel, alone: list[Decision]
) -> None:
    assert len({str(bits(each)) for each in alone}) == N
    for kind in range(4):
        numbers = range(kind, N, 4)
        for labels in {tuple(LABELS[i]) for i in numbers}:
            same = [i for i in numbers if tuple(LABELS[i]) == labels]
            for _ in range(2):
                found = model.decide([CHATS[i] for i in same], labels)
                assert [i for i, each in zip(same, found, strict=True) if bits(each) != bits(alone[i])] == []
            assert any(each.usage.cached_prompt_tokens > 0 for each in found)


def test_dec_3_both_doors_give_the_bits_of_a_real_model(alone: list[Decision]) -> None:
    with serve_http(model=from_file(real_weights())) as http, ThreadPoolExecutor(8) as pool:

        def over_grpc(i: int) -> Any:
            return bits(http.served.inference.Decide(message(TEXTS[i], BODIES[i])))

        def over_http(i: int) -> Any:
            body = {"input": TEXTS[i], "questions": [BODIES[i]]}
            return http.client.post("/v1/decisions", body).json["answers"]

        assert list(pool.map(over_grpc, range(N))) == list(map(bits, alone))
        expected = [answers([body], [decision]) for body, decision in zip(BODIES, alone, strict=True)]
        assert list(pool.map(over_http, range(N))) == expected
