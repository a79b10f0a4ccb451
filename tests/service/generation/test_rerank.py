"""Documents are ranked by a model's answer, yes or no: its template, its scores, their order, and what is refused."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import imp_service
from imp_service import LanguageModel
from imp_service.api.vectors import RerankOptions, RerankRequest, ranked
from support.models.tiny_judge import CONTROL, NO, YES, judge, write_judge
from support.oracles.tolerances import FLOAT32_ROUNDING, LOGPROB

POOLING = "model.overrides.pooling=yes_no"
QUERY = "capital of France"
DOCUMENTS = ("Paris is a city.", "A toaster", "yes", "Berlin, and much more than that.")
# As the page of Qwen3-Reranker writes a pair.
GOLDEN = (
    '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct '
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)  # fmt: skip
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
WORDS = "Is this {document} about {query}?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judge")


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[LanguageModel]:
    with imp_service.load(write_judge(folder / "judge.gguf"), POOLING, "kv.dtype=f32") as model:
        yield model


def golden_ids(model: LanguageModel, document: str, instruction: str = INSTRUCTION) -> list[int]:
    text = GOLDEN.format(instruction=instruction, query=QUERY, document=document)
    return model.tokenize(text, parse_special_tokens=True, add_special_tokens=False)


def planned(model: LanguageModel, *documents: str, query: str = QUERY, **options: object) -> list[list[int]]:
    request = RerankRequest(query, documents, RerankOptions(**options))  # type: ignore[arg-type]
    return [each.ids for each in model._runtime.embedder.plan_documents(request).inputs]


def test_emb_6_scores_are_the_probabilities_of_yes_against_no(model: LanguageModel) -> None:
    oracle = judge().oracle()
    expected = {}
    for i, document in enumerate(DOCUMENTS):
        logits = oracle.logits(golden_ids(model, document))[-1]
        weights = np.exp(logits[[YES, NO]] - logits.max())
        expected[i] = weights[0] / weights.sum()
    ranking = model.rerank(QUERY, DOCUMENTS)
    assert [each.index for each in ranking] == sorted(expected, key=expected.__getitem__, reverse=True)
    assert {each.index: each.score for each in ranking} == pytest.approx(expected, abs=LOGPROB)
    assert ranking.prompt_tokens == sum(len(golden_ids(model, document)) for document in DOCUMENTS)
    # Another place of the answer is seen.
    wrong = oracle.logits(golden_ids(model, DOCUMENTS[0]))[-2]
    assert abs(1 / (1 + math.exp(wrong[NO] - wrong[YES])) - expected[0]) > 10 * LOGPROB


def test_emb_6_a_score_does_not_depend_on_the_other_documents(model: LanguageModel) -> None:
    together = {each.index: each.score for each in model.rerank(QUERY, DOCUMENTS)}
    for i, document in enumerate(DOCUMENTS):
        [alone] = model.rerank(QUERY, [document])
        assert alone.score == together[i]
    backwards = {each.index: each.score for each in model.rerank(QUERY, DOCUMENTS[::-1])}
    assert [backwards[3 - i] for i in range(4)] == [together[i] for i in range(4)]
    assert len(set(together.values())) == 4


def test_emb_6_the_template_is_that_of_the_published_models(model: LanguageModel) -> None:
    assert planned(model, *DOCUMENTS) == [golden_ids(model, document) for document in DOCUMENTS]
    own = "Find the capital"
    assert planned(model, "Paris", instruction=own) == [golden_ids(model, "Paris", own)]


def test_emb_6_a_document_a_query_and_an_instruction_never_become_special_tokens(model: LanguageModel) -> None:
    special = model._runtime.tokenizer.special_ids
    n_of_template = sum(token in special for token in golden_ids(model, ""))
    hostile = " ".join(CONTROL)
    for [ids] in (
        planned(model, hostile), planned(model, "x", query=hostile), planned(model, "x", instruction=hostile)
    ):  # fmt: skip
        assert sum(token in special for token in ids) == n_of_template
        assert hostile in model.detokenize(ids)


def test_emb_6_the_order_is_by_score_then_index_and_top_n_ends_it(model: LanguageModel) -> None:
    assert [each.index for each in ranked([0.5, 0.9, 0.5, 0.9])] == [1, 3, 0, 2]
    same = model.rerank(QUERY, ["toaster", "Paris", "toaster"])
    assert len(same) == 3
    scores = {each.index: each.score for each in same}
    assert scores[0] == scores[2]
    places = [each.index for each in same]
    assert places.index(0) < places.index(2)
    assert list(model.rerank(QUERY, DOCUMENTS, top_n=2)) == list(model.rerank(QUERY, DOCUMENTS))[:2]
    assert len(model.rerank(QUERY, DOCUMENTS, top_n=9)) == 4


def test_emb_6_raw_scores_are_log_odds(model: LanguageModel) -> None:
    raw = {each.index: each.score for each in model.rerank(QUERY, DOCUMENTS, raw_scores=True)}
    for each in model.rerank(QUERY, DOCUMENTS):
        assert each.score == pytest.approx(1 / (1 + math.exp(-raw[each.index])), rel=FLOAT32_ROUNDING * 4)


def test_emb_6_the_template_of_the_file_replaces_it(folder: Path) -> None:
    path = write_judge(folder / "worded.gguf", {"tokenizer.chat_template.rerank": WORDS[::1].replace("Is", "Q")})
    with pytest.raises(imp_service.ConfigError, match=r"pooling: yes_no, expected only with "):
        imp_service.load(path, POOLING)  # the document comes before the query
    words = "About {query}<|im_end|>{document}?"
    path = write_judge(folder / "worded.gguf", {"tokenizer.chat_template.rerank": words})
    with imp_service.load(path, POOLING) as model:
        text = words.format(query=QUERY, document="Paris")
        assert planned(model, "Paris") == [model.tokenize(text, parse_special_tokens=True, add_special_tokens=False)]
        with pytest.raises(imp_service.FieldsInvalid, match="instruction: set, but this model has no place for it"):
            model.rerank(QUERY, ["x"], instruction="y")


def test_emb_6_a_file_whose_pooling_is_rank_answers_yes_or_no(folder: Path) -> None:
    path = write_judge(folder / "ranked.gguf", {"qwen3.pooling_type": 4})
    with imp_service.load(path) as model:
        assert model._runtime.embedder.facts.pooling == "yes_no"


@pytest.mark.parametrize(
    ("query", "documents", "options", "said"),
    [
        ("", ["x"], {}, "query: expected a text that is not empty"),
        ("x", ["x", ""], {}, r"documents\[1\]: expected a text that is not empty"),
        ("x", ["x"], {"top_n": 0}, "top_n: 0, expected 1 to "),
        ("x", ["x"], {"truncate": "middle"}, "truncate: 'middle', expected one of none, end, start"),
        ("x", ["x"], {"max_tokens": 5000}, "max_tokens: 5000, expected 1 to 1024, the model's limit"),
        ("x", ["x"], {"priority": 10**9}, "priority: "),
    ],
)
def test_emb_4_a_wrong_ranking_is_refused_with_its_field(
    model: LanguageModel, query: str, documents: list[str], options: dict[str, object], said: str
) -> None:
    with pytest.raises(imp_service.FieldsInvalid, match=f"FIELD_INVALID: {said}"):
        model.rerank(query, documents, **options)


def test_emb_4_a_judge_makes_no_vectors_and_a_model_without_pooling_says_what_to_write(
    model: LanguageModel, library: LanguageModel
) -> None:
    what_to_write = 'set model.overrides.pooling to what its author specifies, "last" or "mean"'
    for each, call, said in (
        (model, lambda m: m.embed(["x"]), "this model ranks documents, and makes no vectors"),
        (library, lambda m: m.embed(["x"]), what_to_write),
        (library, lambda m: m.rerank("x", ["y"]), 'one that answers yes or no set model.overrides.pooling = "yes_no"'),
    ):  # fmt: skip
        with pytest.raises(imp_service.StateError) as info:
            call(each)
        assert info.value.reason == "NOT_SUPPORTED_BY_MODEL"
        assert said in info.value.message


def test_emb_4_a_model_without_the_tokens_cannot_answer() -> None:
    with pytest.raises(imp_service.ConfigError) as info:
        imp_service.load(None, POOLING)
    assert info.value.reason == "OVERRIDE_INVALID"
    assert "expected only with a model with tokens for yes and no" in info.value.message


def test_emb_6_rerank_async_gives_the_same_and_ends_with_its_task(model: LanguageModel) -> None:
    async def both() -> list[object]:
        found = await model.rerank_async(QUERY, DOCUMENTS)
        with pytest.raises(TimeoutError):  # which cancels it
            await asyncio.wait_for(model.rerank_async(QUERY, ["word " * 120] * 200), 0.05)
        return list(found)

    assert asyncio.run(both()) == list(model.rerank(QUERY, DOCUMENTS))
    engine = model._runtime.client.engine
    model.rerank(QUERY, ["x"])
    assert engine.stats().running == 0
