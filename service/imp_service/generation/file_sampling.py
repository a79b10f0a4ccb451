"""The sampler that a model file recommends, in llama.cpp's words; what imp cannot use of it is left out and told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from imp_service.config.toml import excerpt
from imp_service.generation.validate import SAMPLING_BOUNDS

PREFIX = "general.sampling."
# Keys by which a model file recommends a sampler -> our field.
FILE_KEYS: Mapping[str, str] = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
    "general.sampling.penalty_last_n": "penalty_window",
}
# There a number below zero takes the likeliest token, and keeps the whole vocabulary.
_AS_ZERO = ("temperature", "top_k")
_WHOLE_CONTEXT, _NO_PENALTY = -1, 0


@dataclass(frozen=True, slots=True)
class FileSampling:
    """By the names of our fields: what the file recommends, and why something of it is not used."""

    values: Mapping[str, float]
    warnings: Mapping[str, str]
    # Whether its repetition penalty is over tokens that can be told; else it holds only for a window of the settings.
    has_window: bool
    # What the file says beside our fields; empty: nothing.
    unknown: str


def read_file_sampling(metadata: Mapping[str, object]) -> FileSampling:
    """What a file's metadata says of the sampler."""
    values: dict[str, float] = {}
    warnings: dict[str, str] = {}
    for key, name in FILE_KEYS.items():
        if key not in metadata:
            continue
        said = metadata[key]
        if isinstance(said, bool) or not isinstance(said, int | float):
            warnings[name] = f"{key}: is no number; not used"
            continue
        value = _in_our_words(name, said)
        unfit = [str(violation) for violation in SAMPLING_BOUNDS[name].check(key, value)]
        if unfit:
            warnings[name] = f"{unfit[0]}; not used"
        else:
            values[name] = value
    is_unfit = "penalty_window" in warnings
    if is_unfit and "repetition_penalty" in values:
        warnings["penalty_window"] += f", nor is {PREFIX}penalty_repeat"
    # Here a window of 0 is all of the context. There it is none, so that nothing is penalised.
    has_window = not is_unfit and metadata.get(f"{PREFIX}penalty_last_n") != _NO_PENALTY
    return FileSampling(values, warnings, has_window, _unknown(metadata))


def _unknown(metadata: Mapping[str, object]) -> str:
    keys = [key for key in metadata if key.startswith(PREFIX) and key not in FILE_KEYS]
    return f"{excerpt(', '.join(keys), 300)}: imp has no such sampler; not used" if keys else ""


def _in_our_words(name: str, said: float) -> float:
    value = int(said) if SAMPLING_BOUNDS[name].whole and math.isfinite(said) and said == int(said) else said
    if name == "penalty_window" and value == _WHOLE_CONTEXT:
        return 0
    return 0 if name in _AS_ZERO and -math.inf < value < 0 else value
