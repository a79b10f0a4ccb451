"""/v1/decisions in OpenAI's form: its own client, every kind of question and input, and the words of a question."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import openai
import pytest

from support.calls.decisions import bits, message, typed
from support.oracles.tolerances import LAST_PLACE
from support.servers.http_served import HttpServed, serve_http
from support.servers.vision_served import data_url, file_of, vision_model

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "openai.md").read_text()
MAIL = "I was charged twice, and nobody answers my mails!"
QUESTIONS: list[Any] = [
    {"type": "predicate", "instructions": "The customer is angry."},
    {
        "type": "choice",
        "name": "team",
        "instructions": "Which team should handle this?",
        "choices": [{"value": "billing"}, {"value": "technical", "description": "bugs and outages"}],
    },
    {"type": "score", "instructions": "How urgent is it?", "levels": [{"label": "low"}, {"label": "high"}]},
]
LABELS = [("yes", "no"), ("A", "B"), ("0", "1")]


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http() as it:
        yield it


@pytest.fixture(scope="module")
def client(http: HttpServed) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=http.url, api_key="any", max_retries=0) as it:
        yield it


def decided(http: HttpServed, given: Any, *questions: Any, **fields: Any) -> Any:
    reply = http.client.post("/v1/decisions", {"input": given, "questions": list(questions), **fields})
    assert reply.status == 200, reply.content
    return reply.json


def test_dec_9_openais_client_gets_typed_answers(client: openai.OpenAI, http: HttpServed) -> None:
    decision = client.decisions.create(model="imp-demo", input=MAIL, questions=QUESTIONS)
    predicate, choice, score = decision.answers
    assert predicate.type == "predicate" and predicate.name is None and 0 < predicate.probability < 1
    assert choice.type == "choice" and choice.name == "team"
    assert [each.value for each in choice.probabilities] == ["billing", "technical"]
    best = max(choice.probabilities, key=lambda each: each.probability)
    assert choice.choice == best.value
    assert math.fsum(each.probability for each in choice.probabilities) == pytest.approx(1, abs=LAST_PLACE)
    assert score.type == "score"
    assert [(each.value, each.label) for each in score.probabilities] == [(0, "low"), (1, "high")]
    assert score.score == score.probabilities[1].probability
    assert decision.model == "imp-demo" and decision.usage.output_tokens == 0
    assert decision.usage.total_tokens == decision.usage.input_tokens > 0
    assert json.loads(decision.model_dump_json()) == decided(http, MAIL, *QUESTIONS) | {
        "usage": json.loads(decision.usage.model_dump_json())
    }


def test_dec_9_openais_asynchronous_client_gets_the_same(client: openai.OpenAI, http: HttpServed) -> None:
    async def ask() -> Any:
        async with openai.AsyncOpenAI(base_url=http.url, api_key="any", max_retries=0) as other:
            with pytest.raises(openai.BadRequestError, match="questions"):
                await other.decisions.create(model="", input=MAIL, questions=[])
            return await other.decisions.create(model="", input=MAIL, questions=QUESTIONS)

    assert asyncio.run(ask()).answers == client.decisions.create(model="", input=MAIL, questions=QUESTIONS).answers


def test_dec_9_the_page_has_the_words_of_a_question() -> None:
    section = PAGE[PAGE.index("## Decisions") :]
    words = "\n\n".join(typed(each).text for each in QUESTIONS)
    assert f"\n\n{indent(words, ' ' * 4)}\n\n" in section
    assert [typed(each).labels for each in QUESTIONS] == LABELS
    many = {"type": "choice", "instructions": "Which?", "choices": [{"value": f"o{i}"} for i in range(27)]}
    assert typed(many).labels == tuple(map(str, range(27)))
    assert typed(many).text.splitlines()[-2:] == ["26) o26", "Answer with the number of one line only."]


@pytest.mark.parametrize("number", range(3))
def test_dec_9_grpc_gives_the_bits_of_the_same_words(http: HttpServed, number: int) -> None:
    body = QUESTIONS[number]
    over_grpc = http.served.inference.Decide(message(MAIL, body))
    answer = decided(http, MAIL, body)["answers"][0]
    listed = answer.get("probabilities", [answer])
    found = [each.probability for each in over_grpc.labels]
    assert [each["probability"] for each in listed] == found[: len(listed)]
    assert bits(over_grpc) == bits(http.served.inference.Decide(message(MAIL, body)))
    assert answer != decided(http, MAIL[::-1], body)["answers"][0]


def test_dec_9_a_string_and_a_boolean_are_two_choices(http: HttpServed) -> None:
    choices = [{"value": True}, {"value": "true"}, {"value": False, "description": "it is not"}]
    body = {"type": "choice", "instructions": "Is it?", "choices": choices}
    answer = decided(http, MAIL, body)["answers"][0]
    assert [each["value"] for each in answer["probabilities"]] == [True, "true", False]
    assert "A) true\nB) true\nC) false: it is not" in typed(body).text


def test_dec_9_inputs_of_every_kind_reach_the_model(http: HttpServed) -> None:
    """Inputs that are the same conversation have the same answers, and others do not."""
    question = QUESTIONS[1]

    def answer(given: Any, **fields: Any) -> Any:
        return decided(http, given, question, **fields)["answers"]

    plain = answer(MAIL)
    assert answer([{"role": "user", "content": MAIL}]) == plain
    assert answer([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": MAIL}]}]) == plain
    as_json = answer([{"role": "user", "content": [{"type": "input_json", "data": {"mail": [1, "é"]}}]}])
    assert as_json == answer('{"mail":[1,"é"]}') != plain
    assert answer([{"role": "system", "content": "Be strict."}, {"role": "user", "content": MAIL}]) != plain
    ends_otherwise = [{"role": "user", "content": MAIL}, {"role": "assistant", "content": "Sorry."}]
    assert answer(ends_otherwise) != plain
    call = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "twice"}
    assert answer([{"role": "user", "content": MAIL}, call, output]) != answer(ends_otherwise)
    in_parts = {**question, "instructions": [{"type": "input_text", "text": question["instructions"]}]}
    assert decided(http, MAIL, in_parts)["answers"] == plain
    asked_json = {**question, "instructions": [{"type": "input_json", "data": {"a": 1}}]}
    as_text = {**question, "instructions": '{"a":1}'}
    assert decided(http, MAIL, asked_json)["answers"] == decided(http, MAIL, as_text)["answers"]


def test_dec_9_fields_without_effect_are_accepted(http: HttpServed) -> None:
    fields = {
        "safety_identifier": "user-1",
        "prompt_cache_key": "key",
        "prompt_cache_options": {"mode": "implicit"},
        "temperature": 1,
        "stream": False,
        "user": "u",
    }
    assert decided(http, MAIL, *QUESTIONS, **fields)["answers"] == decided(http, MAIL, *QUESTIONS)["answers"]
    bypassed = decided(http, MAIL, QUESTIONS[0], cache_prompt=False)
    assert bypassed["usage"]["input_tokens_details"]["cached_tokens"] == 0
    assert bypassed["answers"] == decided(http, MAIL, QUESTIONS[0])["answers"]


def test_dec_9_a_picture_is_a_part_of_the_input(tmp_path: Path) -> None:
    content = [{"type": "input_text", "text": "Look:"}, {"type": "input_image", "image_url": data_url(file_of(1))}]
    with serve_http(model=vision_model(tmp_path)) as http:
        seen = decided(http, [{"role": "user", "content": content}], QUESTIONS[0])
        content[1] = {"type": "input_image", "image_url": data_url(file_of(2))}
        other = decided(http, [{"role": "user", "content": content}], QUESTIONS[0])
    assert seen["answers"] != other["answers"]
    assert seen["usage"]["input_tokens"] == other["usage"]["input_tokens"]
