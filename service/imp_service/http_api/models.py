"""The served model: its names, its load, its version, and its tokenizer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import unquote

from imp_service import __version__
from imp_service.core.installation import revision
from imp_service.generation.embedding_facts import EmbeddingFacts
from imp_service.http_api.anthropic.form import ANTHROPIC
from imp_service.http_api.anthropic.models import ServedFacts, model_entry, models_page
from imp_service.http_api.http_call import HttpCall
from imp_service.http_api.json_text import dumps
from imp_service.serving.model_names import public_name, require_served
from imp_service.serving.server_state import ServerState
from imp_service.tables import SAMPLER_FIELDS


def outputs_of(facts: EmbeddingFacts) -> list[str]:
    """What the model makes of texts."""
    made = {"text": facts.has_head, "embeddings": facts.embeds, "scores": facts.reranks}
    return [name for name, is_made in made.items() if is_made]


class Models:
    """Answers questions about what is served."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def list(self, call: HttpCall) -> None:
        """Every name of the served model."""
        if call.form is ANTHROPIC:
            self._answer(call, models_page(self._names, self._facts, call.exchange.query))
        else:
            self._answer(call, {"object": "list", "data": [self._entry(name) for name in self._names]})

    async def get(self, call: HttpCall, name: str) -> None:
        """One name. Clients percent-encode it: a `/` arrives as `%2F`."""
        decoded = unquote(name)
        require_served(decoded, self._names)
        found = public_name(decoded)
        self._answer(call, model_entry(found, self._facts) if call.form is ANTHROPIC else self._entry(found))

    async def version(self, call: HttpCall) -> None:
        """The version of imp, and the digest of the weights once it is known."""
        known = {"version": __version__, "revision": revision(), "weights_sha256": self._state.digest.sha256 or None}
        self._answer(call, known)

    async def load(self, call: HttpCall) -> None:
        """How busy the server is, as GetLoad of imp.v1."""
        self._answer(call, asdict(self._state.utilization.snapshot()))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(map(public_name, self._state.served.names))

    @property
    def _facts(self) -> ServedFacts:
        state = self._state
        return ServedFacts(
            public_name(state.model.name),
            state.started_at,
            state.model.max_context,
            state.settings.limits.max_tokens or None,
        )

    def _entry(self, name: str) -> dict[str, Any]:
        model = self._state.model
        return {
            "id": name,
            "object": "model",
            "created": int(self._state.started_at),
            "owned_by": "imp",
            "max_model_len": model.max_context,
            # What a request without these fields gets.
            "max_output_tokens": self._state.settings.limits.max_tokens or None,
            "default_sampling": {field: getattr(model.default_sampling, field) for field in SAMPLER_FIELDS},
            "default_sampling_origins": dict(model.default_sampler.origins),
            "input_modalities": ["text"] if model.images is None else ["text", "image"],
            "output_modalities": outputs_of(model.embedder.facts),
            "capabilities": self._state.served.capabilities,
        }

    def _answer(self, call: HttpCall, value: object) -> None:
        call.answer_with(dumps(value).encode())
