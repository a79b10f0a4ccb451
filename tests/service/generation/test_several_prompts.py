"""Several prompts at once: the tokens of each alone, in order, in one batch; errors that name the prompt."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import numpy as np
import pytest

import imp_service
from imp_service import ChatMessage, ChatPrompt, Client, Error, FieldsInvalid, GenerationRequest, LanguageModel
from support.run.patience import HANGS_AFTER
from support.servers.served import Served

PROMPTS = ["Once upon a time", "The weather today is", "Lily and Tom went to the market.", "A small cat"]
SAMPLED: dict[str, Any] = {"max_tokens": 12, "temperature": 1, "seed": 7}
# Few enough for the context, and so many that no generation reaches them before its stop string is found.
MOST_TOKENS = 400


def alone(model: LanguageModel | Client, prompts: list[Any], **options: Any) -> list[list[int]]:
    return [model.generate(prompt, **options).result().token_ids for prompt in prompts]


def test_lib_9_each_prompt_has_the_tokens_that_it_has_alone(model: LanguageModel | Client) -> None:
    expected = alone(model, PROMPTS, **SAMPLED)
    results = model.generate(PROMPTS, **SAMPLED).results()
    assert [result.token_ids for result in results] == expected
    assert [result.token_ids for result in model.generate(PROMPTS[::-1], **SAMPLED).results()] == expected[::-1]
    assert [each.token_ids for each in model.generate(PROMPTS, **{**SAMPLED, "seed": 8}).results()] != expected


def test_lib_9_prompts_are_of_every_kind(model: LanguageModel | Client) -> None:
    ids = [model.tokenize(prompt) for prompt in PROMPTS]
    expected = alone(model, PROMPTS, **SAMPLED)
    assert [each.token_ids for each in model.generate(ids, **SAMPLED).results()] == expected
    assert [each.token_ids for each in model.generate(tuple(PROMPTS), **SAMPLED).results()] == expected
    # A list of numbers is one prompt.
    assert model.generate(ids[0], **SAMPLED).result().token_ids == expected[0]
    chat = ChatPrompt((ChatMessage("user", "What is 2 plus 3?"),))
    mixed: list[Any] = [PROMPTS[0], np.array(ids[1]), chat, GenerationRequest(PROMPTS[3])]
    found = [each.token_ids for each in model.generate(mixed, **SAMPLED).results()]
    assert found == [*expected[:2], model.generate(chat, **SAMPLED).result().token_ids, expected[3]]


def test_lib_9_generations_are_read_one_by_one_or_by_index(model: LanguageModel | Client) -> None:
    expected = alone(model, PROMPTS, **SAMPLED)
    with model.generate(PROMPTS, **SAMPLED) as generations:
        assert len(generations) == len(PROMPTS)
        assert generations[-1].result().token_ids == expected[-1]
        assert [generation.result().token_ids for generation in generations] == expected
        with pytest.raises(IndexError):
            _ = generations[len(PROMPTS)]
    assert "4 prompts: results() waits" in repr(generations)


def test_lib_9_with_several_outputs_those_of_a_prompt_are_together(model: LanguageModel | Client) -> None:
    options = {**SAMPLED, "num_sequences": 2}
    expected = [each.token_ids for prompt in PROMPTS for each in model.generate(prompt, **options).results()]
    assert [each.token_ids for each in model.generate(PROMPTS, **options).results()] == expected


def test_lib_9_several_prompts_run_in_one_batch(library: LanguageModel) -> None:
    engine = library._runtime.client.engine
    library.generate(PROMPTS, max_tokens=30, temperature=0, ignore_eos=True).results()
    before = engine.stats().n_steps
    library.generate(PROMPTS, max_tokens=30, temperature=0, ignore_eos=True, speculation_enabled=False).results()
    assert engine.stats().n_steps - before < 2 * 30


@pytest.mark.parametrize("kind", ["choices", "stop", "time_limit"])
def test_lib_9_all_generations_run_while_one_is_read(library: LanguageModel, kind: str) -> None:
    options: dict[str, Any] = {
        "choices": {"choices": ["yes", "no"]},
        "stop": {"stop": ["."], "ignore_eos": True, "max_tokens": MOST_TOKENS},
        "time_limit": {"time_limit": 0.05, "ignore_eos": True, "max_tokens": MOST_TOKENS},
    }[kind]
    expected = alone(library, PROMPTS, temperature=0, **options)
    before = library._runtime.client.engine.stats().n_outputs
    results = library.generate(PROMPTS, temperature=0, **options).results()
    n_outputs = library._runtime.client.engine.stats().n_outputs - before
    if kind == "time_limit":
        assert {each.finish_reason for each in results} <= {"time_limit", "max_tokens"}
    else:
        assert [each.token_ids for each in results] == expected
        # A stop string ends each, whichever is read first. The engine goes on until the string is found.
        assert n_outputs < (len(PROMPTS) - 1) * MOST_TOKENS


QUEUES = [("scheduler.max_running=2", "scheduler.max_waiting=2"), ("scheduler.max_waiting=4",)]


@pytest.mark.parametrize("settings", QUEUES, ids=["few run", "few wait"])
def test_lib_9_there_may_be_more_prompts_than_places_in_the_queue(settings: tuple[str, ...]) -> None:
    prompts = [f"Number {i} is" for i in range(40)]
    with imp_service.load(None, "device.threads=1", *settings) as model:
        expected = alone(model, prompts, max_tokens=4, temperature=0)
        assert [each.token_ids for each in model.generate(prompts, max_tokens=4, temperature=0).results()] == expected
        generations = model.generate(prompts, max_tokens=4, temperature=0)
        assert generations[39].result().token_ids == expected[39]


@pytest.mark.long
def test_lib_9_a_server_gets_no_more_than_it_can_queue(served: Served) -> None:
    prompts = [f"Number {i} is" for i in range(400)]
    with imp_service.connect(served.address) as client:
        texts = [each.text for each in client.generate(prompts, max_tokens=2, temperature=0).results()]
        assert (
            len(texts) == 400 and texts[399] == client.generate(prompts[399], max_tokens=2, temperature=0).result().text
        )


WRONG: dict[str, tuple[list[Any], str, str]] = {
    "too long": (["a", "b " * 5000], "CONTEXT_TOO_LONG", "prompt[1]: a prompt of at least"),
    "a number": (["a", 3], "FIELD_INVALID", "prompt[1]: int, expected text"),
    "a token": (["a", "b", [1, -5]], "FIELD_INVALID", "prompt[2][1]: "),
    "bytes": ([b"a"], "FIELD_INVALID", "prompt[0]: bytes, expected text"),
    "a surrogate": (["a", "\ud800"], "FIELD_INVALID", "prompt[1]: "),
    "messages": ([{"role": "user", "content": "a"}], "FIELD_INVALID", "prompt: a list of messages"),
    "an empty list": ([], "FIELD_INVALID", "prompt: has no token"),
}


@pytest.mark.parametrize("case", WRONG)
def test_lib_9_an_error_names_the_prompt(library: LanguageModel, case: str) -> None:
    prompts, reason, message = WRONG[case]
    with pytest.raises(Error) as caught:
        library.generate(prompts, max_tokens=4)
    assert caught.value.reason == reason and message in caught.value.message


def test_lib_9_an_error_of_an_option_names_no_prompt(library: LanguageModel) -> None:
    with pytest.raises(FieldsInvalid) as caught:
        library.generate(PROMPTS, temperature=-1)
    assert caught.value.field == "sampling.temperature"


def test_lib_9_an_error_of_a_server_names_the_prompt_and_ends_the_others(served: Served) -> None:
    with imp_service.connect(served.address) as client:
        generations = client.generate([PROMPTS[0], "b " * 5000], ignore_eos=True, max_tokens=300)
        with pytest.raises(Error, match=r"CONTEXT_TOO_LONG: prompt\[1\]: "):
            generations.results()
        assert not any(each.is_open for each in generations)

    async def ask() -> None:
        async with imp_service.connect_async(served.address) as asked:
            await asked.generate(["a", "b " * 5000], max_tokens=4).results()

    with pytest.raises(Error, match=r"CONTEXT_TOO_LONG: prompt\[1\]: "):
        asyncio.run(ask())


def test_lib_9_tasks_get_the_same_results(library: LanguageModel, served: Served) -> None:
    expected = alone(library, PROMPTS, **SAMPLED)

    async def here() -> Any:
        async with library.generate_async(PROMPTS, **SAMPLED) as generations:
            assert repr(generations) == "<AsyncGenerations, not begun: await its results()>"
            return await generations.results()

    async def there() -> Any:
        connected = imp_service.connect_async(served.address)
        async with connected as client, client.generate(PROMPTS, **SAMPLED) as generations:
            assert repr(generations) == "<AsyncGenerations of 4 prompts: await its results()>"
            return await generations.results()

    with imp_service.connect(served.address) as client:
        in_a_thread = asyncio.run(client.generate_async(PROMPTS, **SAMPLED).results())
    for results in (asyncio.run(here()), asyncio.run(there()), in_a_thread):
        assert [each.token_ids for each in results] == expected


def runs_of(model: LanguageModel) -> int:
    """Returns the number of runs after the engine has processed every command."""
    with model.open() as session:
        session.prefill([7], sample=False)
    return int(model._runtime.client.engine.stats().running)


def test_lib_9_generations_that_are_left_end(library: LanguageModel) -> None:
    with library.generate(PROMPTS, ignore_eos=True) as closed:
        next(closed[0])
    dropped = library.generate(PROMPTS, ignore_eos=True)
    del dropped  # at once, without a collection
    gc.disable()
    try:
        assert runs_of(library) == 0
    finally:
        gc.enable()
    with pytest.raises(Error, match="CANCELLED"):
        closed.results()


def test_lib_9_another_thread_may_cancel_all(library: LanguageModel) -> None:
    generations = library.generate(PROMPTS, ignore_eos=True, max_tokens=500)
    canceller = threading.Thread(target=generations.cancel)
    canceller.start()
    canceller.join(HANGS_AFTER)
    assert {each.finish_reason for each in generations.results()} <= {"cancelled", "context_full", "max_tokens"}


def test_lib_9_a_failed_generation_does_not_disturb_the_others(library: LanguageModel) -> None:
    prompts = [PROMPTS[0], PROMPTS[1]]
    expected = alone(library, prompts, max_tokens=20, temperature=0)
    generations = library.generate(prompts, max_tokens=20, temperature=0)
    generations[0]._run._absorb = fails  # type: ignore[method-assign, union-attr]
    assert generations[1].result().token_ids == expected[1]
    with pytest.raises(Error, match="NO_CANDIDATE"):
        generations[0].result()


def fails() -> None:
    raise imp_service.generation.errors.make_error("NO_CANDIDATE", "constraint: no token can be output 0")
