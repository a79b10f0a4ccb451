"""A loaded model and its engine, for the service and the library: makes runs of requests. Never waits for a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

from imp_service.api.decisions import DecisionRequest
from imp_service.api.errors import invalid
from imp_service.api.facts import findings
from imp_service.api.options import (
    DENSE,
    GenerationRequest,
    OutputOptions,
    SamplingOptions,
    SparsePrefillOptions,
    SpeculationOptions,
    StepOptions,
    StopOptions,
    seed_of,
)
from imp_service.api.resume import Origin
from imp_service.api.rules import token_violations
from imp_service.core import CoreSampling, LoadedModel, RunLimits, SectionBudget, make_error
from imp_service.core.checkpoint import model_path
from imp_service.core.directory import shown_name
from imp_service.generation.cache_trial import require_fit_cache
from imp_service.generation.decision import DecisionPlan
from imp_service.generation.defaults import (
    core_sampling,
    default_sampling,
    in_force,
    sampling_warnings,
    without_lists,
)
from imp_service.generation.fingerprint import CPU, Fingerprint
from imp_service.generation.fold import GenerationFold
from imp_service.generation.images import ModelImages, model_images
from imp_service.generation.limits import EngineLimits, refuse_findings
from imp_service.generation.make_embedder import length_warnings, make_embedder
from imp_service.generation.output_stream import OutputStream
from imp_service.generation.prompt_images import ReadPrompt
from imp_service.generation.prompt_reader import PromptReader
from imp_service.generation.resume import (
    Seam,
    origin_of,
    request_digest,
    require_possible,
    require_server,
    seams_of,
    with_seed_of,
)
from imp_service.generation.run import GenerationPlan, returns_of
from imp_service.generation.text_side import TextSide
from imp_service.tables import KEEP_ALL
from imp_service.text import (
    StopRules,
    StopStrings,
    TemplateInvalid,
    TextStream,
    Tokenizer,
)
from imp_service.text.errors import naming_file

if TYPE_CHECKING:
    from imp_service.text import ConstraintState

Clock = Callable[[], float]
# Makes the stream of a sequence by its number.
MakeStream = Callable[[int, "ConstraintState | None"], OutputStream]
UP_TO_CONTEXT = -1
ALL_DRAFTERS = 2**32 - 1
# Counts in the core have 31 bits: far beyond any context.
MOST = 2**31 - 1


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
        if starts:
            self.start()
        self.no_sparse_prefill = loaded.no_sparse_prefill
        self._tokens_with = lru_cache(maxsize=64)(self._find_tokens_with)

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
        self.embedder.require_generation()
        resume = request.resume
        if resume is not None:
            require_server(resume, self.fingerprint.digest)
        created = int(self.wall()) if resume is None else resume.origin.created
        request = self.with_tools(request)
        hidden: list[bool] = []
        read = self.prompts.read(request.prompt, begins=True, at=created, on_hidden=lambda: hidden.append(True))
        prompt_ids, images = read.ids, read.images
        if not prompt_ids:
            raise invalid("prompt", "has no token")
        sampling = self.sampling_in_force(with_seed_of(request.sampling, resume))
        resolved = self.core_sampling(sampling)
        sequences = [self.client.next_sequence() for _ in range(request.num_sequences)]
        limits = self.limits_of(request, read.ends, must_fit=must_fit)
        max_draft_tokens, drafters = self.guessing_of(request.speculation)
        sparse = self.sparse_prefill_of(request.sparse_prefill)
        budget = self.budget_of(request, prompt_ids)
        origin = self._origin_of(request, read, sampling, sparse, created)
        seams = [] if resume is None else self._seams_of(request, read)
        told = [(list(seam.ids), seam.is_finished) for seam in seams]
        again_from = len(prompt_ids) if seams else None
        returns = returns_of(request.output, again_from=again_from)

        def submit(ticket: int) -> None:
            self.client.engine.generate(
                ticket,
                sequences[0],
                prompt_ids,
                sampling=resolved,
                priority=request.priority,
                tenant=payer or request.tenant,
                cache_scope=cache_scope(request.tenant, request.cache.salt),
                bypass_prefix=request.cache.bypass_prefix,
                limits=limits,
                returns=returns,
                budget=budget,
                constrained=request.constraint is not None,
                max_draft_tokens=max_draft_tokens,
                sparse_policy=sparse.policy,
                sparse_keep=KEEP_ALL if sparse.keep is None else max(1, round(sparse.keep * KEEP_ALL)),
                sparse_backbone=round((sparse.backbone or 0) * KEEP_ALL),
                drafters=drafters,
                siblings=sequences[1:],
                media=images.media,
                told=told,
            )

        if images.plans and must_fit:
            self.prompts.require_outputs(len(prompt_ids), request.stop.max_tokens)
        fold = self.fold(request, sampling, read, origin=origin, seams=seams)
        return GenerationPlan(
            fold,
            sequences,
            submit,
            len(prompt_ids),
            request.stop.time_limit,
            sparse_share=None if sparse.keep is None else max(sparse.keep, sparse.backbone or 0),
            hides_tools=bool(hidden),
            images=images,
        )

    def _origin_of(
        self,
        request: GenerationRequest,
        prompt: ReadPrompt,
        sampling: SamplingOptions,
        sparse: SparsePrefillOptions,
        created: int,
    ) -> Origin | None:
        """The origin of a request; None if no other one can go on with its outputs. Raises RESUME_MISMATCH."""
        why_none = self._why_no_origin(sparse)
        if why_none and request.resume is not None:
            raise invalid("resume", f"given, expected none: {why_none}")
        if why_none or not (request.resume or self.has_fingerprint):
            return None
        digest = request_digest(request, prompt, sampling, self._most_outputs(request.stop, len(prompt.ids)))
        return origin_of(request, self.fingerprint.digest, created, digest, sampling)

    def _why_no_origin(self, sparse: SparsePrefillOptions) -> str:
        settings = self.config.settings
        if settings.device.kind != CPU and not settings.model.overrides.deterministic:
            return "model.overrides.deterministic is off, so the same tokens have other bits in another batch"
        if (sparse.policy or DENSE) != DENSE:
            return "with sparse_prefill the tokens depend on the time and the cache"
        return ""

    def _seams_of(self, request: GenerationRequest, prompt: ReadPrompt) -> list[Seam]:
        """Where a resumed request goes on. Raises FieldsInvalid for outputs that it cannot have."""
        assert request.resume is not None  # narrows
        stop, seams = request.stop, seams_of(request.resume)
        ends = () if stop.ignore_eos else (*self.eos_tokens, *prompt.ends)
        most = self._most_outputs(stop, len(prompt.ids))
        require_possible(seams, most, frozenset((*stop.token_ids, *ends)), stop.min_tokens)
        return seams

    def _most_outputs(self, stop: StopOptions, n_prompt: int) -> int:
        """The most outputs of a request after so many tokens."""
        room, ceiling = self.prompts.room_after(n_prompt), self.config.settings.limits.max_tokens
        return min(filter(None, (room, ceiling, stop.max_tokens))) if stop.max_tokens != 0 else 0

    def budget_of(self, request: GenerationRequest, prompt_ids: Sequence[int]) -> SectionBudget:
        """The bound of the reasoning. May take long."""
        if request.max_reasoning_tokens is None:
            return SectionBudget()
        from imp_service.generation.reasoning import reasoning_budget

        return reasoning_budget(request, self.text, prompt_ids)

    def with_tools(self, request: GenerationRequest) -> GenerationRequest:
        """A request whose tools and choice of them are resolved; any other one as it is. May take long."""
        if not (request.tool_choice or request.output.parse) and request.parallel_tool_calls:
            return request
        from imp_service.generation.tools import resolve_tools

        return resolve_tools(request, self.text)

    def sampling_in_force(self, asked: SamplingOptions) -> SamplingOptions:
        """The sampler of a request: unset fields take the model's defaults, and an unset seed is drawn."""
        return in_force(asked, self.default_sampling)

    def core_sampling(self, sampling: SamplingOptions) -> CoreSampling:
        """A sampler in force for the core."""
        return core_sampling(sampling, self._tokens_with)

    @cached_property
    def drafters(self) -> tuple[str, ...]:
        """What guesses tokens ahead, in the order of use."""
        return tuple(self.client.engine.stats().drafters)

    def guessing_of(self, options: SpeculationOptions) -> tuple[int, int]:
        """The most guesses of a generation in one step, and a bit for each drafter that may make them.

        No guesses if it does not draft.
        """
        settings = self.config.settings.speculation
        asked = {
            "enabled": options.enabled,
            "max_draft_tokens": options.max_draft_tokens,
            "drafters": options.drafters,
        }
        if not settings.drafters and (name := next((name for name, value in asked.items() if value), None)):
            field = f"speculation.{name}"
            raise make_error("FEATURE_DISABLED", f"{field}: speculation.drafters is empty", {"feature": field})
        is_on = bool(settings.drafters) if options.enabled is None else options.enabled
        most = (options.max_draft_tokens or settings.max_draft_tokens) if is_on else 0
        return most, self._chosen(options.drafters) if options.drafters else ALL_DRAFTERS

    def _chosen(self, names: Sequence[str]) -> int:
        served, field = self.drafters, "speculation.drafters"
        for name in names:
            if name not in served:
                raise make_error("FEATURE_DISABLED", f"{field}: {name} is not served here", {"feature": field})
        return sum(1 << served.index(name) for name in set(names))

    def sparse_prefill_of(self, options: SparsePrefillOptions) -> SparsePrefillOptions:
        """The options, with the settings' values for unset ones. Without a policy they ask for no sparse prefill."""
        if self.no_sparse_prefill:
            if options.is_wanted:
                field = f"sparse_prefill.{options.first_share if options.policy is None else 'policy'}"
                raise make_error("FEATURE_DISABLED", f"{field}: {self.no_sparse_prefill}", {"feature": field})
            return SparsePrefillOptions()
        settings = self.config.settings.sparse_prefill
        policy = options.policy or settings.policy
        if policy == DENSE and options == SparsePrefillOptions():
            return options
        return SparsePrefillOptions(
            policy,
            settings.keep if options.keep is None else options.keep,
            settings.backbone if options.backbone is None else options.backbone,
        )

    def limits_of(self, request: GenerationRequest, ends: Collection[int] = (), *, must_fit: bool = True) -> RunLimits:
        """Returns the conditions that end a generation. `ends`: tokens that end a text besides the model's."""
        stop = request.stop
        ceiling = self.config.settings.limits.max_tokens
        if ceiling and stop.max_tokens is not None and stop.max_tokens > ceiling:
            raise invalid("stop.max_tokens", f"{stop.max_tokens}, expected at most limits.max_tokens = {ceiling}")
        unset = ceiling or UP_TO_CONTEXT
        return RunLimits(
            max_outputs=unset if stop.max_tokens is None else min(stop.max_tokens, MOST),
            min_outputs=min(stop.min_tokens, MOST),
            must_fit=must_fit and stop.max_tokens is not None,
            stop_tokens=sorted(set(stop.token_ids)),
            eos_tokens=sorted({*self.eos_tokens, *ends}) if ends else self.eos_tokens,
            ends_at_eos=not stop.ignore_eos,
        )

    def fold(
        self,
        request: GenerationRequest,
        sampling: SamplingOptions,
        prompt: ReadPrompt,
        *,
        origin: Origin | None = None,
        seams: Sequence[Seam] = (),
    ) -> GenerationFold:
        """Returns the fold that turns the events of a generation into replies. The last two as for GenerationFold."""
        stop, output = request.stop, request.output
        rules = StopRules(StopStrings(stop.strings), stop.min_tokens, stop.include_match)
        program = None if request.constraint is None else self.text.compile(request.constraint)
        return GenerationFold(
            sampling=without_lists(sampling),
            prompt_ids=prompt.ids,
            media=prompt.images.spans,
            include_match=stop.include_match,
            output=output,
            make_stream=self._parsed_streams(request, rules, seed_of(sampling), prompt.ids)
            if output.has_channels
            else self._plain_streams(output, rules),
            constraints=[None if program is None else program.start() for _ in range(request.num_sequences)],
            origin=origin,
            seams=seams,
        )

    def _plain_streams(self, output: OutputOptions, rules: StopRules) -> MakeStream:
        follows_text = output.text or bool(rules.strings.strings)

        def make(index: int, constraint: ConstraintState | None) -> OutputStream:
            table = self.tokenizer.table
            text = TextStream(table, rules, special_tokens=output.special_tokens) if follows_text else None
            return OutputStream(index, output, text, constraint)

        return make

    def _parsed_streams(
        self, request: GenerationRequest, rules: StopRules, seed: int, prompt_ids: list[int]
    ) -> MakeStream:
        from imp_service.generation.parsed_stream import ParsedStream
        from imp_service.generation.tools import parse_plan
        from imp_service.text.channels.channel_stream import ChannelStream

        plan = parse_plan(request, self.text, seed, prompt_ids)
        table = self.text.channel_table if plan.dialect is self.text.dialect else self.text.calls_table
        shows_special = request.output.special_tokens

        def make(index: int, constraint: ConstraintState | None) -> OutputStream:
            channels = ChannelStream(table, plan, rules, sequence=index, special_tokens=shows_special)
            return ParsedStream(index, request.output, channels, constraint)

        return make

    def _find_tokens_with(self, text: str) -> list[int]:
        part = text.encode()
        return [token for token in range(self.tokenizer.vocab_size) if part in self.tokenizer.token_bytes(token)]
