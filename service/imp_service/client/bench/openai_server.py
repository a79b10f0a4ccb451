"""A server of OpenAI's API: its model, and for the ladder prompts of random words with streamed answers."""

import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ..failure import CallFailure
from .measured_server import Ask, ServerFacts
from .openai_api import OpenAiApi, open_openai_api
from .plan import LadderPlan
from .prompt_words import words, words_for


@dataclass(frozen=True, slots=True)
class RequestForm:
    """The form of the requests to a server."""

    path: str
    has_extras: bool  # fields that OpenAI does not have

    def body(self, model: str, prompt: str, n_tokens: int, *, streams: bool) -> bytes:
        """A greedy request."""
        text = {"messages": [{"role": "user", "content": prompt}]} if "chat" in self.path else {"prompt": prompt}
        fields: dict[str, Any] = {"model": model, **text, "max_tokens": n_tokens, "temperature": 0, "stream": streams}
        if streams:
            counts = {"continuous_usage_stats": True} if self.has_extras else {}
            fields["stream_options"] = {"include_usage": True, **counts}
        if self.has_extras:
            fields["ignore_eos"] = True
        return json.dumps(fields).encode()


DIALECTS = tuple(
    RequestForm(path, extras) for path in ("/completions", "/chat/completions") for extras in (True, False)
)
EMBEDDINGS = "/embeddings"
# Codes with which a server refuses an unknown path or field.
NO_SUCH_PATH = ("NOT_FOUND", "UNIMPLEMENTED")
NOT_KNOWN = (*NO_SUCH_PATH, "INVALID_ARGUMENT")


@dataclass(frozen=True, slots=True)
class OpenAiModel:
    """One model of a server. `dialect` is the form of requests for text; None: the model makes vectors alone."""

    api: OpenAiApi
    facts: ServerFacts
    dialect: RequestForm | None


class OpenAiServer:
    """A model that generates text."""

    def __init__(self, model: OpenAiModel, dialect: RequestForm) -> None:
        self.facts = model.facts
        self._api, self._dialect = model.api, dialect
        self._n_words = 0

    async def fit_prompts(self, n_tokens: int) -> None:
        """Finds how many words make a prompt of so many tokens."""
        self._n_words = await words_for(n_tokens, self._count)

    async def _count(self, prompt: str) -> int:
        body = self._dialect.body(self.facts.model, prompt, 1, streams=False)
        return prompt_tokens(self._dialect.path, await self._api.fetch(self._dialect.path, body))

    def prepare(self, stream: int, identity: tuple[int, ...], output_tokens: int) -> Ask:
        """As MeasuredServer."""
        prompt = words(self._n_words, *identity)
        body = self._dialect.body(self.facts.model, prompt, output_tokens, streams=True)
        return lambda: self._api.measure(self._dialect.path, body)


def prompt_tokens(path: str, answer: Mapping[str, Any]) -> int:
    """The tokens that the server counted. Raises CallFailure if it does not say."""
    usage = answer.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if not isinstance(count, int):
        raise CallFailure("UNIMPLEMENTED", "NO_USAGE", f"{path}: the answer has no usage")
    return count


def vectors_body(model: str, texts: Sequence[str]) -> bytes:
    """A request for vectors, as OpenAI's own clients send it."""
    return json.dumps({"model": model, "input": list(texts), "encoding_format": "base64"}).encode()


@asynccontextmanager
async def open_openai_model(
    url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None, model: str | None = None
) -> AsyncIterator[OpenAiModel]:
    """Connections to the server at `url`. Raises CallFailure if it cannot be reached."""
    async with open_openai_api(url, headers, tls) as api:
        facts = _facts(api, await _entry(api, model))
        yield OpenAiModel(api, facts, await _dialect_or_none(api, facts.model))


async def openai_server(model: OpenAiModel, dialect: RequestForm, plan: LadderPlan) -> OpenAiServer:
    """The server for the ladder, with prompts of the plan's length."""
    plan.check(model.facts)
    server = OpenAiServer(model, dialect)
    await server.fit_prompts(plan.prompt_tokens)
    return server


async def _entry(api: OpenAiApi, model: str | None) -> dict[str, Any]:
    """What the server lists of the model, or of its first one."""
    listed = (await api.fetch("/models")).get("data") or []
    entries = {entry["id"]: entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get("id"), str)}
    name = model or next(iter(entries), None)
    if name is None:
        raise CallFailure("NOT_FOUND", "MODEL_NOT_SERVED", f"{api.base}/models: no model, expected --served-model NAME")
    return {"id": name, **entries.get(name, {})}


def _facts(api: OpenAiApi, entry: Mapping[str, Any]) -> ServerFacts:
    length, owner = entry.get("max_model_len"), entry.get("owned_by")
    return ServerFacts(
        address=api.base,
        model=entry["id"],
        weights="",
        server=api.server or (owner if isinstance(owner, str) else ""),
        device="",
        max_context=length if isinstance(length, int) else None,
    )


async def _dialect_or_none(api: OpenAiApi, model: str) -> RequestForm | None:
    """The form of requests for text; None if the server refuses them all, but makes vectors."""
    try:
        return await _dialect(api, model)
    except CallFailure as error:
        if error.code not in NOT_KNOWN:
            raise
        with suppress(CallFailure):
            await api.accepts(EMBEDDINGS, vectors_body(model, [words(1)]))
            return None
        raise


async def _dialect(api: OpenAiApi, model: str) -> RequestForm:
    """The first form of request that the server accepts."""
    failures = []
    for dialect in DIALECTS:
        try:
            await api.accepts(dialect.path, dialect.body(model, words(1), 2, streams=True))
        except CallFailure as error:
            failures.append(error)
            if error.code not in NOT_KNOWN:
                break
        else:
            return dialect
    raise next((failure for failure in failures if failure.code not in NO_SUCH_PATH), failures[0])
