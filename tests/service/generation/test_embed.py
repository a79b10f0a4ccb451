"""The library embeds texts and ranks pairs with a tiny encoder: values, order, usage, lengths, and what it refuses."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import imp_service
from imp_service import LanguageModel, Ranking, Vectors
from imp_service.api.vectors import EmbedRequest
from imp_service.core import make_error
from imp_service.generation.limits import ASK_AGAIN
from imp_service.generation.vector_run import VectorRun
from imp_service.generation.warm_up import warm_up
from support.models.worded_encoders import write_encoder
from support.oracles.tolerances import FLOAT32_ROUNDING, UNIT_LENGTH
from support.text.hub_tokenizers import library_of, random_texts

PROMPTS = {"query": "Instruct: Given a question, find the answer\nQuery:", "passage": "passage: "}
TEXTS = ("Hello", "the weather in the north", "a toaster", "Hello", "It is cold. Very cold!")
FEW = "scheduler.max_running=2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoders")


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[LanguageModel]:
    with imp_service.load(write_encoder(folder / "mean", prompts=PROMPTS)) as model:
        yield model


@pytest.fixture(scope="module")
def ranker(folder: Path) -> Iterator[LanguageModel]:
    with imp_service.load(write_encoder(folder / "rank", "rank")) as model:
        yield model


def array_of(vectors: Vectors) -> NDArray[np.float64]:
    return np.asarray(vectors, np.float64)


def bits(vectors: Vectors) -> list[bytes]:
    return [each.tobytes() for each in vectors]


def test_emb_4_vectors_have_length_one_and_are_as_wide_as_the_model(model: LanguageModel) -> None:
    vectors = model.embed(TEXTS)
    assert array_of(vectors).shape == (5, 32)
    assert np.abs(np.linalg.norm(array_of(vectors), axis=1) - 1).max() < UNIT_LENGTH
    raw = array_of(model.embed(TEXTS, normalize=False))
    lengths = np.linalg.norm(raw, axis=1)
    assert np.abs(lengths - 1).min() > 1000 * UNIT_LENGTH
    assert array_of(vectors) == pytest.approx(raw / lengths[:, None], abs=FLOAT32_ROUNDING * 2)


def test_emb_4_dimensions_cut_the_vector_before_its_length(model: LanguageModel) -> None:
    raw = array_of(model.embed(TEXTS, normalize=False))
    for n in (1, 7, 32):
        cut = raw[:, :n]
        expected = cut / np.linalg.norm(cut, axis=1)[:, None]
        assert array_of(model.embed(TEXTS, dimensions=n)) == pytest.approx(expected, abs=FLOAT32_ROUNDING * 2)
        assert array_of(model.embed(TEXTS, dimensions=n, normalize=False)) == pytest.approx(cut)


def test_emb_4_vectors_are_in_the_order_of_the_texts_and_usage_is_exact(model: LanguageModel) -> None:
    vectors, library = model.embed(TEXTS), library_of("word piece")
    assert bits(vectors)[0] == bits(vectors)[3]
    assert len(set(bits(vectors))) == 4
    assert bits(model.embed(TEXTS[::-1])) == bits(vectors)[::-1]
    assert bits(model.embed(TEXTS[1])) == [bits(vectors)[1]]
    assert vectors.prompt_tokens == sum(len(library.encode(text).ids) for text in TEXTS)
    assert vectors.cached_prompt_tokens == 0
    assert vectors.timings.prefill > 0
    assert repr(vectors) == f"<Vectors: 5 of 32 dimensions; {vectors.prompt_tokens} tokens>"


def test_emb_4_ids_give_the_vector_of_their_text(model: LanguageModel) -> None:
    ids = [model.tokenize(text) for text in TEXTS]
    assert bits(model.embed(ids)) == bits(model.embed(TEXTS))
    assert bits(model.embed(ids[:1])) != bits(model.embed([TEXTS[0]], add_special_tokens=False))


def test_emb_4_more_texts_than_run_at_once_are_fed_one_after_another(model: LanguageModel, folder: Path) -> None:
    texts = [text for text in random_texts(120, seed=9) if text.strip()]
    expected = bits(model.embed(texts, truncate="end"))
    with imp_service.load(folder / "mean", FEW, "scheduler.max_waiting=4") as few:
        assert bits(few.embed(texts, truncate="end")) == expected
        embedder = few._runtime.embedder
        run = VectorRun(few._runtime, embedder.plan_texts(EmbedRequest(["Hello"] * 50)))
        run.begin()
        assert len(run._running) <= 2
        run.cancel()
        assert run.is_done and not few._runtime.client._handlers.keys() - {0}


class Loop:
    """Keeps what a run asks an event loop for."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []
        self.later: list[tuple[float, Callable[[], object]]] = []

    def call_soon(self, work: Callable[[], object], /) -> None:
        self.soon.append(work)

    def call_later(self, seconds: float, work: Callable[[], object], /) -> None:
        self.later.append((seconds, work))


