"""Resolves the sampler: an unset option takes the settings' value, else the model file's, else imp's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from imp_service.api.float32 import shortest
from imp_service.api.options import DryOptions, SamplingOptions, seed_of, with_seed
from imp_service.config.overrides import DefaultSampling
from imp_service.config.toml import excerpt
from imp_service.core import CoreSampling
from imp_service.generation.limits import BOUNDS
from imp_service.tables import DRY_FIELDS, SAMPLER_FIELDS, SamplerField

# Fields of SamplingOptions -> value that changes nothing.
OFF: Mapping[str, float] = {name: field.default for name, field in SAMPLER_FIELDS.items()}
# For a model whose file recommends no draw, as nearly all GGUF files do. From the whole vocabulary at temperature 1, a
# small chat model answered 44 % of simple questions, with these values 61 % (tools/compare/sampling).
OWN: Mapping[str, float] = {"temperature": 0.8, "min_p": 0.05}
# A file that has one of these recommends a draw.
_DRAW = ("temperature", "top_k", "top_p", "min_p")
# Where a default comes from.
SETTINGS, FILE, IMP = "imp.conf", "model", "imp"
DRY = DryOptions(**{name: field.default for name, field in DRY_FIELDS.items()})
MAX_WINDOW = 2**31 - 1
PREFIX = "general.sampling."
# Keys by which a model's file or directory recommends a sampler -> our field.
FILE_KEYS: Mapping[str, str] = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
    "general.sampling.penalty_last_n": "penalty_window",
    "generation_config.temperature": "temperature",
    "generation_config.top_k": "top_k",
    "generation_config.top_p": "top_p",
    "generation_config.min_p": "min_p",
    "generation_config.repetition_penalty": "repetition_penalty",
}
# If false, sampling is greedy.
_SAMPLES = "generation_config.do_sample"
# Other keys of generation_config.json that affect sampling, with the value that has no effect.
_NEUTRAL: Mapping[str, object] = {
    "generation_config.typical_p": 1.0,
    "generation_config.epsilon_cutoff": 0.0,
    "generation_config.eta_cutoff": 0.0,
    "generation_config.top_h": None,
    "generation_config.no_repeat_ngram_size": 0,
    "generation_config.num_beams": 1,
    "generation_config.penalty_alpha": None,
    "generation_config.guidance_scale": 1.0,
    "generation_config.begin_suppress_tokens": None,
    "generation_config.forced_bos_token_id": None,
    "generation_config.forced_eos_token_id": None,
}
# In a file, a number below zero means what zero means here.
_AS_ZERO = ("temperature", "top_k")
_WHOLE_CONTEXT, _NO_PENALTY = -1, 0


@dataclass(frozen=True, slots=True)
class FileSampling:
    """The sampling that a model file recommends, and why imp ignores some of it, by the names of SamplingOptions."""

    values: Mapping[str, float]
    warnings: Mapping[str, str]
    # Without a window the file's repetition penalty is used only if the settings have one.
    has_window: bool
    # A warning about samplers that imp does not have, or an empty text.
    unknown: str


def read_file_sampling(metadata: Mapping[str, object]) -> FileSampling:
    """The sampler of a model's metadata: llama.cpp's keys of a GGUF file, or those of generation_config.json."""
    values: dict[str, float] = {}
    warnings: dict[str, str] = {}
    for key, name in FILE_KEYS.items():
        said = metadata.get(key)
        if key not in metadata or (said is None and not key.startswith(PREFIX)):
            continue
        if isinstance(said, bool) or not isinstance(said, int | float):
            warnings[name] = f"{key}: is not a number; not used"
            continue
        value = _in_our_words(name, shortest(said) if isinstance(said, float) else said)
        unfit = [str(violation) for violation in BOUNDS[name].check(key, value)]
        if unfit:
            warnings[name] = f"{unfit[0]}; not used"
        else:
            values[name] = value
    if metadata.get(_SAMPLES) is False:
        values["temperature"] = 0
    is_unfit = "penalty_window" in warnings
    if is_unfit and "repetition_penalty" in values:
        warnings["penalty_window"] += f", nor is {PREFIX}penalty_repeat"
    # In imp a window of 0 is the whole context. In a file it is no token, so that nothing is penalized.
    has_window = not is_unfit and metadata.get(f"{PREFIX}penalty_last_n") != _NO_PENALTY
    return FileSampling(values, warnings, has_window, _unknown(metadata))


def _unknown(metadata: Mapping[str, object]) -> str:
    keys = [key for key in metadata if key.startswith(PREFIX) and key not in FILE_KEYS]
    keys += [key for key, neutral in _NEUTRAL.items() if _has_effect(metadata.get(key), neutral)]
    return f"{excerpt(', '.join(keys), 300)}: imp has no such sampler; not used" if keys else ""


def _has_effect(said: object, neutral: object) -> bool:
    return said is not None and not (isinstance(said, int | float) and said == neutral)


def _in_our_words(name: str, said: float) -> float:
    value = int(said) if BOUNDS[name].whole and math.isfinite(said) and said == int(said) else said
    if name == "penalty_window" and value == _WHOLE_CONTEXT:
        return 0
    return 0 if name in _AS_ZERO and -math.inf < value < 0 else value


@dataclass(frozen=True, slots=True)
class DefaultSampler:
    """A model's default sampler. It sets every field but the seed; `origins` says where each value comes from."""

    options: SamplingOptions
    origins: Mapping[str, str]


