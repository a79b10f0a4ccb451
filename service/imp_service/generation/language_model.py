"""A loaded model as the Python API has it: generations, conversations, sessions, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from imp_service.api.arguments import (
    CHAT_PARAMETERS,
    GENERATION_PARAMETERS,
    SAMPLING_PARAMETERS,
    Conversation,
    chat_of,
    request_of,
    sampling_of,
    text_of,
    token_ids_of,
)
from imp_service.api.decision_arguments import DECISION_PARAMETERS, Numbers, Question, Questions, decisions_of
from imp_service.api.decisions import Decision
from imp_service.api.errors import refuse
from imp_service.api.keywords import parameters_of, take, takes_options
from imp_service.api.options import DEFAULT_CACHE, CacheOptions, GenerationRequest, Prompt, SamplingOptions, SessionStep
from imp_service.api.replies import StepOutput
from imp_service.api.rules import token_violations
from imp_service.api.several import Prompts, naming_prompt, requests_of
from imp_service.api.shown import model_text
from imp_service.api.vector_arguments import (
    EMBED_PARAMETERS,
    RERANK_PARAMETERS,
    Texts,
    embed_request_of,
    rerank_request_of,
)
from imp_service.api.vectors import Ranking, Vectors
from imp_service.core import Error
from imp_service.core.weights import count_parameters, weight_format
from imp_service.generation.decide import decide_all, decide_one
from imp_service.generation.engine_session import EngineSession
from imp_service.generation.errors import translating_text_errors
from imp_service.generation.generation import Generation, Generations
from imp_service.generation.runtime import ModelRuntime
from imp_service.generation.session import Session, decode_together
from imp_service.generation.vector_calls import embed_call, in_thread, rerank_call

if TYPE_CHECKING:
    from imp_service.api.threaded_generation import AsyncGeneration, AsyncGenerations


class LanguageModel:
    """One model, ready to generate. `imp_service.load` makes one; close() or a `with` block ends it.

    Any number of threads may use it at once. A generation or a session belongs to one thread at a time.

    Options are keywords: `help(model.generate)` lists them all. Each is a field of an option class: `temperature=0` is
    `sampling=SamplingOptions(temperature=0)`. Names differ where the class says what the field is of: `stop` and
    `stop_token_ids` are the `strings` and `token_ids` of `StopOptions`, `cache_salt` is the `salt` of `CacheOptions`.
    `json_schema`, `regex`, `gbnf`, `choices` and `json_object` are the kinds of a `ConstraintSpec`.
    """

    def __init__(self, runtime: ModelRuntime) -> None:
        self._runtime = runtime

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        model = self._runtime
        if model.client.is_closed:
            return f"<LanguageModel {self.name}, closed>"
        shown = model_text(self.name, count_parameters(model.core), weight_format(model.core), self.max_context)
        device = model.config.settings.device
        return f"<LanguageModel {shown}, {device.kind}, {device.threads} thread{'' if device.threads == 1 else 's'}>"

    @property
    def name(self) -> str:
        """The name that the model's file or the settings give it."""
        return self._runtime.name

    @property
    def max_context(self) -> int:
        """The most tokens of a prompt and its output together."""
        return self._runtime.max_context

    @property
    def num_tokens(self) -> int:
        """Every id below it is a token."""
        return self._runtime.n_tokens

    @property
    def vocab_size(self) -> int:
        """The number of logits. Those from `num_tokens` on belong to no token."""
        return self._runtime.vocab_size

    @property
    def eos_token_ids(self) -> list[int]:
        """The tokens that end a text."""
        return list(self._runtime.eos_tokens)

    @property
    def default_sampling(self) -> SamplingOptions:
        """The values of sampling options that a caller does not set."""
        return self._runtime.default_sampling

    @property
    def fingerprint(self) -> str:
        """A digest of what decides tokens here. Models with equal ones go on with each other's generations.

        The first use generates a few tokens. From then on each `Started` has an origin.
        """
        return self._runtime.fingerprint.digest

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the model from its load."""
        return self._runtime.warnings

    def close(self) -> None:
        """Frees the model. Calls that still wait for it raise an error with the reason CANCELLED."""
        self._runtime.close()

    @overload
    def generate(self, prompt: Prompt | GenerationRequest, **options: Any) -> Generation: ...
    @overload
    def generate(self, prompt: Prompts, **options: Any) -> Generations: ...
    @translating_text_errors()
    @takes_options(GENERATION_PARAMETERS)
    def generate(self, prompt: Prompt | GenerationRequest | Prompts, **options: Any) -> Generation | Generations:
        """Continues a text, token ids or a conversation. Iterate over the replies, or ask for the result.

        A list of texts, or of lists of ids, is several prompts, which run in one batch: ask for the results.

        >>> for reply in model.generate("Once upon a time", max_tokens=8, temperature=0):
        ...     print(reply.text, end="")
        , in a little house near the farm
        >>> model.generate("Once upon a time", stop=["."], temperature=1, seed=7).result().finish_reason
        'stop'
        >>> model.generate("Is the sky blue? ", choices=["yes", "no"]).result().text in ("yes", "no")
        True
        """
        asked = requests_of(prompt, options)
        return self._begin_all(asked) if isinstance(asked, list) else self._begin(asked)

    @translating_text_errors()
    @takes_options(GENERATION_PARAMETERS, CHAT_PARAMETERS)
    def chat(self, messages: Conversation, **options: Any) -> Generation:
        """The next message of a conversation, or the answer to a question. A message is a `ChatMessage`, or a dict.

        `tools`, `template_kwargs` and a message's `tool_calls` are Python values or JSON.

        >>> messages = [{"role": "user", "content": "What is 2 plus 2?"}]
        >>> model.chat(messages, max_tokens=20, temperature=0).result().text
        '2 plus 2 is 4.'
        >>> model.chat("What is 2 plus 2?", max_tokens=20, temperature=0).result().text
        '2 plus 2 is 4.'
        """
        return self._begin(request_of(chat_of(messages, options), options))

    @takes_options(EMBED_PARAMETERS)
    def embed(self, texts: Texts, **options: Any) -> Vectors:
        """The vectors of texts, or of lists of ids. `numpy.asarray` makes an array of them, one row for each text."""
        return embed_call(self._runtime, embed_request_of(texts, options)).result()

    @takes_options(RERANK_PARAMETERS)
    def rerank(self, query: str, documents: Sequence[str], **options: Any) -> Ranking:
        """The documents by how well they fit the query: each has its index in the list and a score, best first."""
        return rerank_call(self._runtime, rerank_request_of(query, documents, options)).result()

    @takes_options(EMBED_PARAMETERS)
    async def embed_async(self, texts: Texts, **options: Any) -> Vectors:
        """As embed(), for a task of asyncio. Cancelling the task ends the call."""
        return await in_thread(lambda: embed_call(self._runtime, embed_request_of(texts, options)))

    @takes_options(RERANK_PARAMETERS)
    async def rerank_async(self, query: str, documents: Sequence[str], **options: Any) -> Ranking:
        """As rerank(), for a task of asyncio. Cancelling the task ends the call."""
        return await in_thread(lambda: rerank_call(self._runtime, rerank_request_of(query, documents, options)))

    @overload
    def generate_async(self, prompt: Prompt | GenerationRequest, **options: Any) -> AsyncGeneration: ...
    @overload
    def generate_async(self, prompt: Prompts, **options: Any) -> AsyncGenerations: ...
    @translating_text_errors()
    @takes_options(GENERATION_PARAMETERS)
    def generate_async(
        self, prompt: Prompt | GenerationRequest | Prompts, **options: Any
    ) -> AsyncGeneration | AsyncGenerations:
        """As generate(), for `async for`.

        >>> asyncio.run(model.generate_async("Once upon a time", max_tokens=8, temperature=0).result()).text
        ', in a little house near the farm'
        """
        asked = requests_of(prompt, options)
        if not isinstance(asked, list):
            return self._begin_async(asked)
        from imp_service.api.threaded_generation import AsyncGenerations

        return AsyncGenerations(lambda: self._begin_all(asked))

    @translating_text_errors()
    @takes_options(GENERATION_PARAMETERS, CHAT_PARAMETERS)
    def chat_async(self, messages: Conversation, **options: Any) -> AsyncGeneration:
        """As chat(), for `async for`.

        >>> asyncio.run(model.chat_async([{"role": "user", "content": "Hello"}], max_tokens=8).result()).finish_reason
        'max_tokens'
        """
        return self._begin_async(request_of(chat_of(messages, options), options))

    @overload
    def decide(
        self, question: Question, labels: Sequence[str] = (), *, range: Numbers | None = None, **options: Any
    ) -> Decision: ...
    @overload
    def decide(
        self, question: Questions, labels: Sequence[str] = (), *, range: Numbers | None = None, **options: Any
    ) -> list[Decision]: ...
    @takes_options(DECISION_PARAMETERS)
    def decide(
        self,
        question: Question | Questions,
        labels: Sequence[str] = (),
        *,
        range: Numbers | None = None,
        **options: Any,
    ) -> Decision | list[Decision]:
        """The most likely of some labels as the output, and the probability of each. Nothing is generated.

        The question is a text that a label continues, token ids, or a list of messages, to which a label is the answer.
        A list of texts, of lists of ids or of conversations is several questions, which run in one batch. `range` is
        (low, high) or (low, high, step): the labels are these whole numbers.

        >>> decision = model.decide("Is the sky blue? ", ["yes", "no"])
        >>> decision.label in ("yes", "no"), sum(decision.probabilities.values())
        (True, 1.0)
        >>> model.decide([{"role": "user", "content": "What is 2 plus 2?"}], range=(0, 9)).mean < 9
        True
        """
        requests, are_several = decisions_of(question, labels, range, options)
        return decide_all(self._runtime, requests) if are_several else decide_one(self._runtime, requests[0])

    @translating_text_errors()
    @takes_options(SAMPLING_PARAMETERS, parameters_of(DEFAULT_CACHE))
    def open(
        self,
        sampling: SamplingOptions | None = None,
        *,
        tenant: str = "",
        priority: int = 0,
        cache: CacheOptions = DEFAULT_CACHE,
        **options: Any,
    ) -> Session:
        """An empty session, with the sampler of its steps.

        >>> with model.open(temperature=0, seed=7) as session:
        ...     session.position, session.seed
        (0, 7)
        """
        asked, cache = sampling_of(sampling, options), take(cache, options)
        self._runtime.check(
            GenerationRequest("", asked or SamplingOptions(), cache=cache, priority=priority, tenant=tenant)
        )
        return Session(EngineSession.open(self._runtime, asked, tenant=tenant, priority=priority, cache=cache))

    @translating_text_errors()
    def decode_step(self, steps: Sequence[SessionStep]) -> list[StepOutput | Error]:
        """Steps several sessions at once: one output or one error for each. An error leaves the other sessions whole.

        >>> sessions = [model.open(temperature=0) for _ in range(2)]
        >>> outputs = [session.prefill("Once upon a time") for session in sessions]
        >>> [output.text for output in model.decode_step([SessionStep(session) for session in sessions])]
        [' in', ' in']
        """
        return decode_together(steps)

    @translating_text_errors()
    def tokenize(self, text: str, *, add_special_tokens: bool = True, parse_special_tokens: bool = False) -> list[int]:
        """The ids of a text. Special tokens that are spelled in it are text, unless they are to be parsed.

        >>> model.detokenize(model.tokenize("Once upon a time"))
        'Once upon a time'
        """
        return self._runtime.tokenizer.encode(
            text_of(text), add_special_tokens=add_special_tokens, parse_special_tokens=parse_special_tokens
        )

    @translating_text_errors()
    def detokenize(self, token_ids: Sequence[int], *, special_tokens: bool = False) -> str:
        """The text of ids. It leaves out special tokens, unless they are asked for."""
        refuse(token_violations("token_ids", token_ids_of(token_ids), self._runtime.tokenizer.vocab_size))
        return self._runtime.tokenizer.decode(token_ids, special_tokens=special_tokens)

    @translating_text_errors()
    def _begin(self, request: GenerationRequest) -> Generation:
        self._runtime.check(request)
        return Generation(self._runtime, self._runtime.plan(request))

    @translating_text_errors()
    def _begin_all(self, requests: Sequence[GenerationRequest]) -> Generations:
        plans = []
        for i, request in enumerate(requests):
            with naming_prompt(i), translating_text_errors():
                self._runtime.check(request)
                plans.append(self._runtime.plan(request))
        return Generations(self._runtime, plans)

    def _begin_async(self, request: GenerationRequest) -> AsyncGeneration:
        from imp_service.api.threaded_generation import AsyncGeneration

        return AsyncGeneration(lambda: self._begin(request))
