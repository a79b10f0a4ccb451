"""Checks a message before any work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from imp_service.api.decisions import DecisionRequest
from imp_service.api.errors import Violation
from imp_service.api.facts import findings as option_findings
from imp_service.api.options import GenerationRequest, StepOptions
from imp_service.api.resume import SessionResume
from imp_service.api.vectors import EmbedRequest, RerankRequest
from imp_service.pb import inference_pb2
from imp_service.rpc.imp_v1.requests.field_rules import findings
from imp_service.rpc.imp_v1.requests.message_rules import under
from imp_service.rpc.imp_v1.requests.read_requests import (
    AskedStep,
    input_path,
    read_decision,
    read_embed,
    read_generation,
    read_rerank,
    read_steps,
)
from imp_service.serving.rules import check
from imp_service.serving.rules.check import Finding
from imp_service.serving.rules.embedding_rules import embed_findings, rerank_findings
from imp_service.serving.rules.generation_rules import CHAT, generation_findings
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState
from imp_service.text import ChatPrompt

Checked = GenerationRequest | EmbedRequest | RerankRequest | Mapping[str, AskedStep]


def check_request(request: Any, served: ServedModel) -> Checked:
    """Raises FieldsInvalid or the first refusal. Returns what was read, of sessions their steps by their paths."""
    if isinstance(request, inference_pb2.GenerateRequest | inference_pb2.GenerateUnaryRequest):
        generation, found = read_and_check(request, served)
        check.refuse_findings(found)
        return generation
    if isinstance(request, inference_pb2.EmbedRequest | inference_pb2.RerankRequest):
        return check_inputs(request, served)
    steps = read_steps(request, served.settings.scheduler.max_running)
    check.refuse_findings(chain(findings(request, "", served), _step_findings(steps, served)))
    return steps


def check_inputs(
    request: inference_pb2.EmbedRequest | inference_pb2.RerankRequest, served: ServedModel
) -> EmbedRequest | RerankRequest:
    """The same for a call with inputs."""
    found = findings(request, "", served)
    if isinstance(request, inference_pb2.RerankRequest):
        ranked = read_rerank(request)
        check.refuse_findings(chain(found, rerank_findings(ranked, served)))
        return ranked
    asked = read_embed(request)
    # Without inputs the rule of the message says so.
    own = embed_findings(asked, served) if asked.texts else ()
    check.refuse_findings(chain(found, (check.renamed(each, partial(input_path, request)) for each in own)))
    return asked


def _step_findings(steps: Mapping[str, AskedStep], served: ServedModel) -> Iterator[Finding]:
    for path, step in steps.items():
        yield from option_findings(step.options, served, under(path, "step"))
        if step.sampling is not None:
            yield from option_findings(step.sampling, served, under(path, "sampling"))
        if step.resume is not None:
            yield from _resume_findings(step.resume, step.options, served, path)


def _resume_findings(resume: SessionResume, options: StepOptions, served: ServedModel, path: str) -> Iterator[Finding]:
    """What is wrong with a session that is to go on."""
    where = under(path, "resume")
    yield from option_findings(resume, served, where)
    if resume.token_id is not None and not options.sample:
        yield Violation(f"{where}.token_id", "set, expected none where step.sample is false")


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


async def checked_decision(request: inference_pb2.DecideRequest, n_bytes: int, state: ServerState) -> DecisionRequest:
    """The same for a decision."""

    def check_decision(served: ServedModel) -> DecisionRequest:
        asked = read_decision(request)
        check.refuse_findings(chain(findings(request, "", served), option_findings(asked, served)))
        return asked

    return (await check.checked(check_decision, n_bytes, state))[0]


async def checked_embed(request: inference_pb2.EmbedRequest, n_bytes: int, state: ServerState) -> EmbedRequest:
    """The same for inputs to embed."""
    asked, _ = await check.checked(lambda served: check_request(request, served), n_bytes, state)
    assert isinstance(asked, EmbedRequest)  # narrows
    return asked


async def checked_rerank(request: inference_pb2.RerankRequest, n_bytes: int, state: ServerState) -> RerankRequest:
    """The same for documents to rank."""
    asked, _ = await check.checked(lambda served: check_request(request, served), n_bytes, state)
    assert isinstance(asked, RerankRequest)  # narrows
    return asked


async def checked_steps(request: Any, n_bytes: int, state: ServerState) -> list[AskedStep]:
    """The same for a request with steps of sessions."""
    steps, _ = await check.checked(lambda served: check_request(request, served), n_bytes, state)
    assert isinstance(steps, Mapping)  # narrows
    return list(steps.values())


def checked_without_model(request: Any, state: ServerState) -> None:
    """The same for methods that need no model. Their requests are small."""
    check_request(request, ServedModel(state.settings))