def test_emb_5_a_call_that_found_the_queue_full_asks_again(model: LanguageModel, folder: Path) -> None:
    with imp_service.load(folder / "mean", FEW) as few:
        client, loop, is_full = few._runtime.client, Loop(), True
        run = VectorRun(few._runtime, few._runtime.embedder.plan_texts(EmbedRequest(TEXTS)), loop=loop)
        run.begin()
        submit = run._submit

        def refused(index: int) -> None:
            if is_full:
                raise make_error("QUEUE_FULL", "others fill it")
            submit(index)

        def work_until(done: Callable[[], bool]) -> None:
            while not done():
                client.wait(lambda: bool(loop.soon))
                loop.soon.pop(0)()

        run._submit = refused  # type: ignore[method-assign]
        work_until(lambda: run.is_starved)
        assert not run.is_done and [seconds for seconds, _ in loop.later] == [ASK_AGAIN]
        loop.later.pop()[1]()
        assert run.is_starved and len(loop.later) == 1
        is_full = False
        loop.later.pop()[1]()
        work_until(lambda: run.is_done)
        assert bits(run.vectors()) == bits(model.embed(TEXTS)) and not loop.later


def test_emb_4_prompts_change_vectors_as_text_before_it_does(model: LanguageModel) -> None:
    for name, prompt in PROMPTS.items():
        named = model.embed(["Hello"], prompt_name=name)
        assert bits(named) == bits(model.embed([prompt + "Hello"]))
    own = model.embed(["Hello"], instruction="name it")
    assert bits(own) == bits(model.embed(["Instruct: name it\nQuery:Hello"]))
    with pytest.raises(imp_service.FieldsInvalid, match=r"prompt_name: 'no', expected one of query, passage"):
        model.embed(["Hello"], prompt_name="no")


def test_emb_11_a_text_that_is_too_long_is_refused_by_its_index_or_cut(model: LanguageModel) -> None:
    long = "the weather in the north " * 60
    with pytest.raises(imp_service.Error) as info:
        model.embed(["Hello", long])
    assert info.value.reason == "CONTEXT_TOO_LONG"
    assert info.value.message.startswith("texts[1]: ")
    assert info.value.details["max_context_tokens"] == "128"
    cut = model.embed(["Hello", long], truncate="end")
    assert cut.truncated == (1,)
    assert bits(cut)[1] == bits(model.embed([[*model.tokenize(long)[:127], 3]]))[0]


def test_emb_4_a_step_that_is_shorter_than_the_context_is_the_longest_text(folder: Path) -> None:
    with imp_service.load(folder / "mean", "scheduler.step_tokens=64", "scheduler.prefill_chunk=64") as model:
        assert any("scheduler.step_tokens" in each for each in model.warnings)
        with pytest.raises(imp_service.Error, match="CONTEXT_TOO_LONG"):
            model.embed(["the weather in the north " * 20])
        assert array_of(model.embed([[5] * 64])).shape == (1, 32)


