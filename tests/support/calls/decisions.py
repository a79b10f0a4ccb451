"""Questions for decisions, what must not differ between two answers, and calls that ask them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from imp_service.api.decisions import Decision
from imp_service.client.messages.read_replies import read_decision
from imp_service.http_api.openai.questions import TypedQuestion, read_questions
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2

THINGS = ("a cat", "the sea", "music", "a bicycle", "the moon", "bread", "a storm", "a train", "snow", "a letter")
MOODS = ("happy", "sad", "angry", "calm", "curious", "bored", "afraid", "proud", "tired", "cold")
TEAMS = ("billing", "technical", "sales", "other", "nobody", "everybody")


def inputs(n: int) -> list[str]:
    """Texts to decide about, the same for the same number."""
    rng = random.Random(38)
    return [f"Note {i}: I saw {rng.choice(THINGS)} and felt {rng.choice(MOODS)}." for i in range(n)]


def question(number: int) -> dict[str, Any]:
    """A question of each kind in turn, as /v1/decisions takes it."""
    kind, n = number % 4, 2 + number % 5
    if kind == 0:
        return {"type": "predicate", "instructions": f"The writer is {MOODS[number % 10]}."}
    if kind == 1:
        return {"type": "choice", "instructions": "Who answers?", "choices": [{"value": each} for each in TEAMS[:n]]}
    if kind == 2:
        return {"type": "score", "instructions": "How urgent is it?", "levels": [{"label": each} for each in MOODS[:n]]}
    choices = [{"value": chr(ord("A") + i)} for i in range(26 + n % 3)]
    return {"type": "choice", "name": f"q{number}", "instructions": "Which one?", "choices": [*choices, {"value": "-"}]}


def typed(body: dict[str, Any]) -> TypedQuestion:
    """The question of a body."""
    return read_questions([body])[0]


def asked(text: str, body: dict[str, Any]) -> list[dict[str, str]]:
    """The conversation that puts a question about a text."""
    return [{"role": "user", "content": f"{text}\n\n{typed(body).text}"}]


def message(text: str, body: dict[str, Any], **fields: Any) -> pb.DecideRequest:
    """The same as a request of imp.v1."""
    chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(**each) for each in asked(text, body)])
    return pb.DecideRequest(chat=chat, labels=typed(body).labels, **fields)


def bits(decision: Decision | pb.DecideResponse) -> tuple[Any, ...]:
    """All of a decision that depends on the model, the prompt and the labels."""
    found = read_decision(decision) if isinstance(decision, pb.DecideResponse) else decision
    numbers = [found.mass, found.confidence, *(each.probability for each in found.labels)]
    return (found.label, [each.token_ids for each in found.labels], [each.hex() for each in numbers], found.mean)


def answers(bodies: Sequence[dict[str, Any]], decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """The answers of /v1/decisions that these decisions are."""
    return [typed(body).answer(decision) for body, decision in zip(bodies, decisions, strict=True)]
