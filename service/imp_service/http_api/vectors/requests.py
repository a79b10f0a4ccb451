"""Converts bodies of requests to calls that embed texts or rank documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from imp_service.api.errors import Violation
from imp_service.api.rules import Core
from imp_service.api.vectors import EmbedOptions, EmbedRequest, RerankOptions, RerankRequest, TextOrIds
from imp_service.http_api.openai.requests import prompts_in
from imp_service.http_api.requests.generation import Caller
from imp_service.http_api.requests.reading import Reading
from imp_service.serving.rules.check import Finding
from imp_service.serving.rules.embedding_rules import embed_findings, pair_findings, rerank_findings
from imp_service.serving.served_model import ServedModel

# As many tokens as the model takes, in vLLM's words.
TO_LIMIT = -1
PRIORITY = Core("priority")


@dataclass(frozen=True, slots=True)
class PairsRequest:
    """Pairs of texts to score."""

    pairs: Sequence[tuple[str, str]]
    options: RerankOptions
    priority: int = 0
    tenant: str = ""


def read_embed(reading: Reading, served: ServedModel, caller: Caller, *, field: str) -> EmbedRequest:
    """Inputs to embed, which are in `field`. What is wrong is added to the reading."""
    reading.require(field)
    is_list = _is_several(reading.get(field))
    no_inputs: list[TextOrIds] = []
    inputs = reading.read(field, lambda value: prompts_in(value, served.settings.limits.max_inputs), no_inputs)
    _leave_out_input_type(reading, served)
    options = EmbedOptions(**_options(reading, EmbedOptions, served))
    request = EmbedRequest(inputs, options, _priority(reading, caller, served), caller.tenant)
    reading.set_by("texts" if is_list else "texts[0]", field)
    _add(reading, embed_findings(request, served), {"texts": field})
    return request


def read_rerank(reading: Reading, served: ServedModel, caller: Caller) -> RerankRequest:
    """Documents to rank. What is wrong is added to the reading."""
    reading.require("query")
    reading.require("documents")
    options = RerankOptions(**_options(reading, RerankOptions, served))
    query, documents = reading.get("query", ""), reading.get("documents", ())
    request = RerankRequest(query, documents, options, _priority(reading, caller, served), caller.tenant)
    reading.set_by("documents", reading.spelled("documents"))
    _add(reading, rerank_findings(request, served), {"query": "query", "documents": "documents"})
    return request


def read_pairs(reading: Reading, served: ServedModel, caller: Caller) -> PairsRequest:
    """Pairs to score: one text with each of several, or as many of both. What is wrong is added to the reading."""
    for field in ("text_1", "text_2"):
        reading.require(field)
        reading.set_by(field, reading.spelled(field))
    firsts, seconds = reading.get("text_1", ()), reading.get("text_2", ())
    if firsts and seconds and len(firsts) not in (1, len(seconds)):
        words = f"{len(seconds)} texts, expected {len(firsts)}, as many as {reading.spelled('text_1')}"
        reading.wrong(reading.spelled("text_2"), words)
    options = RerankOptions(**_options(reading, RerankOptions, served))
    _add(reading, pair_findings(firsts, seconds, options, served), {"text_1": "text_1", "text_2": "text_2"})
    pairs = list(zip(firsts * len(seconds) if len(firsts) == 1 else firsts, seconds, strict=False))
    return PairsRequest(pairs, options, _priority(reading, caller, served), caller.tenant)


def _add(reading: Reading, found: Iterable[Finding], inputs: Mapping[str, str]) -> None:
    """Adds what is wrong, but for inputs that are not set: the reading says that already."""
    unset = {path for path, field in inputs.items() if field not in reading.values}
    reading.add(each for each in found if not (isinstance(each, Violation) and each.path in unset))


def _priority(reading: Reading, caller: Caller, served: ServedModel) -> int:
    priority: int = reading.get("priority", caller.priority)
    reading.add(PRIORITY.check(priority, "priority", served))
    return priority


def _is_several(value: object) -> bool:
    """Whether a value is a list of inputs rather than one."""
    return isinstance(value, list) and bool(value) and type(value[0]) is not int


def _options(reading: Reading, kind: type, served: ServedModel) -> dict[str, Any]:
    """The options that the fields set."""
    known = {each.name for each in fields(kind)}
    found = {name: value for name, value in reading.options("").items() if name in known}
    if found.get("max_tokens") == TO_LIMIT:
        del found["max_tokens"]
    if "truncate_prompt_tokens" in reading.values:
        found.setdefault("truncate", "end")
    if (side := reading.get("truncation_side")) is not None:
        if (found.get("truncate") or served.settings.limits.truncate) == "end":
            found["truncate"] = "start" if side == "left" else "end"
        else:
            reading.ignored.append(reading.spelled("truncation_side"))
    return found


def _leave_out_input_type(reading: Reading, served: ServedModel) -> None:
    """Clients always say what kind of text it is. It changes nothing for a model that has no prompts."""
    embedder = served.embedder
    is_said = "prompt_name" in reading.values and reading.spelled("prompt_name") == "input_type"
    if is_said and embedder is not None and not embedder.facts.prompt_names:
        del reading.values["prompt_name"]
        reading.ignored.append("input_type")
