"""The same program with a model in this process, behind a server, or behind TLS: same replies and errors."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import pytest

import imp_service
from imp_service import (
    Chunk,
    Client,
    DryOptions,
    Error,
    FieldsInvalid,
    Finished,
    GenerationRequest,
    GenerationResult,
    LanguageModel,
    Started,
    Timings,
    Usage,
)
from imp_service.client.messages.errors import kind_of
from imp_service.core.errors import KIND_OF_REASON
from imp_service.serving.errors.error_table import ERRORS
from support.calls.waiting_client import WaitingClient
from support.calls.workload import random_requests

Threaded = LanguageModel | Client
Model = Threaded | WaitingClient
PROMPT = "Once upon a time"
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 3 plus 4?"}]
NO_TIME = Timings(0, 0, 0)


def told(result: GenerationResult) -> str:
    """Returns a result as text, since the first token of a prompt has NaN.

    Without times and guesses, whose number depends on times.
    """
    usage = Usage(result.usage.prompt_tokens, 0, result.usage.output_tokens)
    return repr(asdict(replace(result, timings=NO_TIME, usage=usage, speculation=None)))


GENERATIONS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, "max_tokens": 12},
    "sampled": {"temperature": 1.1, "seed": 7, "max_tokens": 12, "top_p": 0.9, "dry": DryOptions(multiplier=0.8)},
    "scores": {"temperature": 0, "seed": 1, "max_tokens": 4, "logprobs": True, "top_logprobs": 3},
    "prompt": {"temperature": 0, "seed": 1, "max_tokens": 2, "prompt_logprobs": True, "prompt_token_ids": True},
    "prompt scores": {"seed": 1, "max_tokens": 0, "prompt_logprobs": True, "top_logprobs": 2},
    "stop string": {"temperature": 0, "max_tokens": 40, "stop": [" farm"], "include_match": True},
    "stop token": {"temperature": 0, "max_tokens": 40, "stop_token_ids": [1027], "include_match": True},
    "a bias": {"temperature": 0, "max_tokens": 4, "logit_bias": {301: -100, 524: 2.5}},
    "choices": {"temperature": 0, "choices": ["yes", "no"]},
    "a pattern": {"temperature": 0, "regex": "[ab]{3}"},
    "a schema": {"temperature": 0, "json_schema": {"enum": [1, 22]}},
    "no text": {"temperature": 0, "max_tokens": 5, "text": False},
    "no prefix": {"temperature": 0, "max_tokens": 5, "bypass_prefix": True, "cache_salt": "s", "priority": 3},
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", GENERATIONS)
def test_cnt_1_a_generation_has_the_same_result(model: Model, library: LanguageModel, name: str) -> None:
    options = {"seed": 5, **GENERATIONS[name]}
    expected = told(library.generate(PROMPT, **options).result())
    assert told(model.generate(PROMPT, **options).result()) == expected
    ids = library.tokenize(PROMPT)
    assert told(model.generate(ids, **options).result()) == expected
    assert told(model.generate(PROMPT, **{**options, "priority": 1}).result()) == expected
    assert told(model.generate("The weather", **options).result()) != expected


@pytest.mark.few(2)
def test_cnt_1_random_requests_have_the_same_results(model: Model, library: LanguageModel) -> None:
    for request in random_requests(16, 41, library._runtime.tokenizer):
        seeded = replace(request, sampling=replace(request.sampling, seed=9))
        expected = [told(each) for each in library.generate(seeded).results()]
        assert [told(each) for each in model.generate(seeded).results()] == expected


def test_cnt_1_a_conversation_has_the_same_answer(model: Model, library: LanguageModel) -> None:
    options: dict[str, Any] = {"temperature": 0, "seed": 1, "max_tokens": 12}
    expected = told(library.chat(CHAT, **options).result())
    assert told(model.chat(CHAT, **options).result()) == expected
    assert told(model.chat([*CHAT[:1], {"role": "user", "content": "Hello"}], **options).result()) != expected


def test_cnt_1_replies_come_in_the_same_order(model: Model, library: LanguageModel) -> None:
    replies = list(model.generate(PROMPT, max_tokens=6, temperature=0, num_sequences=2))
    assert isinstance(replies[0], Started) and isinstance(replies[-1], Finished)
    assert replies[0].prompt_tokens == len(library.tokenize(PROMPT)) and replies[0].text == ""
    for index in (0, 1):
        chunks = [each for each in replies if isinstance(each, Chunk) and each.index == index]
        assert [each.first_token for each in chunks] == [
            sum(len(each.token_ids) for each in chunks[:n]) for n in range(len(chunks))
        ]
    ends = [each for each in replies if isinstance(each, Finished)]
    assert sorted(each.index for each in ends) == [0, 1]
    assert [each.usage is not None and each.timings is not None for each in ends] == [False, True]
    with pytest.raises(FieldsInvalid, match="num_sequences"):
        model.generate(PROMPT, max_tokens=6, num_sequences=2).result()


@pytest.mark.few(8)
@pytest.mark.parametrize("n_read", [0, 1, 2, 30])
def test_cnt_1_a_result_has_what_was_read_before(model: Model, library: LanguageModel, n_read: int) -> None:
    options: dict[str, Any] = {"temperature": 0, "seed": 3, "max_tokens": 12}
    generation = model.generate(PROMPT, **options)
    assert len([*islice(generation, n_read)]) <= n_read
    assert told(generation.result()) == told(library.generate(PROMPT, **options).result())


def test_cnt_1_tasks_get_the_same_results(threaded: Threaded, library: LanguageModel) -> None:
    options: dict[str, Any] = {"temperature": 0, "seed": 3, "max_tokens": 8}

    async def both() -> list[GenerationResult]:
        asked = [threaded.generate_async(PROMPT, **options).result(), threaded.chat_async(CHAT, **options).result()]
        return await asyncio.gather(*asked)

    expected = [library.generate(PROMPT, **options).result(), library.chat(CHAT, **options).result()]
    assert [told(each) for each in asyncio.run(both())] == [told(each) for each in expected]


def test_cnt_1_tokens_of_a_text_and_back(model: Model, library: LanguageModel) -> None:
    text = "naïve <|im_start|> 🙂"
    for special in (True, False):
        ids = model.tokenize(text, parse_special_tokens=special)
        assert ids == library.tokenize(text, parse_special_tokens=special)
        assert model.detokenize(ids) == library.detokenize(ids)
        assert model.detokenize(ids, special_tokens=True) == text


@pytest.mark.parametrize("wrong", [b"x", None, 5, ["x"]])
def test_lib_6_cnt_1_what_is_no_text_or_no_list_of_ids_is_refused(
    wrong: Any, model: Model, library: LanguageModel
) -> None:
    for each in (model, library):
        with pytest.raises(FieldsInvalid, match=f"text: {type(wrong).__name__}, expected text"):
            each.tokenize(wrong)
    if not isinstance(wrong, Sequence):
        for each in (model, library):
            with pytest.raises(FieldsInvalid, match=f"token_ids: {type(wrong).__name__}, expected a list of token ids"):
                each.detokenize(wrong)


def test_cnt_1_the_model_is_described_the_same(model: Model, library: LanguageModel) -> None:
    names = ("name", "max_context", "num_tokens", "vocab_size", "eos_token_ids", "default_sampling")
    assert [getattr(model, name) for name in names] == [getattr(library, name) for name in names]


def test_cnt_1_a_cancelled_generation_ends_with_its_replies(threaded: Threaded) -> None:
    generation = threaded.generate(PROMPT, max_tokens=400, ignore_eos=True, temperature=0)
    assert isinstance(next(generation), Started)
    from_another = threading.Thread(target=generation.cancel)
    from_another.start()
    from_another.join()
    *_, last = generation
    assert isinstance(last, Finished)
    result = generation.result()
    assert (last.reason, result.finish_reason) == ("cancelled", "cancelled")
    assert result.usage.output_tokens == len(result.token_ids) < 400


def test_cnt_1_a_generation_that_was_left_has_no_result(model: Model) -> None:
    with model.generate(PROMPT, max_tokens=400, ignore_eos=True) as generation:
        next(generation)
    with pytest.raises(imp_service.StateError) as caught:
        generation.result()
    assert caught.value.reason == "CANCELLED"
    assert list(generation) == []


Fail = Callable[[Model], object]
# A failing call, its reason, and the fields that it names.
FAILURES: dict[str, tuple[Fail, str, Sequence[str]]] = {
    "two fields": (
        lambda model: model.generate(PROMPT, temperature=-1, top_p=7).result(),
        "FIELD_INVALID",
        ["sampling.temperature", "sampling.top_p"],
    ),
    "below 32 bits": (
        lambda model: model.generate(PROMPT, max_tokens=-1).result(),
        "FIELD_INVALID",
        ["stop.max_tokens"],
    ),
    "no number": (lambda model: model.generate(PROMPT, top_k="a").result(), "FIELD_INVALID", ["sampling.top_k"]),
    "no token": (lambda model: model.generate([3, 10**6]).result(), "FIELD_INVALID", ["token_ids[1]"]),
    "a negative token": (lambda model: model.generate([3, -1]).result(), "FIELD_INVALID", ["token_ids[1]"]),
    "half a character": (lambda model: model.generate("a\ud800").result(), "FIELD_INVALID", ["text"]),
    "no prompt": (lambda model: model.generate(b"abc").result(), "FIELD_INVALID", ["prompt"]),  # type: ignore[arg-type]
    "a stop token": (
        lambda model: model.generate(PROMPT, stop_token_ids=[1, -3, 10**6]).result(),
        "FIELD_INVALID",
        ["stop.token_ids[1]"],
    ),
    "a bias": (
        lambda model: model.generate(PROMPT, logit_bias={-2: 1}).result(),
        "FIELD_INVALID",
        ["sampling.logit_bias[-2]"],
    ),
    "dry": (
        lambda model: model.generate(PROMPT, dry=DryOptions(base=-3)).result(),
        "FIELD_INVALID",
        ["sampling.dry.base"],
    ),
    "a pattern": (lambda model: model.generate(PROMPT, regex="(").result(), "FIELD_INVALID", ["constraint.regex"]),
    "no choices": (lambda model: model.generate(PROMPT, choices=[]).result(), "FIELD_INVALID", ["constraint.choices"]),
    "a time": (lambda model: model.generate(PROMPT, time_limit=-1).result(), "FIELD_INVALID", ["stop.time_limit"]),
    "a tenant": (lambda model: model.generate(PROMPT, tenant="x" * 99).result(), "FIELD_INVALID", ["tenant"]),
    "a priority": (lambda model: model.generate(PROMPT, priority=999).result(), "FIELD_INVALID", ["priority"]),
    "sequences": (lambda model: model.generate(PROMPT, num_sequences=9).result(), "FIELD_INVALID", ["num_sequences"]),
    "no message": (lambda model: model.chat([]).result(), "FIELD_INVALID", ["chat.messages"]),
    "no role": (lambda model: model.chat([{"content": "a"}]).result(), "FIELD_INVALID", ["chat.messages[0].role"]),
    "a message": (lambda model: model.chat(["a"]).result(), "FIELD_INVALID", ["chat.messages[0]"]),  # type: ignore[list-item]
    "text of ids": (lambda model: model.detokenize([-1]), "FIELD_INVALID", ["token_ids[0]"]),
    "too long": (lambda model: model.generate([7] * 9999).result(), "CONTEXT_TOO_LONG", []),
}


@pytest.mark.few(12)
@pytest.mark.parametrize("name", FAILURES)
def test_cnt_1_a_failure_is_the_same_error(model: Model, name: str) -> None:
    fail, reason, paths = FAILURES[name]
    with pytest.raises(Error) as caught:
        fail(model)
    error = caught.value
    assert (error.reason, error.field) == (reason, paths[0] if paths else None)
    assert error.message and isinstance(error, imp_service.InvalidArgument)
    if isinstance(error, FieldsInvalid):
        assert [each.path for each in error.violations][: len(paths)] == paths


def test_cnt_1_an_unknown_name_is_a_type_error(model: Model) -> None:
    with pytest.raises(TypeError, match=r"generate\(\) got an unexpected keyword argument 'max_token'.*'max_tokens'"):
        model.generate(PROMPT, max_token=4)
    with pytest.raises(TypeError, match="sampling: dict, expected SamplingOptions"):
        model.chat(CHAT, sampling={"temperature": 0})


def test_cnt_1_a_request_of_classes_is_taken_too(model: Model, library: LanguageModel) -> None:
    request = GenerationRequest(PROMPT, imp_service.SamplingOptions(temperature=0, seed=2))
    expected = library.generate(request, max_tokens=5).result()
    assert told(model.generate(request, max_tokens=5).result()) == told(expected)


@pytest.mark.few(9)
@pytest.mark.parametrize("reason", sorted(set(KIND_OF_REASON) & set(ERRORS)))
def test_cnt_1_each_reason_has_the_class_of_the_library(reason: str) -> None:
    assert kind_of(reason, ERRORS[reason].code) is KIND_OF_REASON[reason]


@pytest.mark.long
def test_cnt_1_a_program_that_connects_imports_neither_the_core_nor_numpy() -> None:
    program = (
        "import sys, imp_service; imp_service.connect;"
        "print([name for name in ('grpc', 'numpy', 'asyncio', 'imp_service._core') if name in sys.modules]);"
        "imp_service.connect('127.0.0.1:1').close(); imp_service.Client;"
        "print([name for name in ('numpy', 'imp_service._core', 'tokenizers') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert re.findall(r"\[.*\]", ran.stdout) == ["[]", "[]"]
