"""The examples in the Python API's docstrings run against the built-in model."""

import asyncio
import doctest
from collections.abc import Iterator
from typing import Any

import pytest

import imp_service

PUBLIC = {"imp_service": imp_service, **{name: getattr(imp_service, name) for name in imp_service.__all__}}
FINDER = doctest.DocTestFinder()
EXAMPLES = [
    example
    for name, public in PUBLIC.items()
    if not isinstance(public, str)
    for example in FINDER.find(public, name)
    if example.examples
]


@pytest.fixture(scope="module")
def names() -> Iterator[dict[str, Any]]:
    with imp_service.load(None, "device.threads=1") as model:
        yield {**PUBLIC, "model": model, "asyncio": asyncio}


@pytest.mark.few(10)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_lib_7_an_example_shows_what_happens(example: doctest.DocTest, names: dict[str, Any]) -> None:
    example.globs = dict(names)
    told: list[str] = []
    results = doctest.DocTestRunner().run(example, out=told.append)
    assert results.failed == 0, "".join(told)


def test_lib_7_the_calls_that_people_begin_with_have_examples() -> None:
    begun = {
        f"LanguageModel.{name}" for name in ("generate", "chat", "generate_async", "chat_async", "open", "tokenize")
    }
    begun |= {f"Session.{name}" for name in ("prefill", "decode_step", "generate", "fork", "truncate")}
    assert begun | {"imp_service", "load", "Generation.result"} <= {example.name for example in EXAMPLES}
