"""The settings' overrides of a model as the core takes them."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service import _core
from imp_service.config import AUTO, ConfigError, Settings
from imp_service.config.derived import cache_words
from imp_service.config.overrides import ModelOverrides, RopeScaling
from imp_service.config.settings import devices_of_tests
from imp_service.config.toml import write_key
from imp_service.core.errors import Error

# The pooling of a reranker that writes its judgement as a token.
YES_NO = "yes_no"
# Devices whose kernels have the same names.
_ALIKE = {"cpu": ("cpu",), "cuda": ("cuda", *devices_of_tests())}


def core_overrides(settings: Settings) -> _core.ModelOverrides:
    """The overrides of [model.overrides], and of the sections that apply to every model."""
    wanted: ModelOverrides = settings.model.overrides
    overrides = _core.ModelOverrides()
    overrides.max_context = wanted.max_context
    overrides.context_limit = None if wanted.max_context else settings.limits.max_context or None
    overrides.untrained_context = wanted.untrained_context
    # The head of the model answers yes or no: the core makes no vector.
    overrides.pooling = None if wanted.pooling == YES_NO else wanted.pooling
    words = cache_words(settings)
    overrides.kv_dtype = None if words is AUTO else words
    overrides.kv_layers = list(wanted.kv_layers.items())
    overrides.rope_theta = wanted.rope_theta
    overrides.rope_scaling = _rope_scaling(wanted.rope_scaling)
    overrides.gemm = list(wanted.gemm.items())
    overrides.deterministic = wanted.deterministic
    overrides.unvalidated_kernels = wanted.unvalidated_kernels
    overrides.eos_token_ids = _list(wanted.eos_token_ids)
    overrides.suppress_tokens = _list(wanted.suppress_tokens)
    return overrides


def require_kernels(gemm: Mapping[str, str], device: str) -> None:
    """Raises OVERRIDE_INVALID for a kernel of another device. The core itself refuses unknown kernels."""
    for pattern, kernel in gemm.items():
        if other := other_device(kernel, device):
            where = f"gemm.{write_key(pattern)} = {kernel}"  # the same words as the core's
            raise ConfigError(where, not_of(other, device), reason="OVERRIDE_INVALID")


def other_device(kernel: str, device: str) -> str | None:
    """The device of a kernel if it is another one, else None."""
    for other, kinds in _ALIKE.items():
        if device not in kinds and kernel in _kernels_of(kinds) and kernel not in _kernels_of((device,)):
            return other
    return None


def not_of(other: str, device: str) -> str:
    """The message about such a kernel."""
    return f"is a kernel of {other}, and the device is {device}"


def known_kernels(device: str) -> set[str]:
    """The names of a device's kernels; none if imp was built without such devices."""
    return _kernels_of(next((kinds for kinds in _ALIKE.values() if device in kinds), (device,)))


def _kernels_of(kinds: tuple[str, ...]) -> set[str]:
    """The names of the first of these kinds that imp was built with."""
    for kind in kinds:
        try:
            return {row["name"] for row in _core.kernels(kind)}
        except Error:
            continue
    return set()


def _list(tokens: tuple[int, ...] | None) -> list[int] | None:
    return None if tokens is None else list(tokens)


def _rope_scaling(wanted: RopeScaling) -> _core.RopeScaling:
    return _core.RopeScaling(
        type=wanted.type,
        factor=wanted.factor,
        original_context=wanted.original_context,
        attention_factor=wanted.attention_factor,
        beta_fast=wanted.beta_fast,
        beta_slow=wanted.beta_slow,
        low_freq_factor=wanted.low_freq_factor,
        high_freq_factor=wanted.high_freq_factor,
    )