def test_emb_4_embed_async_gives_the_same(model: LanguageModel) -> None:
    assert bits(asyncio.run(model.embed_async(TEXTS))) == bits(model.embed(TEXTS))


def test_emb_4_a_zero_vector_stays_zero() -> None:
    assert np.asarray(Vectors(())).shape == (0, 0)


def test_emb_6_a_classifier_scores_pairs_by_the_sigmoid_of_its_number(ranker: LanguageModel) -> None:
    query, documents = "the north", ["a toaster", "the weather in the north", "Hello"]
    raw = {each.index: each.score for each in ranker.rerank(query, documents, raw_scores=True)}
    ranking = ranker.rerank(query, documents)
    assert {each.index: each.score for each in ranking} == pytest.approx(
        {i: 1 / (1 + math.exp(-score)) for i, score in raw.items()}, rel=FLOAT32_ROUNDING * 4
    )
    assert [each.index for each in ranking] == sorted(raw, key=raw.__getitem__, reverse=True)
    library = library_of("word piece")
    assert ranking.prompt_tokens == sum(len(library.encode(query, each).ids) for each in documents)
    assert isinstance(ranking, Ranking)
    assert len(ranker.rerank(query, documents, top_n=1)) == 1
    # Types of tokens and the order of a pair count.
    [swapped] = ranker.rerank(documents[1], [query], raw_scores=True)
    assert swapped.score != raw[1]


def test_emb_11_of_a_pair_the_document_is_cut(ranker: LanguageModel) -> None:
    query, long = "the north", "the weather in the north " * 60
    with pytest.raises(imp_service.Error, match=r"CONTEXT_TOO_LONG: documents\[1\]: "):
        ranker.rerank(query, ["a toaster", long])
    ranking = ranker.rerank(query, ["a toaster", long], truncate="end")
    assert ranking.truncated == (1,)


def test_emb_7_an_encoder_generates_no_text(model: LanguageModel, ranker: LanguageModel) -> None:
    for each, said in (
        (model, "an embedding model generates no text: imp embed"),
        (ranker, "a reranker generates no text: imp rerank"),
    ):
        for call in (
            lambda m: m.generate("Hello").result(),
            lambda m: m.chat("Hello").result(),
            lambda m: m.generate(["Hello", "you"]).results(),
            lambda m: m.open(),
        ):
            with pytest.raises(imp_service.StateError) as info:
                call(each)
            assert info.value.reason == "NOT_SUPPORTED_BY_MODEL"
            assert info.value.message.removeprefix("prompt[0]: ") == said
            assert info.value.details == {"feature": "generation"}
    with pytest.raises(imp_service.StateError, match="this model ranks documents, and makes no vectors"):
        ranker.embed(["Hello"])
    with pytest.raises(imp_service.StateError, match="this model makes vectors, and does not rank documents"):
        model.rerank("Hello", ["you"])
    assert model.detokenize(model.tokenize("Hello")).split() == ["hello"]
    warm_up(model._runtime)
    warm_up(ranker._runtime)


def test_emb_4_an_encoder_whose_files_name_no_pooling_says_what_to_write(folder: Path) -> None:
    path = write_encoder(folder / "unknown")
    (path / "modules.json").unlink()
    with imp_service.load(path) as model, pytest.raises(imp_service.StateError) as info:
        model.embed(["Hello"])
    assert info.value.message.endswith('set model.overrides.pooling to what its author specifies, "mean" or "cls"')
    with imp_service.load(path, "model.overrides.pooling=mean") as model, imp_service.load(folder / "mean") as named:
        assert bits(model.embed(TEXTS)) == bits(named.embed(TEXTS))
    with pytest.raises(imp_service.ConfigError, match=r"yes_no, expected only with a model that reads a question"):
        imp_service.load(path, "model.overrides.pooling=yes_no")
