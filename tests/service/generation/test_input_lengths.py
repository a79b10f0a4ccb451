"""Texts and pairs that are too long are refused or cut, as the `tokenizers` library cuts them; prompts come before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tokenizers import Tokenizer as Library

from imp_service.api.errors import Error, FieldsInvalid
from imp_service.api.vectors import EmbedOptions, EmbedRequest, RerankOptions, RerankRequest
from imp_service.generation.embedding import CallPlan, Embedder
from imp_service.generation.embedding_facts import EmbeddingFacts
from imp_service.generation.limits import EngineLimits
from imp_service.generation.pairs import QWEN3_TEMPLATE, find_pair_reader
from imp_service.generation.scoring import Scorer
from imp_service.generation.text_prompts import read_text_prompts
from imp_service.text import Tokenizer
from support.text.hub_tokenizers import CHATML, files_of, library_of, random_texts

MOST = 24
PROMPTS = {
    "sentence_transformers.prompts.query": "Instruct: Given a question, find the answer\nQuery:",
    "sentence_transformers.prompts.passage": "passage: ",
    "sentence_transformers.prompts.document": "",
}
SIDES = (("end", "right"), ("start", "left"))


def embedder(library: Library, *, max_tokens: int = MOST, architecture: str = "bert", **metadata: str) -> Embedder:
    tokenizer = Tokenizer.from_directory(files_of(library))
    pairs, prompts = find_pair_reader(tokenizer, metadata, architecture), read_text_prompts({**PROMPTS, **metadata})
    facts = EmbeddingFacts("rank", 0, max_tokens, tuple(prompts.texts), reads_pairs=True)
    limits = EngineLimits(tokenizer.vocab_size, tokenizer.vocab_size)
    return Embedder(facts, tokenizer, prompts, pairs, scorer=Scorer(), truncate="none", limits=limits)


def embedding(library: Library, **facts: Any) -> Embedder:
    found = embedder(library)
    found.facts = replace(found.facts, pooling="mean", dimensions=8, **facts)
    return found


def planned(plan: CallPlan) -> list[list[int]]:
    return [each.ids for each in plan.inputs]


def plain(kind: str, side: str = "", **truncation: Any) -> Library:
    library = Library.from_str(library_of(kind).to_str())
    library.encode_special_tokens = True
    if side:
        library.enable_truncation(MOST, direction=side, **truncation)
    return library


@pytest.mark.parametrize("kind", ["word piece", "unigram", "pairs, prepended"])
@pytest.mark.parametrize(("truncate", "side"), SIDES)
def test_emb_11_texts_are_cut_where_the_library_cuts_them(kind: str, truncate: str, side: str) -> None:
    texts = [each for each in random_texts(300, seed=21, spelled=CHATML) if each.strip()]
    library = plain(kind, side)
    plan = embedding(plain(kind)).plan_texts(EmbedRequest(texts, EmbedOptions(truncate=truncate)))
    assert planned(plan) == [library.encode(text).ids for text in texts]
    whole = [plain(kind).encode(text).ids for text in texts]
    assert plan.truncated == tuple(i for i, ids in enumerate(whole) if len(ids) > MOST)
    assert 0 < len(plan.truncated) < len(texts)
    assert plan.prompt_tokens == sum(map(len, planned(plan)))
    other = "start" if truncate == "end" else "end"
    assert planned(embedding(plain(kind)).plan_texts(EmbedRequest(texts, EmbedOptions(truncate=other)))) != planned(
        plan
    )


@pytest.mark.parametrize(("truncate", "side"), SIDES)
def test_emb_11_of_a_pair_the_document_is_cut_where_the_library_cuts_it(truncate: str, side: str) -> None:
    library = plain("word piece", side, strategy="only_second")
    documents = [each for each in random_texts(300, seed=22) if each.strip()]
    for query in ("Hello", "the weather in the north"):
        plan = embedder(plain("word piece")).plan_documents(
            RerankRequest(query, documents, RerankOptions(truncate=truncate))
        )
        for item, document in zip(plan.inputs, documents, strict=True):
            expected = library.encode(query, document)
            assert item.ids == expected.ids, document
            types_from = expected.type_ids.index(1)
            assert item.second_text == types_from
            assert expected.type_ids == [0] * types_from + [1] * (len(item.ids) - types_from)
        assert plan.truncated


@pytest.mark.parametrize("truncate", ["end", "start"])
def test_emb_11_in_a_template_the_document_is_cut_and_its_frame_stays(truncate: str) -> None:
    library = plain("byte level")
    library.encode_special_tokens = False
    head, tail = QWEN3_TEMPLATE.replace("{query}", "the north").split("{document}")
    n_frame = len(library.encode(head).ids) + len(library.encode(tail).ids)
    judge = embedder(library, architecture="qwen3", max_tokens=n_frame + 12)
    documents = [each.replace("<", " ") for each in random_texts(200, seed=23, spelled=("x",)) if each]
    plan = judge.plan_documents(RerankRequest("the north", documents, RerankOptions(truncate=truncate)))
    assert plan.truncated
    for item, document in zip(plan.inputs, documents, strict=True):
        expected = library.encode(head + document + tail).ids
        n_tail = len(library.encode(tail).ids)
        assert len(item.ids) == min(len(expected), n_frame + 12)
        assert item.ids[-n_tail:] == expected[-n_tail:]
        assert item.is_cut == (len(expected) > n_frame + 12)
        # The first word of a document may take the space before it.
        n_sure = len(library.encode(head).ids) - 1
        assert item.ids[:n_sure] == expected[:n_sure]
        body = expected[: len(expected) - n_tail]
        kept = item.ids[:-n_tail]
        if truncate == "end":
            assert kept == body[: len(kept)]
        else:
            assert kept[n_sure + 1 :] == body[len(body) - len(kept) + n_sure + 1 :]


def test_emb_11_a_query_that_leaves_no_room_is_refused() -> None:
    ranker = embedder(plain("word piece"))
    for truncate in ("none", "end", "start"):
        with pytest.raises(Error) as info:
            ranker.plan_documents(RerankRequest("the weather " * 30, ["x"], RerankOptions(truncate=truncate)))
        assert (info.value.reason, info.value.details["index"]) == ("CONTEXT_TOO_LONG", "0")


def test_emb_11_a_text_that_is_too_long_is_refused_with_its_index_and_length() -> None:
    library = plain("word piece")
    n_tokens = len(library.encode("the weather " * 30).ids)
    with pytest.raises(Error) as info:
        embedding(library).plan_texts(EmbedRequest(["Hello", "the weather " * 30]))
    assert info.value.reason == "CONTEXT_TOO_LONG"
    expected = {"index": "1", "prompt_tokens": str(n_tokens), "max_context_tokens": str(MOST)}
    assert info.value.details == expected


def test_emb_11_the_settings_word_counts_where_a_request_has_none() -> None:
    library = plain("word piece", "left")
    found = embedding(plain("word piece"))
    found._truncate = "start"
    text = "the weather " * 30
    assert planned(found.plan_texts(EmbedRequest([text]))) == [library.encode(text).ids]
    with pytest.raises(Error, match="CONTEXT_TOO_LONG"):
        found.plan_texts(EmbedRequest([text], EmbedOptions(truncate="none")))


def test_emb_11_a_request_has_a_smaller_limit_of_its_own() -> None:
    library, text = plain("word piece"), "the weather in the north"
    library.enable_truncation(5)
    found = embedding(plain("word piece"))
    options = EmbedOptions(truncate="end", max_tokens=5)
    assert planned(found.plan_texts(EmbedRequest([text], options))) == [library.encode(text).ids]
    for most, said in ((2, "2, expected 3 to 24"), (25, "25, expected 3 to 24"), (0, "0, expected 1 to ")):
        with pytest.raises(FieldsInvalid, match=f"max_tokens: {said}"):
            found.check_embed(EmbedRequest([text], EmbedOptions(max_tokens=most)))
    ranker = embedder(plain("word piece"), max_tokens=64)
    document = "the weather in the north is cold"
    [cut, whole] = [
        ranker.plan_documents(RerankRequest("Hello", [document], RerankOptions(max_document_tokens=most))).inputs[0]
        for most in (3, 50)
    ]
    ids = plain("word piece").encode(document, add_special_tokens=False).ids
    assert cut.is_cut and cut.ids[-4:-1] == ids[:3]
    assert not whole.is_cut and whole.ids[-len(ids) - 1 : -1] == ids


def test_emb_11_ids_are_used_as_they_are_and_cut_at_their_ends() -> None:
    found = embedding(plain("word piece"))
    ids = [5 + i for i in range(MOST + 4)]
    for truncate, kept in (("end", ids[:MOST]), ("start", ids[4:])):
        assert planned(found.plan_texts(EmbedRequest([ids], EmbedOptions(truncate=truncate)))) == [kept]
    plan = found.plan_texts(EmbedRequest(["Hello", [9]], EmbedOptions(add_special_tokens=False)))
    assert planned(plan) == [plain("word piece").encode("Hello", add_special_tokens=False).ids, [9]]


def test_emb_11_a_prompt_comes_before_the_text_and_counts() -> None:
    library, found = plain("word piece"), embedding(plain("word piece"), takes_instruction=True)
    instruct, passage = PROMPTS["sentence_transformers.prompts.query"], "passage: "
    for options, before in (
        (EmbedOptions(prompt_name="passage"), passage),
        (EmbedOptions(prompt_name="query", max_tokens=MOST, truncate="end"), instruct),
        (EmbedOptions(instruction="name [SEP]", truncate="end"), "Instruct: name [SEP]\nQuery:"),
        (EmbedOptions(prompt_name="document"), ""),
        (EmbedOptions(), ""),
    ):
        expected = library.encode(f"{before}Hello").ids
        if len(expected) > MOST:
            expected = [*expected[: MOST - 1], expected[-1]]
        assert planned(found.plan_texts(EmbedRequest(["Hello"], options))) == [expected], options
    default = embedder(plain("word piece"), **{"sentence_transformers.default_prompt_name": "passage"})
    assert planned(default.plan_texts(EmbedRequest(["Hello"]))) == [library.encode("passage: Hello").ids]


@pytest.mark.parametrize(
    ("texts", "options", "said"),
    [
        ("Hello", {}, "texts: str, expected a list of texts, or of lists of token ids"),
        (["a", ""], {}, r"texts\[1\]: empty"),
        (["a", []], {}, r"texts\[1\]: empty"),
        ([3], {}, r"texts\[0\]: int, expected a text, or a list of token ids"),
        (["a", [10**6]], {}, r"texts\[1\]\[0\]: token 1000000, expected below "),
        (["a"], {"dimensions": 0}, "dimensions: 0, expected 1 to "),
        (["a"], {"dimensions": 9}, "dimensions: 9, expected at most 8, those of the model"),
        (["a"], {"truncate": "middle"}, "truncate: 'middle', expected one of none, end, start"),
        (["a"], {"prompt_name": "title"}, "prompt_name: 'title', expected one of query, passage, document"),
        (
            ["a"],
            {"prompt_name": "passage", "instruction": "x"},
            "instruction: set, but the prompt passage has no place",
        ),
    ],
)
def test_emb_4_a_wrong_request_for_vectors_is_refused_with_its_field(
    texts: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(FieldsInvalid, match=f"FIELD_INVALID: {said}"):
        embedding(plain("word piece")).check_embed(EmbedRequest(texts, EmbedOptions(**options)))


def test_emb_4_every_wrong_field_is_named_at_once() -> None:
    request = EmbedRequest(["", "a"], EmbedOptions(dimensions=0, truncate="x"))
    with pytest.raises(FieldsInvalid) as info:
        embedding(plain("word piece")).check_embed(request)
    assert [each.path for each in info.value.violations] == ["texts[0]", "dimensions", "truncate"]


def test_emb_4_shorter_vectors_are_approximate_unless_the_model_says_otherwise() -> None:
    for is_matryoshka, expected in ((False, "dimensions=4"), (True, "")):
        found = embedding(plain("word piece"), is_matryoshka=is_matryoshka)
        assert found.approximation(EmbedOptions(dimensions=4)) == expected
        assert found.approximation(EmbedOptions(dimensions=8)) == found.approximation(EmbedOptions()) == ""


def test_emb_4_a_text_without_a_token_is_refused() -> None:
    with pytest.raises(FieldsInvalid, match=r"texts\[1\]: has no token"):
        options = EmbedOptions(add_special_tokens=False)
        embedding(plain("word piece")).plan_texts(EmbedRequest(["a", " \n"], options))
