"""Checks a message before any work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from imp_service.api.facts import findings as option_findings
from imp_service.api.options import GenerationRequest
from imp_service.pb import inference_pb2
from imp_service.rpc.imp_v1.requests.field_rules import findings
from imp_service.rpc.imp_v1.requests.message_rules import under
from imp_service.rpc.imp_v1.requests.read_requests import AskedStep, read_generation, read_steps
from imp_service.serving.rules import check
from imp_service.serving.rules.check import Finding
from imp_service.serving.rules.generation_rules import CHAT, generation_findings
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState
from imp_service.text import ChatPrompt


def check_request(request: Any, served: ServedModel) -> GenerationRequest | Mapping[str, AskedStep]:
    """Raises FieldsInvalid or the first refusal. Returns the generation, or the steps of sessions by their paths."""
    if isinstance(request, inference_pb2.GenerateRequest | inference_pb2.GenerateUnaryRequest):
        generation, found = read_and_check(request, served)
        check.refuse_findings(found)
        return generation
    steps = read_steps(request, served.settings.scheduler.max_running)
    check.refuse_findings(chain(findings(request, "", served), _step_findings(steps, served)))
    return steps


def _step_findings(steps: Mapping[str, AskedStep], served: ServedModel) -> Iterator[Finding]:
    for path, step in steps.items():
        yield from option_findings(step.options, served, under(path, "step"))
        if step.sampling is not None:
            yield from option_findings(step.sampling, served, under(path, "sampling"))


def read_and_check(
    request: inference_pb2.GenerateRequest | inference_pb2.GenerateUnaryRequest, served: ServedModel
) -> tuple[GenerationRequest, Iterator[Finding]]:
    """A generation, and everything that is wrong with it."""
    if isinstance(request, inference_pb2.GenerateUnaryRequest):
        asked, path = request.request, "request"
    else:
        asked, path = request, ""
    generation = read_generation(asked, served.settings)
    found = chain(findings(request, "", served), generation_findings(generation, served, path))
    if isinstance(generation.prompt, ChatPrompt):
        found = chain(found, CHAT.check(generation.prompt, under(path, "chat"), served))
    return generation, found


async def checked(request: Any, n_bytes: int, state: ServerState) -> ServedModel:
    """The same, on a worker if the request is large. Returns the values that it was checked against."""
    return (await check.checked(lambda served: check_request(request, served), n_bytes, state))[1]


async def checked_generation(
    request: inference_pb2.GenerateRequest | inference_pb2.GenerateUnaryRequest, n_bytes: int, state: ServerState
) -> tuple[GenerationRequest, ServedModel]:
    """The same for a generation."""
    generation, served = await check.checked(lambda served: check_request(request, served), n_bytes, state)
    assert isinstance(generation, GenerationRequest)  # narrows
    return generation, served


async def checked_steps(request: Any, n_bytes: int, state: ServerState) -> list[AskedStep]:
    """The same for a request with steps of sessions."""
    steps, _ = await check.checked(lambda served: check_request(request, served), n_bytes, state)
    assert isinstance(steps, Mapping)  # narrows
    return list(steps.values())


def checked_without_model(request: Any, state: ServerState) -> None:
    """The same for methods that need no model. Their requests are small."""
    check_request(request, ServedModel(state.settings))
