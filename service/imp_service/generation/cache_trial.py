"""Tries types of the KV cache on a model: one that ruins the model is refused before the model serves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.config import ConfigError
from imp_service.config.derived import cache_words, one_word, types_of

if TYPE_CHECKING:
    from imp_service.core import CacheTrial, LoadedModel
    from imp_service.text import Tokenizer

TRIAL_TOKENS = 256
# Types of at least so many bits have ruined no model.
LEAST_BITS = 8
# A type beyond it ruins a model. q8_0 moves distributions by about 0.001 nats, and rounded activations by 0.003.
MOST_DIVERGENCE = 0.1  # nats
# What a refusal recommends, best first.
SAFER = ("rot8/rot4", "q8_0/rot4", "rot8", "q8_0")


def trial_text() -> str:
    """English, code, German and numbers."""
    return Path(__file__).with_name("trial_text.txt").read_text("utf-8")


def trial_tokens(loaded: LoadedModel, tokenizer: Tokenizer) -> list[int]:
    """The beginning of that text, as far as the trial and the model's context reach."""
    return tokenizer.encode(trial_text())[: min(TRIAL_TOKENS, loaded.model.max_context)]


def n_judged(n_tokens: int) -> int:
    """The places at the end of a text that are compared; the very last one predicts nothing of it."""
    return n_tokens - n_tokens // 2


def try_types(loaded: LoadedModel, tokens: list[int], kv_dtype: str) -> CacheTrial:
    """Compares the predictions at the second half of the tokens with those that an f32 cache gives.

    Layers that `kv_layers` names keep their own types.
    """
    return loaded.model.try_cache_types(tokens, n_judged=n_judged(len(tokens)), kv_dtype=kv_dtype)


def require_fit_cache(loaded: LoadedModel, tokenizer: Tokenizer) -> CacheTrial | None:
    """Raises ConfigError if the settings' cache types ruin the model. None if they need no trial."""
    settings, kv_dtypes = loaded.config.settings, loaded.model.kv_dtypes
    is_tried = settings.kv.trial and loaded.model.has_head
    if not is_tried or not any(kind.bits < LEAST_BITS for kind in types_of(kv_dtypes)):
        return None
    tokens = trial_tokens(loaded, tokenizer)
    words = str(cache_words(settings))
    found = try_types(loaded, tokens, words)
    if is_fit(found):
        return found
    if settings.model.overrides.kv_layers:
        key, advice = "model.overrides.kv_layers", "types of more bits"
    else:
        safer = next((each for each in SAFER if each != words and is_fit(try_types(loaded, tokens, each))), "bf16")
        key = "model.overrides.kv_dtype" if settings.model.overrides.kv_dtype else "kv.dtype"
        advice = f'{key} = "{safer}"'
    raise ConfigError(
        key,
        f"{one_word(kv_dtypes)} changes this model too much: on a text of {len(tokens)} tokens its predictions move by "
        f"{found.divergence:.2g} nats (limit {MOST_DIVERGENCE}), and {found.same_top:.0%} of the most likely tokens "
        f"stay. Set {advice}, or kv.trial = false",
        reason="OVERRIDE_INVALID",
    )


def is_fit(found: CacheTrial) -> bool:
    """Whether a model still predicts about the same."""
    return found.divergence <= MOST_DIVERGENCE
