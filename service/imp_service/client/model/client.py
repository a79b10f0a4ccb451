"""A model behind a server, for programs that wait in threads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from ...api.arguments import (
    CHAT_PARAMETERS,
    GENERATION_PARAMETERS,
    SAMPLING_PARAMETERS,
    Conversation,
    chat_of,
    request_of,
    sampling_of,
)
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
from ...api.reports import LoadReport, ModelInfo, info_text
from ...api.several import Prompts, requests_of
from ...pb.inference_pb2_grpc import InferenceServiceStub
from ...pb.model_pb2 import GetLoadRequest, GetModelInfoRequest
from ...pb.model_pb2_grpc import ModelServiceStub
from ...pb.tokenizer_pb2_grpc import TokenizerServiceStub
from ..connection import Connection
from ..messages.errors import translating_call_failures
from ..messages.replies import read_load, read_model_info
from ..messages.requests import caller_metadata, write_detokenize, write_generation, write_tokenize
from .generation import Generation
from .generations import Generations
from .reception import Reception
from .session import Session, SessionServer, decode_together
from .session_state import SessionState

if TYPE_CHECKING:
    from ...api.async_generation import AsyncGeneration, AsyncGenerations


class Client:
    """A model behind a server. `connect` makes one; close() or a `with` block ends it.

    It has the methods of a model that `imp_service.load` gives, with the same options, replies and errors. Any number
    of threads may use it at once. A generation or a session belongs to one thread at a time.

    Each method takes a `timeout` in seconds, after which the call fails with the reason DEADLINE_EXCEEDED. A generation
    that should keep its output so far takes a `time_limit` instead.
    """

    def __init__(self, connection: Connection, model: str = "") -> None:
        self._connection = connection
        self._model = model
        self._inference = InferenceServiceStub(connection.channel)
        self._sessions = SessionServer(connection, self._inference)
        self._models = ModelServiceStub(connection.channel)
        self._tokenizer = TokenizerServiceStub(connection.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        """It makes no call: the model is shown once it is known."""
        info: ModelInfo | None = self.__dict__.get("_info")
        known = "" if info is None else f", {info_text(info)}"
        return f"<Client of {self._connection.address}{known}>"

    def close(self) -> None:
        """Closes the connection. Calls that still wait for a reply raise an error with the reason CANCELLED."""
        self._sessions.release_dropped()
        self._connection.close()

    @cached_property
    def _info(self) -> ModelInfo:
        """Asked for once. A server does not change its model."""
        return self.info()

    @property
    def name(self) -> str:
        """The name that the server gives the model."""
        return self._info.name

    @property
    def max_context(self) -> int:
        """The most tokens of a prompt and its output together."""
        return self._info.max_context

    @property
    def num_tokens(self) -> int:
        """Every id below it is a token."""
        return self._info.num_tokens

    @property
    def vocab_size(self) -> int:
        """The number of logits. Those from `num_tokens` on belong to no token."""
        return self._info.vocab_size

    @property
    def eos_token_ids(self) -> list[int]:
        """The tokens that end a text."""
        return list(self._info.eos_token_ids)

    @property
    def default_sampling(self) -> SamplingOptions:
        """The values of sampling options that a caller does not set."""
        return self._info.default_sampling

    @translating_call_failures()
    def info(self, *, timeout: float | None = None) -> ModelInfo:
        """The model and what it can do."""
        request = GetModelInfoRequest(model=self._model)
        return read_model_info(self._connection.unary(self._models.GetModelInfo, request, timeout=timeout))

    @translating_call_failures()
    def load_report(self, *, timeout: float | None = None) -> LoadReport:
        """How busy the server is."""
        return read_load(self._connection.unary(self._models.GetLoad, GetLoadRequest(), timeout=timeout).load)

    @overload
    def generate(
        self, prompt: Prompt | GenerationRequest, *, timeout: float | None = None, **options: Any
    ) -> Generation: ...
    @overload
    def generate(self, prompt: Prompts, *, timeout: float | None = None, **options: Any) -> Generations: ...
    @takes_options(GENERATION_PARAMETERS)
    def generate(
        self, prompt: Prompt | GenerationRequest | Prompts, *, timeout: float | None = None, **options: Any
    ) -> Generation | Generations:
        """Continues a text, token ids or a conversation. Iterate over the replies, or ask for the result.

        A list of texts, or of lists of ids, is several prompts, which run in one batch: ask for the results.
        """
        asked = requests_of(prompt, options)
        return self._begin_all(asked, timeout) if isinstance(asked, list) else self._begin(asked, timeout)

    @takes_options(GENERATION_PARAMETERS, CHAT_PARAMETERS)
    def chat(self, messages: Conversation, *, timeout: float | None = None, **options: Any) -> Generation:
        """The next message of a conversation, or the answer to a question. A message is a `ChatMessage`, or a dict.

        `tools`, `template_kwargs` and a message's `tool_calls` are Python values or JSON.
        """
        return self._begin(request_of(chat_of(messages, options), options), timeout)

    @overload
    def generate_async(
        self, prompt: Prompt | GenerationRequest, *, timeout: float | None = None, **options: Any
    ) -> AsyncGeneration: ...
    @overload
    def generate_async(self, prompt: Prompts, *, timeout: float | None = None, **options: Any) -> AsyncGenerations: ...
    @takes_options(GENERATION_PARAMETERS)
    def generate_async(
        self, prompt: Prompt | GenerationRequest | Prompts, *, timeout: float | None = None, **options: Any
    ) -> AsyncGeneration | AsyncGenerations:
        """As generate(), for `async for`. A thread waits for each; `connect_async` needs none."""
        asked = requests_of(prompt, options)
        if not isinstance(asked, list):
            return self._begin_async(asked, timeout)
        from ...api.async_generation import AsyncGenerations

        return AsyncGenerations(lambda: self._begin_all(asked, timeout))

    @takes_options(GENERATION_PARAMETERS, CHAT_PARAMETERS)
    def chat_async(self, messages: Conversation, *, timeout: float | None = None, **options: Any) -> AsyncGeneration:
        """As chat(), for `async for`."""
        return self._begin_async(request_of(chat_of(messages, options), options), timeout)

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
    ) -> Session:
        """A session that holds nothing yet, with the sampler of its steps. Its first step opens it on the server.

        The server frees it after `ttl` seconds without use; None is the server's own time.
        """
        asked, cache = with_seed(sampling_of(sampling, options) or SamplingOptions()), take(cache, options)
        metadata = caller_metadata(tenant, priority)
        return Session(self._sessions, SessionState(asked, cache, self._model, ttl, metadata))

    def decode_step(self, steps: Sequence[SessionStep], *, timeout: float | None = None) -> list[StepOutput | Error]:
        """Steps several sessions at once: one output or one error for each. An error leaves the other sessions whole.

        A failure of the call itself is raised.
        """
        return decode_together(self._sessions, steps, timeout)

    @translating_call_failures()
    def tokenize(
        self,
        text: str,
        *,
        add_special_tokens: bool = True,
        parse_special_tokens: bool = False,
        timeout: float | None = None,
    ) -> list[int]:
        """The ids of a text. Special tokens that are spelled in it are text, unless they are to be parsed."""
        request = write_tokenize(text, add_special=add_special_tokens, parse_special=parse_special_tokens)
        reply = self._connection.unary(self._tokenizer.Tokenize, request, timeout=timeout)
        return list(reply.results[0].token_ids)

    @translating_call_failures()
    def detokenize(
        self, token_ids: Sequence[int], *, special_tokens: bool = False, timeout: float | None = None
    ) -> str:
        """The text of ids. It leaves out special tokens, unless they are asked for."""
        request = write_detokenize(token_ids, special_tokens=special_tokens)
        return self._connection.unary(self._tokenizer.Detokenize, request, timeout=timeout).texts[0]

    def _begin(self, request: GenerationRequest, timeout: float | None) -> Generation:
        message = write_generation(request, self._model)
        metadata = caller_metadata(request.tenant, request.priority)
        reception = Reception(request)
        self._sessions.release_dropped()
        messages = self._connection.stream(self._inference.Generate, message, metadata=metadata, timeout=timeout)
        return Generation(messages, reception)

    def _begin_all(self, requests: Sequence[GenerationRequest], timeout: float | None) -> Generations:
        return Generations([partial(self._begin, request, timeout) for request in requests])

    def _begin_async(self, request: GenerationRequest, timeout: float | None) -> AsyncGeneration:
        from ...api.async_generation import AsyncGeneration

        return AsyncGeneration(lambda: self._begin(request, timeout))
