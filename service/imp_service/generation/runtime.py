"""A loaded model and its engine, for the service and the library: makes runs of requests. Never waits for a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial

from imp_service.api.decisions import DecisionRequest
from imp_service.api.facts import findings
from imp_service.api.options import GenerationRequest, SamplingOptions, StepOptions
from imp_service.api.rules import token_violations
from imp_service.core import LoadedModel
from imp_service.core.checkpoint import model_path
from imp_service.core.directory import shown_name
from imp_service.generation.cache_trial import require_fit_cache
from imp_service.generation.decision import DecisionPlan
from imp_service.generation.defaults import default_sampling, sampling_warnings
from imp_service.generation.fingerprint import Fingerprint
from imp_service.generation.images import ModelImages, model_images
from imp_service.generation.limits import EngineLimits, refuse_findings
from imp_service.generation.make_embedder import length_warnings, make_embedder
from imp_service.generation.options_in_force import OptionsInForce
from imp_service.generation.prompt_reader import PromptReader
from imp_service.generation.run import GenerationPlan
from imp_service.generation.text_side import TextSide
from imp_service.text import TemplateInvalid, Tokenizer
from imp_service.text.errors import naming_file

Clock = Callable[[], float]


def cache_scope(tenant: str, salt: str) -> str:
    """Names the requests that share prefix blocks. The length makes the names of two (tenant, salt) pairs differ."""
    return f"{len(tenant)}:{tenant}{salt}"


def _images_of(loaded: LoadedModel, tokenizer: Tokenizer) -> ModelImages | None:
    vision = loaded.model.vision
    if vision is None:
        return None
    return model_images(vision, loaded.config.settings.media, tokenizer, loaded.vision_name)


class ModelRuntime:
    """May be used from several threads."""

    def __init__(
        self,
        loaded: LoadedModel,
        clock: Clock = time.monotonic,
        *,
        wall: Clock = time.time,
        make_tokenizer: Callable[[], Tokenizer] | None = None,
        starts: bool = True,
    ) -> None:
        """`make_tokenizer` returns the file's tokenizer; without it one is built. `wall` is in seconds since 1970.

        Without `starts`, the engine begins with start(), and the caller says when.
        """
        self.clock = clock
        self.wall = wall
        self.name = loaded.name
        self.file_name = loaded.file_name
        self.config = loaded.config
        self.core = loaded.model
        self.weight_files = loaded.files
        self.drafters_text = loaded.drafters_text
        self.vocab_size: int = loaded.model.vocab_size
        self.max_context: int = loaded.model.max_context
        self.text = TextSide(loaded.metadata, loaded.config.settings, self.vocab_size, make_tokenizer)
        self.tokenizer = self.text.tokenizer
        # Ids below it are tokens. Logits may have more entries.
        self.n_tokens: int = min(loaded.model.n_tokens, self.tokenizer.vocab_size)
        self.eos_tokens: list[int] = sorted(self.tokenizer.eos_ids)
        wanted = loaded.config.settings.model.overrides.default_sampling
        self.default_sampler = default_sampling(loaded.metadata, wanted)
        self.default_sampling = self.default_sampler.options
        self.embedder = make_embedder(loaded, self.tokenizer, self._limits)
        self.warnings: tuple[str, ...] = (
            *loaded.warnings,
            *sampling_warnings(loaded.metadata, wanted),
            *length_warnings(loaded, self.embedder.facts),
        )
        # What the cache's types change; None: they were not tried.
        self.cache_trial = require_fit_cache(loaded, self.tokenizer)
        images = _images_of(loaded, self.tokenizer)
        # What reads the images of prompts, and the token in their cells; None: the model reads none.
        self.images = None if images is None else images.reader
        self.cell_token = None if images is None else images.cell_token
        self.prompts = PromptReader(
            self.text,
            n_tokens=self.n_tokens,
            max_context=self.max_context,
            images=images,
            has_vision=loaded.config.settings.model.vision,
        )
        self._loaded = loaded
        self.no_sparse_prefill = loaded.no_sparse_prefill
        # What the options of a request come to.
        self.options = OptionsInForce(
            loaded.config.settings,
            self.text,
            self.default_sampling,
            eos_tokens=self.eos_tokens,
            no_sparse_prefill=self.no_sparse_prefill,
            drafters=lambda: self.drafters,
        )
        if starts:
            self.start()

    def start(self) -> None:
        """Begins the engine. Raises the errors of its memory and threads."""
        self.client = self._loaded.start(
            self.n_tokens,
            self.tokenizer.suppressed_ids,
            self.tokenizer.special_ids,
            self.cell_token,
        )

    def close(self) -> None:
        """Stops the engine. Waiting calls get CANCELLED."""
        self.client.close()
        self.text.close()
        if self.images is not None:
            self.images.close()
        for file in self.weight_files:
            file.close()

    def prepare_chats(self) -> None:
        """Compiles the chat templates, and finds the dialect and the tokens for gaps, before a request needs them.

        A template that the settings name must compile. If one of the file's own does not, that is a warning; with
        `model.strict` it is an error.
        """
        if not self.core.has_head:
            return
        templates = self.text.templates
        try:
            with naming_file(shown_name(model_path(self.config))):
                found = templates.compile_all()
        except TemplateInvalid as error:
            if templates.is_named or self.config.settings.model.strict:
                raise
            found = [f"{error}; conversations are refused"]
        self.warnings = (*self.warnings, *found)
        _ = self.text.written_tools, self.tokenizer.infill

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """What decides tokens here. The first use generates a few tokens, and waits for them."""
        from imp_service.generation.fingerprint_parts import warmed_up

        return warmed_up(self)

    @property
    def has_fingerprint(self) -> bool:
        """Whether the fingerprint was asked for. It costs a step, so a generation alone does not ask."""
        return "fingerprint" in self.__dict__

    @cached_property
    def _limits(self) -> EngineLimits:
        return EngineLimits(self.n_tokens, self.vocab_size, self.max_context)

    def check(self, request: GenerationRequest | DecisionRequest) -> None:
        """Raises FIELD_INVALID with every wrong option of a request of the library. A server has checked its own."""
        refuse_findings(findings(request, self._limits))

    def check_step(self, tokens: Sequence[int], step: StepOptions, sampling: SamplingOptions | None = None) -> None:
        """The same for a step of a session, and for its tokens."""
        found = [*token_violations("token_ids", tokens, self.n_tokens), *findings(step, self._limits, "step")]
        refuse_findings([*found, *findings(sampling or SamplingOptions(), self._limits, "sampling")])

    def plan_decision(self, request: DecisionRequest) -> DecisionPlan:
        """A checked decision. May be called from any thread."""
        from imp_service.generation.decision_rows import most_sequences  # which knows this class

        return DecisionPlan(request, self.prompts, self.text, self.n_tokens, partial(most_sequences, self))

    def plan(
        self,
        request: GenerationRequest,
        *,
        payer: str = "",
        must_fit: bool = True,
    ) -> GenerationPlan:
        """A generation ready to be submitted, of a checked request. May be called from any thread.

        `payer` shares the engine with others; by default the tenant. `must_fit`: more output than the context has room
        for is refused. Otherwise it ends where the context does.
        """
        from imp_service.generation.plan_generation import plan_generation  # which knows this class

        return plan_generation(self, request, payer=payer, must_fit=must_fit)

    def with_tools(self, request: GenerationRequest) -> GenerationRequest:
        """A request whose tools and choice of them are resolved; any other one as it is. May take long."""
        if not (request.tool_choice or request.output.parse) and request.parallel_tool_calls:
            return request
        from imp_service.generation.tools import resolve_tools

        return resolve_tools(request, self.text)

    @cached_property
    def drafters(self) -> tuple[str, ...]:
        """What guesses tokens ahead, in the order of use."""
        return tuple(self.client.engine.stats().drafters)
