"""A server of OpenAI's API for the ladder: prompts of random words, answers streamed as server-sent events."""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
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
# Codes with which a server refuses an unknown path or field.
NO_SUCH_PATH = ("NOT_FOUND", "UNIMPLEMENTED")
NOT_KNOWN = (*NO_SUCH_PATH, "INVALID_ARGUMENT")


class OpenAiServer:
    """One model of a server of OpenAI's API."""

    def __init__(self, api: OpenAiApi, dialect: RequestForm, facts: ServerFacts) -> None:
        self.facts = facts
        self._api, self._dialect = api, dialect
        self._n_words = 0

    async def fit_prompts(self, n_tokens: int) -> None:
        """Finds how many words make a prompt of so many tokens."""
        self._n_words = await words_for(n_tokens, self._count)

    async def _count(self, prompt: str) -> int:
        body = self._dialect.body(self.facts.model, prompt, 1, streams=False)
        usage = (await self._api.fetch(self._dialect.path, body)).get("usage")
        count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if not isinstance(count, int):
            raise CallFailure("UNIMPLEMENTED", "NO_USAGE", f"{self._dialect.path}: the answer has no usage")
        return count

    def prepare(self, stream: int, identity: tuple[int, ...], output_tokens: int) -> Ask:
        """As MeasuredServer."""
        prompt = words(self._n_words, *identity)
        body = self._dialect.body(self.facts.model, prompt, output_tokens, streams=True)
        return lambda: self._api.measure(self._dialect.path, body)


@asynccontextmanager
async def open_openai_server(
    url: str, plan: LadderPlan, headers: Mapping[str, str], tls: ssl.SSLContext | None, model: str | None = None
) -> AsyncIterator[OpenAiServer]:
    """Connections to the server at `url`. Raises CallFailure if it cannot be reached."""
    async with open_openai_api(url, headers, tls) as api:
        facts = await _facts(api, model)
        plan.check(facts)
        server = OpenAiServer(api, await _dialect(api, facts.model), facts)
        await server.fit_prompts(plan.prompt_tokens)
        yield server


async def _facts(api: OpenAiApi, model: str | None) -> ServerFacts:
    listed = (await api.fetch("/models")).get("data") or []
    entries = {entry["id"]: entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get("id"), str)}
    name = model or next(iter(entries), None)
    if name is None:
        raise CallFailure("NOT_FOUND", "MODEL_NOT_SERVED", f"{api.base}/models: no model, expected --served-model NAME")
    entry = entries.get(name, {})
    length, owner = entry.get("max_model_len"), entry.get("owned_by")
    return ServerFacts(
        address=api.base,
        model=name,
        weights="",
        server=api.server or (owner if isinstance(owner, str) else ""),
        device="",
        max_context=length if isinstance(length, int) else None,
    )


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
