"""What the options of a request come to here: unset ones take the values of the model and of the settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

from imp_service.api.errors import invalid
from imp_service.api.options import (
    DENSE,
    GenerationRequest,
    SamplingOptions,
    SparsePrefillOptions,
    SpeculationOptions,
    StopOptions,
)
from imp_service.config.settings import Settings
from imp_service.core import CoreSampling, RunLimits, SectionBudget, make_error
from imp_service.generation.defaults import core_sampling, in_force
from imp_service.generation.limits import MOST_OUTPUTS
from imp_service.generation.text_side import TextSide

UP_TO_CONTEXT = -1
ALL_DRAFTERS = 2**32 - 1


class OptionsInForce:
    """May be used from several threads."""

    def __init__(
        self,
        settings: Settings,
        text: TextSide,
        default_sampling: SamplingOptions,
        *,
        eos_tokens: list[int],
        no_sparse_prefill: str,
        drafters: Callable[[], Sequence[str]],
    ) -> None:
        """`no_sparse_prefill` says why there is none. `drafters` names what guesses, in the order of use."""
        self._settings = settings
        self._text = text
        self._default_sampling = default_sampling
        self._eos_tokens = eos_tokens
        self._no_sparse_prefill = no_sparse_prefill
        self._drafters = drafters
        self._tokens_with = lru_cache(maxsize=64)(self._find_tokens_with)

    def sampling(self, asked: SamplingOptions) -> SamplingOptions:
        """The sampler of a request: unset fields take the model's defaults, and an unset seed is drawn."""
        return in_force(asked, self._default_sampling)

    def core_sampling(self, sampling: SamplingOptions) -> CoreSampling:
        """A sampler in force for the core."""
        return core_sampling(sampling, self._tokens_with)

    def guessing(self, options: SpeculationOptions) -> tuple[int, int]:
        """The most guesses of a generation in one step, and a bit for each drafter that may make them.

        No guesses if it does not draft.
        """
        settings = self._settings.speculation
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
        served, field = self._drafters(), "speculation.drafters"
        for name in names:
            if name not in served:
                raise make_error("FEATURE_DISABLED", f"{field}: {name} is not served here", {"feature": field})
        return sum(1 << served.index(name) for name in set(names))

    def sparse_prefill(self, options: SparsePrefillOptions) -> SparsePrefillOptions:
        """The options, with the settings' values for unset ones. Without a policy they ask for no sparse prefill."""
        if self._no_sparse_prefill:
            if options.is_wanted:
                field = f"sparse_prefill.{options.first_share if options.policy is None else 'policy'}"
                raise make_error("FEATURE_DISABLED", f"{field}: {self._no_sparse_prefill}", {"feature": field})
            return SparsePrefillOptions()
        settings = self._settings.sparse_prefill
        policy = options.policy or settings.policy
        if policy == DENSE and options == SparsePrefillOptions():
            return options
        return SparsePrefillOptions(
            policy,
            settings.keep if options.keep is None else options.keep,
            settings.backbone if options.backbone is None else options.backbone,
        )

    def limits(self, stop: StopOptions, ends: Collection[int] = (), *, must_fit: bool = True) -> RunLimits:
        """Returns the conditions that end a generation. `ends`: tokens that end a text besides the model's."""
        ceiling = self._settings.limits.max_tokens
        if ceiling and stop.max_tokens is not None and stop.max_tokens > ceiling:
            raise invalid("stop.max_tokens", f"{stop.max_tokens}, expected at most limits.max_tokens = {ceiling}")
        unset = ceiling or UP_TO_CONTEXT
        return RunLimits(
            max_outputs=unset if stop.max_tokens is None else min(stop.max_tokens, MOST_OUTPUTS),
            min_outputs=min(stop.min_tokens, MOST_OUTPUTS),
            must_fit=must_fit and stop.max_tokens is not None,
            stop_tokens=sorted(set(stop.token_ids)),
            eos_tokens=sorted({*self._eos_tokens, *ends}) if ends else self._eos_tokens,
            ends_at_eos=not stop.ignore_eos,
        )

    def most_outputs(self, stop: StopOptions, room: int) -> int:
        """The most outputs of a generation in a context with so much room."""
        ceiling = self._settings.limits.max_tokens
        return min(filter(None, (room, ceiling, stop.max_tokens))) if stop.max_tokens != 0 else 0

    def reasoning_budget(self, request: GenerationRequest, prompt_ids: Sequence[int]) -> SectionBudget:
        """The bound of the reasoning. May take long."""
        if request.max_reasoning_tokens is None:
            return SectionBudget()
        from imp_service.generation.reasoning import reasoning_budget

        return reasoning_budget(request, self._text, prompt_ids)

    def _find_tokens_with(self, text: str) -> list[int]:
        part, tokenizer = text.encode(), self._text.tokenizer
        return [token for token in range(tokenizer.vocab_size) if part in tokenizer.token_bytes(token)]
