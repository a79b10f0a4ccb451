"""The examples in the Python API's docstrings, run against the built-in model."""

import asyncio
import doctest
from collections.abc import Iterator
from typing import Any

import pytest

import imp_service

FINDER = doctest.DocTestFinder()
EXAMPLES = [
    example
    for name in ("", *imp_service.__all__)
    if callable(public := getattr(imp_service, name) if name else imp_service) or not name
    for example in FINDER.find(public, name or "imp_service")
    if example.examples
]


@pytest.fixture(scope="module")
def names() -> Iterator[dict[str, Any]]:
    with imp_service.load(None, "device.threads=1") as model:
        yield {
            "model": model,
            "asyncio": asyncio,
            "imp_service": imp_service,
            **{n: getattr(imp_service, n) for n in imp_service.__all__},
        }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_shows_what_happens(example: doctest.DocTest, names: dict[str, Any]) -> None:
    example.globs = dict(names)
    told: list[str] = []
    results = doctest.DocTestRunner().run(example, out=told.append)
    assert results.failed == 0, "".join(told)