def default_sampling(metadata: Mapping[str, object], wanted: DefaultSampling) -> DefaultSampler:
    """A model's default sampler."""
    found = read_file_sampling(metadata)
    of_file = dict(found.values)
    if not found.has_window and wanted.penalty_window is None:
        of_file.pop("repetition_penalty", None)
    of_settings = {name: value for name in OFF if (value := getattr(wanted, name)) is not None}
    own = OFF if any(name in of_file for name in _DRAW) else {**OFF, **OWN}
    values: dict[str, float] = {**own, **of_file, **of_settings}
    origins = {name: SETTINGS if name in of_settings else FILE if name in of_file else IMP for name in OFF}
    return DefaultSampler(replace(SamplingOptions(dry=DRY), **values), origins)  # type: ignore[arg-type]


def sampling_warnings(metadata: Mapping[str, object], wanted: DefaultSampling) -> list[str]:
    """Why parts of the file's sampler are not used. A part that the settings replace has no warning."""
    found = read_file_sampling(metadata)
    unused = [text for name, text in found.warnings.items() if getattr(wanted, name) is None]
    return [*unused, found.unknown] if found.unknown else unused


def in_force(asked: SamplingOptions, default: SamplingOptions) -> SamplingOptions:
    """The sampler of a request: what it asks for, the default for the rest, and a seed."""
    dry = asked.dry or DRY
    numbers = _numbers(asked, default, SAMPLER_FIELDS)
    return with_seed(replace(asked, **numbers, dry=replace(dry, **_numbers(dry, DRY, DRY_FIELDS))))


def without_lists(sampling: SamplingOptions) -> SamplingOptions:
    """The numbers of a sampler in force. Its caller knows the biases and breakers."""
    dry = sampling.dry or DRY
    return replace(sampling, logit_bias={}, dry=replace(dry, breakers=()))


def effective(asked: SamplingOptions, default: SamplingOptions) -> Mapping[str, float]:
    """The numbers of a request's sampler that have an effect."""
    return {name: value for name, value in _numbers(asked, default, SAMPLER_FIELDS).items() if value != OFF[name]}


def core_sampling(sampling: SamplingOptions, tokens_with: Callable[[str], list[int]]) -> CoreSampling:
    """A sampler in force for the core. `tokens_with` lists the tokens whose text contains a string."""
    assert sampling.dry is not None  # narrows
    return CoreSampling(
        **_core_numbers(sampling, SAMPLER_FIELDS),
        **_core_numbers(sampling.dry, DRY_FIELDS),
        dry_breakers=sorted({token for text in sampling.dry.breakers for token in tokens_with(text)}),
        logit_bias=dict(sampling.logit_bias.items()),
        seed=seed_of(sampling),
    )


def _numbers(asked: object, default: object, fields: Mapping[str, SamplerField]) -> dict[str, Any]:
    """Each number, from the default if it is not asked for, in the type of its field."""
    found = {name: getattr(asked, name) for name in fields}
    values = {name: getattr(default, name) if value is None else value for name, value in found.items()}
    return {name: int(value) if fields[name].is_whole else shortest(value) for name, value in values.items()}


def _core_numbers(options: object, fields: Mapping[str, SamplerField]) -> dict[str, Any]:
    values = {field.keyword: getattr(options, name) for name, field in fields.items()}
    return {keyword: min(value, MAX_WINDOW) if isinstance(value, int) else value for keyword, value in values.items()}
