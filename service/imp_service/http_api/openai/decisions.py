"""/v1/decisions: converts a body to decisions, one for each question, and writes the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from imp_service.api.decisions import Decision, DecisionRequest
from imp_service.api.facts import findings
from imp_service.api.options import CacheOptions
from imp_service.http_api.checked_body import read_fields
from imp_service.http_api.http_call import HttpCall
from imp_service.http_api.json_text import dumps
from imp_service.http_api.openai.fields import DECISIONS, THINKING
from imp_service.http_api.openai.items import InputMessage, read_input
from imp_service.http_api.openai.questions import JSON_KIND, TypedQuestion, json_text, read_questions
from imp_service.http_api.openai.reasoning import wished_variables
from imp_service.http_api.openai.replies import sum_of
from imp_service.http_api.openai.requests import name_images
from imp_service.http_api.requests.generation import Caller
from imp_service.http_api.requests.image_rules import image_rules
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.reasoning import SWITCHES
from imp_service.http_api.requests.values import within
from imp_service.serving.decision_runner import DecisionRunner
from imp_service.serving.model_names import public_name
from imp_service.serving.rules.generation_rules import CHAT
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState
from imp_service.text import ChatMessage, ChatPrompt


@dataclass(frozen=True, slots=True)
class ParsedDecisions:
    """One request, read and checked."""

    questions: Sequence[TypedQuestion]
    requests: Sequence[DecisionRequest]
    reading: Reading

    def caller_path(self, question: int, path: str) -> str:
        """The caller's path of a path in the decision of a question."""
        is_labels = path.startswith(("labels", "range"))
        return f"questions[{question}]" if is_labels else self.reading.caller_path(path)


class TypedDecisions:
    """Answers the calls of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._decisions = DecisionRunner(state)

    async def create(self, call: HttpCall) -> None:
        """The answers to the questions of a body."""
        state = self._state
        _, parsed = await read_fields(call, state, DECISIONS, read_decisions, takes_images=True)
        found = await self._decisions.decide(parsed.requests, call, parsed.caller_path)
        call.answer_with(decisions_body(parsed.questions, found, public_name(state.model.name)))


def read_decisions(reading: Reading, served: ServedModel, caller: Caller) -> ParsedDecisions:
    """The decisions of a body. What is wrong is added to the reading."""
    reading.require("input")
    reading.require("questions")
    no_questions: list[TypedQuestion] = []
    questions = reading.read("questions", read_questions, no_questions)
    messages = _messages(reading, served)
    variables = wished_variables(reading, served, {}, _answers_at_once(reading, served))
    cache = CacheOptions(salt=reading.get("cache_salt", ""), bypass_prefix=not reading.get("cache_prompt", True))
    chats = [ChatPrompt(_asked(messages, each.text), template_kwargs_json=variables) for each in questions]
    for chat in chats if messages else ():
        reading.add(CHAT.check(chat, "chat", served))
        if reading.violations:
            break
    requests = [
        DecisionRequest(
            chat,
            labels=question.labels,
            cache=cache,
            priority=reading.get("priority", caller.priority),
            tenant=caller.tenant,
        )
        for chat, question in zip(chats, questions, strict=True)
    ]
    for each in requests[:1]:
        reading.add(findings(each, served))
    return ParsedDecisions(questions, requests, reading)


def _answers_at_once(reading: Reading, served: ServedModel) -> Mapping[str, bool]:
    """The answer follows the prompt, so a template that can makes the model not reason, unless the caller says so."""
    given = reading.get("chat_template_kwargs", {})
    has_switch = any(map(served.template_has, SWITCHES)) and not any(name in given for name in SWITCHES)
    return {"questions": False} if has_switch and not reading.values.keys() & THINKING.keys() else {}


def _messages(reading: Reading, served: ServedModel) -> tuple[ChatMessage, ...]:
    """The input as messages; none if it is unset or wrong. Errors name where each message came from."""
    no_input: list[InputMessage] = []
    has_developer, rules = served.template_has("developer"), image_rules(reading, served)
    found = reading.read(
        "input",
        lambda value: read_input(_with_texts(value), has_developer=has_developer, rules=rules),
        no_input,
        ignores_unknown=True,
    )
    reading.set_prompt_by("input")
    for i, each in enumerate(found):
        reading.set_by(f"chat.messages[{i}]", f"input{each.where}")
        name_images(reading, i, each.message, f"input{each.where}.{each.content}")
    return tuple(each.message for each in found)


def _with_texts(value: Any) -> Any:
    """An input whose parts of JSON are texts."""

    def part(each: Any) -> Any:
        is_json = isinstance(each, dict) and each.get("type") == JSON_KIND
        return {"type": "input_text", "text": json_text(each)} if is_json else each

    def item(each: Any) -> Any:
        content = each.get("content") if isinstance(each, dict) else None
        if not isinstance(content, list):
            return each
        return {**each, "content": [within(f".content[{i}]", part, one) for i, one in enumerate(content)]}

    return [within(f"[{i}]", item, each) for i, each in enumerate(value)] if isinstance(value, list) else value


def _asked(messages: tuple[ChatMessage, ...], question: str) -> tuple[ChatMessage, ...]:
    """The conversation with a question: at the end of the user's last message, or in one of its own.

    Many templates refuse two messages of the user in a row.
    """
    if not messages or messages[-1].role != "user":
        return (*messages, ChatMessage("user", question))
    last = messages[-1]
    return (*messages[:-1], replace(last, content=last.with_text(after=f"\n\n{question}")))


def decisions_body(questions: Sequence[TypedQuestion], found: Sequence[Decision], model: str) -> bytes:
    """The body of the answers."""
    usage = sum_of([each.usage for each in found])
    answers = [question.answer(decision) for question, decision in zip(questions, found, strict=True)]
    return dumps(
        {
            "model": model,
            "answers": answers,
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_prompt_tokens, "cache_write_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.prompt_tokens,
            },
        }
    ).encode()
