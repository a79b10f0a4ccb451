"""What an unset option becomes: the settings' word, else the model file's, else off. The one table of defaults."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace

from imp_service.config.overrides import DefaultSampling
from imp_service.core import CoreSampling
from imp_service.generation.file_sampling import read_file_sampling
from imp_service.generation.options import DryOptions, SamplingOptions

# Fields of SamplingOptions -> value that changes nothing.
OFF: Mapping[str, float] = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "penalty_window": 0,
}
DRY = DryOptions(multiplier=0.0, base=1.75, allowed_length=2, window=0)
MAX_WINDOW = 2**31 - 1


def default_sampling(metadata: Mapping[str, object], wanted: DefaultSampling) -> SamplingOptions:
    """A model's own sampler, every field but the seed resolved."""
    found = read_file_sampling(metadata)
    values = {**OFF, **found.values}
    if not found.has_window and wanted.penalty_window is None:
        values["repetition_penalty"] = OFF["repetition_penalty"]
    for name in OFF:
        override = getattr(wanted, name)
        if override is not None:
            values[name] = override
    return replace(SamplingOptions(dry=DRY), **values)  # type: ignore[arg-type]


def sampling_warnings(metadata: Mapping[str, object], wanted: DefaultSampling) -> list[str]:
    """What the file recommends and cannot be used, where the settings do not speak in its place."""
    found = read_file_sampling(metadata)
    told = [text for name, text in found.warnings.items() if getattr(wanted, name) is None]
    return [*told, found.unknown] if found.unknown else told


def resolve(asked: SamplingOptions, default: SamplingOptions, tokens_with: Callable[[str], list[int]]) -> CoreSampling:
    """The sampler that runs. `tokens_with` lists the ids whose text holds a string."""

    def chosen(name: str) -> float:
        value = getattr(asked, name)
        found = getattr(default, name) if value is None else value
        assert isinstance(found, int | float)
        return found

    dry = asked.dry or DryOptions()
    breakers = sorted({token for text in dry.breakers for token in tokens_with(text)})
    return CoreSampling(
        temperature=chosen("temperature"),
        top_k=min(int(chosen("top_k")), MAX_WINDOW),
        top_p=chosen("top_p"),
        min_p=chosen("min_p"),
        typical_p=chosen("typical_p"),
        repetition_penalty=chosen("repetition_penalty"),
        frequency_penalty=chosen("frequency_penalty"),
        presence_penalty=chosen("presence_penalty"),
        penalty_window=min(int(chosen("penalty_window")), MAX_WINDOW),
        dry_multiplier=_or(dry.multiplier, DRY.multiplier),
        dry_base=_or(dry.base, DRY.base),
        dry_allowed_length=int(_or(dry.allowed_length, DRY.allowed_length)),
        dry_window=min(int(_or(dry.window, DRY.window)), MAX_WINDOW),
        dry_breakers=breakers,
        logit_bias=dict(asked.logit_bias.items()),
        seed=seed_of(asked),
    )


def with_seed(asked: SamplingOptions) -> SamplingOptions:
    """The same with a seed, drawn where there is none."""
    return asked if asked.seed is not None else replace(asked, seed=secrets.randbits(64))


def seed_of(asked: SamplingOptions) -> int:
    """The seed of options that have one."""
    assert asked.seed is not None  # narrows
    return asked.seed


def _or(value: float | None, default: float | None) -> float:
    found = default if value is None else value
    assert found is not None  # narrows
    return found
