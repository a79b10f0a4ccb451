"""decide() of the library and of a client of a server: the same decisions, and errors that name the question."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import imp_service
from imp_service import ChatMessage, ChatPrompt, Client, Error, Image, IntegerRange, LanguageModel, PromptParts
from support.calls.decisions import bits
from support.oracles.tolerances import LABELS
from support.servers.served import Served, serve
from support.servers.vision_served import picture, vision_model

TEXT, MESSAGES = "Snow is ", [{"role": "user", "content": "What is 2 plus 2?"}]
COLOURS = ["white", "cold", "blue"]


def questions(model: LanguageModel | Client) -> list[tuple[Any, dict[str, Any]]]:
    ids = model.tokenize(TEXT)
    return [
        (TEXT, {"labels": COLOURS}),
        (ids, {"labels": tuple(COLOURS)}),
        (np.array(ids), {"labels": COLOURS}),
        (MESSAGES, {"range": (0, 9)}),
        (ChatPrompt((ChatMessage("user", "Hello"),)), {"range": IntegerRange(-5, 5, 2)}),
        (PromptParts((TEXT, "very ")), {"labels": COLOURS}),
        (TEXT, {"range": (1, 12, 3), "cache_salt": "s", "priority": 3, "tenant": "t"}),
    ]


def test_dec_10_a_server_gives_the_decisions_of_the_library(served: Served, library: LanguageModel) -> None:
    with imp_service.connect(served.address) as client:
        for question, options in questions(library):
            here, there = library.decide(question, **options), client.decide(question, **options)
            assert bits(here) == bits(there), question
            assert here.usage.prompt_tokens == there.usage.prompt_tokens
            assert (here.evaluations, here.probability) == (there.evaluations, there.probability)
        assert bits(client.decide(TEXT, COLOURS)) != bits(client.decide(TEXT + "very ", COLOURS))


def test_dec_10_the_kinds_of_a_question_are_one(library: LanguageModel) -> None:
    ids = library.tokenize(TEXT)
    expected = bits(library.decide(TEXT, COLOURS))
    assert bits(library.decide(ids, COLOURS)) == bits(library.decide(np.array(ids), COLOURS)) == expected
    several: Any = [[TEXT, "Fire is "], [ids, library.tokenize("Fire is ")]]
    for each in several:
        first, second = library.decide(each, COLOURS)
        assert bits(first) == expected != bits(second)
    of_chats = library.decide([MESSAGES, [{"role": "user", "content": "Hello"}]], range=(0, 9))
    assert bits(of_chats[0]) == bits(library.decide(MESSAGES, range=(0, 9)))
    assert library.decide([TEXT], COLOURS)[0].label == library.decide(TEXT, COLOURS).label


def test_dec_10_a_decision_shows_what_it_is(library: LanguageModel) -> None:
    decision = library.decide(MESSAGES, range=(0, 9))
    assert str(decision) == decision.label == "2"
    assert repr(decision).startswith("<Decision: '2' with probability 0.99")
    assert list(decision.probabilities) == [str(n) for n in range(10)]
    mean = sum(n * p for n, p in enumerate(decision.probabilities.values()))
    assert decision.mean == pytest.approx(mean, rel=LABELS)
    assert library.decide(TEXT, COLOURS).mean is None
    assert 0 < decision.mass <= 1 and 0 < decision.confidence < 1


@pytest.mark.parametrize("where", ["library", "client"])
def test_dec_10_an_error_names_the_question(served: Served, library: LanguageModel, where: str) -> None:
    with imp_service.connect(served.address) as client:
        model = library if where == "library" else client
        with pytest.raises(Error, match=r"prompt\[1\]: a prompt of at least"):
            model.decide([TEXT, "word " * 900], COLOURS)
        with pytest.raises(TypeError, match="temperature"):
            model.decide(TEXT, COLOURS, temperature=1)
        for numbers in ((1,), "1:2", 5):
            with pytest.raises(Error, match=r"range: .*, expected"):
                model.decide(TEXT, range=numbers)  # type: ignore[call-overload]


def test_dec_10_asyncio_has_the_same_decisions(served: Served, library: LanguageModel) -> None:
    async def ask() -> Any:
        async with imp_service.connect_async(served.address) as client:
            one, several = await client.decide(TEXT, COLOURS), await client.decide([TEXT, "Fire is "], COLOURS)
            with pytest.raises(Error, match=r"prompt\[1\]"):
                await client.decide([TEXT, "word " * 900], COLOURS)
            with pytest.raises(Error, match="DEADLINE_EXCEEDED"):
                await client.decide(TEXT, range=(0, 1000), timeout=0.0001)
            return [one, *several]

    expected = [library.decide(TEXT, COLOURS), *library.decide([TEXT, "Fire is "], COLOURS)]
    assert list(map(bits, asyncio.run(ask()))) == list(map(bits, expected))


def test_dec_10_a_picture_is_a_part_of_a_question(tmp_path: Any) -> None:
    with serve(model=vision_model(tmp_path)) as served, imp_service.connect(served.address) as client:
        seen, other = (client.decide([Image(picture(seed)), "What is this?"], ["a cat", "a dog"]) for seed in (1, 2))
        assert seen.usage.prompt_media_tokens > 0 and seen.evaluations > 0
        assert bits(seen) != bits(other)
        again = client.decide([Image(picture(1)), "What is this?"], ["a cat", "a dog"])
        assert bits(again) == bits(seen)
