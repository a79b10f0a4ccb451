"""What an unset option becomes: the settings' word, else the model file's, else off. The one table of defaults."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from imp_service.config.overrides import DefaultSampling
from imp_service.core import CoreSampling
from imp_service.generation.file_sampling import read_file_sampling
from imp_service.generation.options import DryOptions, SamplingOptions
from imp_service.tables import DRY_FIELDS, SAMPLER_FIELDS, SamplerField

# Fields of SamplingOptions -> value that changes nothing.
OFF: Mapping[str, float] = {name: field.default for name, field in SAMPLER_FIELDS.items()}
DRY = DryOptions(**{name: field.default for name, field in DRY_FIELDS.items()})
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

    breakers = asked.dry.breakers if asked.dry is not None else ()
    return CoreSampling(
        **dict(_chosen(asked, default, SAMPLER_FIELDS)),
        **dict(_chosen(asked.dry or DRY, DRY, DRY_FIELDS)),
        dry_breakers=sorted({token for text in breakers for token in tokens_with(text)}),
        logit_bias=dict(asked.logit_bias.items()),
        seed=seed_of(asked),
    )


def _chosen(asked: object, default: object, fields: Mapping[str, SamplerField]) -> Iterator[tuple[str, float]]:
    for name, field in fields.items():
        value = getattr(asked, name)
        found: float = getattr(default, name) if value is None else value
        yield field.keyword, min(int(found), MAX_WINDOW) if field.is_whole else found


def with_seed(asked: SamplingOptions) -> SamplingOptions:
    """The same with a seed, drawn where there is none."""
    return asked if asked.seed is not None else replace(asked, seed=secrets.randbits(64))


def seed_of(asked: SamplingOptions) -> int:
    """The seed of options that have one."""
    assert asked.seed is not None  # narrows
    return asked.seed
