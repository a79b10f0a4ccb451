"""A model behind a server, for tasks of one event loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, overload

from ...api.arguments import (
    CHAT_PARAMETERS,
    GENERATION_PARAMETERS,
    SAMPLING_PARAMETERS,
    Conversation,
    chat_of,
    request_of,
    sampling_of,
)
from ...api.decision_arguments import DECISION_PARAMETERS, Numbers, Question, Questions, decisions_of
from ...api.decisions import Decision, DecisionRequest
from ...api.errors import Error
from ...api.keywords import parameters_of, take, takes_options
from ...api.options import (
    DEFAULT_CACHE,
    CacheOptions,
    GenerationRequest,
    Prompt,
    SamplingOptions,
    SessionStep,
    with_seed,
)
from ...api.replies import StepOutput
from ...api.reports import LoadReport, ModelInfo
from ...api.several import Prompts, requests_of
from ...api.vector_arguments import EMBED_PARAMETERS, RERANK_PARAMETERS, embed_request_of, rerank_request_of
from ...api.vectors import Ranking, TextOrIds, Vectors
from ...pb.model_pb2 import GetLoadRequest, GetModelInfoRequest
from ..async_connection import AsyncConnection
from ..async_joined_replies import AsyncJoinedReplies
from ..messages.errors import translating_call_failures
from ..messages.read_replies import read_decision, read_load, read_model_info, read_ranking, read_vectors
from ..messages.write_requests import (
    caller_metadata,
    write_decision,
    write_detokenize,
    write_embed,
    write_generation,
    write_rerank,
    write_tokenize,
)
from .async_session import AsyncSession, AsyncSessionServer, decode_together
from .reception import Reception
from .remote_async_generation import AsyncGeneration
from .remote_decisions import AsyncDecisions
from .remote_generations import AsyncGenerations
from .session_state import SessionState


class AsyncClient:
    """A model behind a server. `connect_async` makes one; close() or an `async with` block ends it.

    Each method takes a `timeout` in seconds, after which the call fails with the reason DEADLINE_EXCEEDED.

    It belongs to the event loop of its first call. What waits is a coroutine; cancelling it cancels its call.
    """

    def __init__(self, connection: AsyncConnection, model: str = "") -> None:
        self._connection = connection
        self._model = model
        self._sessions = AsyncSessionServer(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._connection.address}: its methods that wait are coroutines>"

    async def close(self) -> None:
        """Closes the connection. Calls that still wait for a reply raise an error with the reason CANCELLED."""
        self._sessions.release_dropped()
        await self._connection.close()

    async def info(self, *, timeout: float | None = None) -> ModelInfo:
        """The model and what it can do."""
        with translating_call_failures():
            request = GetModelInfoRequest(model=self._model)
            reply = await self._connection.unary(self._connection.models.GetModelInfo, request, timeout=timeout)
            return read_model_info(reply)

    async def load_report(self, *, timeout: float | None = None) -> LoadReport:
        """How busy the server is."""
        with translating_call_failures():
            reply = await self._connection.unary(self._connection.models.GetLoad, GetLoadRequest(), timeout=timeout)
            return read_load(reply.load)

    @overload
    def generate(
        self, prompt: Prompt | GenerationRequest, *, timeout: float | None = None, **options: Any
    ) -> AsyncGeneration: ...
    @overload
    def generate(self, prompt: Prompts, *, timeout: float | None = None, **options: Any) -> AsyncGenerations: ...
    @takes_options(GENERATION_PARAMETERS)
    def generate(
        self, prompt: Prompt | GenerationRequest | Prompts, *, timeout: float | None = None, **options: Any
    ) -> AsyncGeneration | AsyncGenerations:
        """Continues a text, token ids or a conversation. Iterate over the replies, or ask for the result.

        A list of texts, or of lists of ids, is several prompts, which run in one batch: ask for the results.
        """
        asked = requests_of(prompt, options)
        return self._begin_all(asked, timeout) if isinstance(asked, list) else self._begin(asked, timeout)

    @takes_options(GENERATION_PARAMETERS, CHAT_PARAMETERS)
    def chat(self, messages: Conversation, *, timeout: float | None = None, **options: Any) -> AsyncGeneration:
        """The next message of a conversation, or the answer to a question. A message is a `ChatMessage`, or a dict.

        `tools`, `template_kwargs` and a message's `tool_calls` are Python values or JSON.
        """
        return self._begin(request_of(chat_of(messages, options), options), timeout)

    @overload
    async def decide(
        self,
        question: Question,
        labels: Sequence[str] = (),
        *,
        range: Numbers | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Decision: ...
    @overload
    async def decide(
        self,
        question: Questions,
        labels: Sequence[str] = (),
        *,
        range: Numbers | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> list[Decision]: ...
    @takes_options(DECISION_PARAMETERS)
    async def decide(
        self,
        question: Question | Questions,
        labels: Sequence[str] = (),
        *,
        range: Numbers | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Decision | list[Decision]:
        """The most likely of some labels as the output, and the probability of each. Nothing is generated.

        The question is a text that a label continues, token ids, or a list of messages, to which a label is the answer.
        A list of texts, of lists of ids or of conversations is several questions, which run in one batch. `range` is
        (low, high) or (low, high, step): the labels are these whole numbers.
        """
        asked, are_several = decisions_of(question, labels, range, options)
        if not are_several:
            return await self._decide(asked[0], timeout)
        return await AsyncDecisions([partial(self._decide, each, timeout) for each in asked]).results()

    @takes_options(SAMPLING_PARAMETERS, parameters_of(DEFAULT_CACHE))
    def open(
        self,
        sampling: SamplingOptions | None = None,
        *,
        tenant: str = "",
        priority: int = 0,
        cache: CacheOptions = DEFAULT_CACHE,
        ttl: float | None = None,
        **options: Any,
    ) -> AsyncSession:
        """A session that holds nothing yet, with the sampler of its steps. Its first step opens it on the server.

        The server frees it after `ttl` seconds without use; None is the server's own time.
        """
        asked, cache = with_seed(sampling_of(sampling, options) or SamplingOptions()), take(cache, options)
        metadata = caller_metadata(tenant, priority)
        resumes = self._connection.target.resumes
        state = SessionState(asked, cache, self._model, ttl, metadata, resumes=resumes)
        return AsyncSession(self._sessions, state)

    async def decode_step(
        self, steps: Sequence[SessionStep], *, timeout: float | None = None
    ) -> list[StepOutput | Error]:
        """Steps several sessions at once: one output or one error for each. An error leaves the other sessions whole.

        A failure of the call itself is raised.
        """
        return await decode_together(self._sessions, steps, timeout)

    @takes_options(EMBED_PARAMETERS)
    async def embed(self, texts: Sequence[TextOrIds], *, timeout: float | None = None, **options: Any) -> Vectors:
        """The vectors of texts, or of lists of ids, in their order."""
        asked = embed_request_of(texts, options)
        message, metadata = write_embed(asked, self._model), caller_metadata(asked.tenant, asked.priority)
        with translating_call_failures():
            call = self._connection.inference.Embed
            reply = await self._connection.unary(call, message, metadata=metadata, timeout=timeout)
            return read_vectors(reply)

    @takes_options(RERANK_PARAMETERS)
    async def rerank(
        self, query: str, documents: Sequence[str], *, timeout: float | None = None, **options: Any
    ) -> Ranking:
        """Documents in the order in which they answer a query, the best first."""
        asked = rerank_request_of(query, documents, options)
        message, metadata = write_rerank(asked, self._model), caller_metadata(asked.tenant, asked.priority)
        with translating_call_failures():
            call = self._connection.inference.Rerank
            reply = await self._connection.unary(call, message, metadata=metadata, timeout=timeout)
            return read_ranking(reply)

    async def tokenize(
        self,
        text: str,
        *,
        add_special_tokens: bool = True,
        parse_special_tokens: bool = False,
        timeout: float | None = None,
    ) -> list[int]:
        """The ids of a text. Special tokens that are spelled in it are text, unless they are to be parsed."""
        with translating_call_failures():
            request = write_tokenize(text, add_special=add_special_tokens, parse_special=parse_special_tokens)
            reply = await self._connection.unary(self._connection.tokenizer.Tokenize, request, timeout=timeout)
            return list(reply.results[0].token_ids)

    async def detokenize(
        self, token_ids: Sequence[int], *, special_tokens: bool = False, timeout: float | None = None
    ) -> str:
        """The text of ids. It leaves out special tokens, unless they are asked for."""
        with translating_call_failures():
            request = write_detokenize(token_ids, special_tokens=special_tokens)
            reply = await self._connection.unary(self._connection.tokenizer.Detokenize, request, timeout=timeout)
            return reply.texts[0]

    def _begin(self, request: GenerationRequest, timeout: float | None) -> AsyncGeneration:
        message = write_generation(request, self._model)
        metadata = caller_metadata(request.tenant, request.priority)

        async def begin() -> AsyncJoinedReplies:
            self._sessions.release_dropped()
            return AsyncJoinedReplies(self._connection, message, metadata=metadata, timeout=timeout)

        return AsyncGeneration(begin, Reception(request))

    async def _decide(self, request: DecisionRequest, timeout: float | None) -> Decision:
        with translating_call_failures():
            message = write_decision(request, self._model)
            metadata = caller_metadata(request.tenant, request.priority)
            method = self._connection.inference.Decide
            return read_decision(await self._connection.unary(method, message, metadata=metadata, timeout=timeout))

    def _begin_all(self, requests: Sequence[GenerationRequest], timeout: float | None) -> AsyncGenerations:
        return AsyncGenerations([partial(self._begin, request, timeout) for request in requests])
