"""Vectors, rankings and scores: from a request's body to its answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from imp_service.api.vectors import Vectors
from imp_service.http_api.checked_body import read_fields
from imp_service.http_api.http_call import HttpCall
from imp_service.http_api.openai.replies import Head
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.rows import Table
from imp_service.http_api.vectors import replies
from imp_service.http_api.vectors.fields import EMBEDDINGS, RERANK, SCORE, TEI_EMBED
from imp_service.http_api.vectors.requests import read_embed, read_pairs, read_rerank
from imp_service.serving.embeddings import InputsRunner, WantedInputs, bytes_of, usage_of
from imp_service.serving.model_names import public_name
from imp_service.serving.prompt_cost import inputs_bytes
from imp_service.serving.server_state import ServerState

T = TypeVar("T")


class VectorsApi:
    """Answers the calls of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._runner = InputsRunner(state)

    async def embeddings(self, call: HttpCall) -> None:
        """The vectors of texts, in OpenAI's form."""
        reading, vectors = await self._embed(call, EMBEDDINGS, "input")
        is_base64 = reading.get("encoding_format") == "base64"
        head, usage = self._head(call, "embd-"), usage_of(vectors)
        await self._answer(call, vectors, lambda: replies.vectors_body(vectors, head, usage, is_base64=is_base64))

    async def tei_embed(self, call: HttpCall) -> None:
        """The vectors of texts, in TEI's form."""
        _, vectors = await self._embed(call, TEI_EMBED, "inputs")
        await self._answer(call, vectors, lambda: replies.bare_vectors_body(vectors))

    async def rerank(self, call: HttpCall, *, returns_documents: bool = True) -> None:
        """Documents in order, in the form of Cohere and Jina; in that of TEI if the request has `texts`."""
        reading, asked = await read_fields(call, self._state, RERANK, read_rerank)
        wanted = WantedInputs(
            plan=lambda embedder: embedder.plan_documents(asked),
            n_bytes=inputs_bytes((asked.query, *asked.documents)),
            field="documents",
            rename=reading.caller_path,
        )
        ranking = (await self._runner.run(wanted, call)).ranking()
        is_tei = reading.spelled("documents") == "texts"
        shown = asked.documents if reading.get("return_documents", returns_documents and not is_tei) else None
        if is_tei:
            call.answer_with(replies.bare_ranking_body(ranking, shown))
            return
        head, usage = self._head(call, "rerank-"), usage_of(ranking)
        call.answer_with(replies.ranking_body(ranking, head, usage, shown))

    async def rerank_v2(self, call: HttpCall) -> None:
        """The same as Cohere's second version, which does not repeat the documents."""
        await self.rerank(call, returns_documents=False)

    async def score(self, call: HttpCall) -> None:
        """The score of each pair of texts, in vLLM's form."""
        reading, asked = await read_fields(call, self._state, SCORE, read_pairs)
        wanted = WantedInputs(
            plan=lambda embedder: embedder.plan_pairs(
                asked.pairs, asked.options, priority=asked.priority, tenant=asked.tenant
            ),
            n_bytes=inputs_bytes(text for pair in asked.pairs for text in pair),
            field="text_2",
            rename=reading.caller_path,
        )
        ranking = (await self._runner.run(wanted, call)).ranking()
        head, usage = self._head(call, "score-"), usage_of(ranking)
        call.answer_with(replies.scores_body(ranking, head, usage))

    async def _embed(self, call: HttpCall, table: Table, field: str) -> tuple[Reading, Vectors]:
        reading, asked = await read_fields(call, self._state, table, partial(read_embed, field=field))
        if lossy := self._state.model.embedder.approximation(asked.options):
            call.approximate(lossy)
        wanted = WantedInputs(
            plan=lambda embedder: embedder.plan_texts(asked),
            n_bytes=inputs_bytes(asked.texts),
            field="texts",
            rename=reading.caller_path,
        )
        return reading, (await self._runner.run(wanted, call)).vectors()

    async def _answer(self, call: HttpCall, vectors: Vectors, write: Callable[[], bytes]) -> None:
        call.answer_with(await self._state.workers.write_if_large(write, bytes_of(vectors)))

    def _head(self, call: HttpCall, prefix: str) -> Head:
        return Head(f"{prefix}{call.answer_id}", int(self._state.wall()), public_name(self._state.model.name))
