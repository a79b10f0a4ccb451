"""A model behind a server, with what only a program that waits in threads can ask for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from ...api.arguments import CHAT_PARAMETERS, GENERATION_PARAMETERS, Conversation, chat_of, request_of
from ...api.keywords import takes_options
from ...api.options import GenerationRequest, Prompt, SamplingOptions
from ...api.reports import ModelInfo, info_text
from ...api.several import Prompts, requests_of
from .blocking_client import BlockingClient

if TYPE_CHECKING:
    from ...api.threaded_generation import AsyncGeneration, AsyncGenerations


class Client(BlockingClient):
    """A model behind a server. `connect` makes one; close() or a `with` block ends it.

    It has the methods of a model that `imp_service.load` gives, with the same options, replies and errors. Any number
    of threads may use it at once. A generation or a session belongs to one thread at a time.

    Each method takes a `timeout` in seconds, after which the call fails with the reason DEADLINE_EXCEEDED. A generation
    that should keep its output so far takes a `time_limit` instead.
    """

    def __repr__(self) -> str:
        """It makes no call: the model is shown once it is known."""
        info: ModelInfo | None = self.__dict__.get("_info")
        known = "" if info is None else f", {info_text(info)}"
        return f"<Client of {self._connection.address}{known}>"

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
        from ...api.threaded_generation import AsyncGenerations

        return AsyncGenerations(lambda: self._begin_all(asked, timeout))

    @takes_options(GENERATION_PARAMETERS, CHAT_PARAMETERS)
    def chat_async(self, messages: Conversation, *, timeout: float | None = None, **options: Any) -> AsyncGeneration:
        """As chat(), for `async for`."""
        return self._begin_async(request_of(chat_of(messages, options), options), timeout)

    def _begin_async(self, request: GenerationRequest, timeout: float | None) -> AsyncGeneration:
        from ...api.threaded_generation import AsyncGeneration

        return AsyncGeneration(lambda: self._begin(request, timeout))
