"""imp decide and imp call decide: the labels with their probabilities, here and from a server."""

from __future__ import annotations

import json

import pytest

from imp_service import LanguageModel
from support.servers.served import Served

QUESTION = "What is 2 plus 2?"
CHAT = [{"role": "user", "content": QUESTION}]


def rows(text: str) -> list[list[str]]:
    return [line.rsplit(None, 1) for line in text.splitlines()]


@pytest.mark.parametrize("command", ["decide", "call decide"])
def test_dec_10_the_most_likely_label_is_first(call, served: Served, library: LanguageModel, command: str) -> None:
    words = command.split() + (["--target", served.address] if command.startswith("call") else [])
    status, out, _ = call(*words, "--range", "0:20", QUESTION)
    expected = library.decide(CHAT, range=(0, 20))
    best = sorted(expected.labels, key=lambda each: -each.probability)[:10]
    assert status == 0
    head, *found = rows(out)
    assert head == ["label", "probability"]
    assert found[:10] == [[each.label, f"{each.probability:.4f}"] for each in best]
    assert [name for name, _ in found[10:]] == ["(11 others)", "(mean)"]
    assert found[-1][1] == f"{expected.mean:.4f}"


def test_dec_10_json_has_the_exact_numbers(call, served: Served, library: LanguageModel) -> None:
    options = ("--label", "yes", "--label", "no", "--json", QUESTION)
    expected = library.decide(CHAT, ["yes", "no"])
    status, out, _ = call("decide", *options)
    here = json.loads(out)
    assert (status, here["label"], here["probabilities"]) == (0, expected.label, dict(expected.probabilities))
    assert here["prompt_tokens"] == expected.usage.prompt_tokens
    there = json.loads(call("call", "decide", "--target", served.address, *options)[1])
    assert {each["label"]: each["probability"] for each in there["labels"]} == here["probabilities"]


def test_dec_10_a_text_is_continued_and_a_system_message_comes_first(call, served: Served, library) -> None:
    labels = ("--label", " blue", "--label", " white", "--json")
    for words in (("decide",), ("call", "decide", "--target", served.address)):
        raw = json.loads(call(*words, "--raw", *labels, "The sky is")[1])
        assert raw["mass"] == library.decide("The sky is", [" blue", " white"]).mass
        system = json.loads(call(*words, "--system", "Be brief.", *labels, "The sky is")[1])
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The sky is"}]
        assert system["mass"] == library.decide(messages, [" blue", " white"]).mass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "USAGE: --label: expected two or more, or --range LOW:HIGH"),
        (("--label", "a", "--range", "0:3"), "USAGE: --label: expected two or more, or --range LOW:HIGH"),
        (("--label", "a"), "USAGE: --label: expected two or more, or --range LOW:HIGH"),
        (("--label", "a", "--label", "a"), "FIELD_INVALID: --label: the same as labels[0]"),
        (("--range", "3:1"), "FIELD_INVALID: --range: 0 numbers, expected 2 to 1024"),
        (("--range", "3"), "USAGE: argument --range: '3', expected LOW:HIGH or LOW:HIGH:STEP"),
        (("--range", "0:3", "--raw", "--system", "x"), "USAGE: --system: given together with --raw"),
    ],
    ids=str,
)
def test_dec_7_a_command_names_its_wrong_option(call, options: tuple[str, ...], words: str) -> None:
    for command in (("decide",), ("call", "decide")):
        status, out, err = call(*command, *options, "x")
        assert (status, out) == (64, "")
        assert words in err
