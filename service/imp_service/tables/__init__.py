"""The core's tables as data: fields of the sampler, options of the engine, cache types, limits and reasons."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service._core import (
    ARITHMETIC_REVISION,
    LIMITS,
    EngineField,
    KvType,
    SamplerField,
    drafters,
    engine_fields,
    kv_types,
    reasons,
    sampler_fields,
)

# Prefix of the fields of DryOptions, a message within SamplingOptions.
DRY = "dry."
_FIELDS = {field.name: field for field in sampler_fields()}

# By the field names of their messages.
SAMPLER_FIELDS: Mapping[str, SamplerField] = {n: field for n, field in _FIELDS.items() if not n.startswith(DRY)}
DRY_FIELDS: Mapping[str, SamplerField] = {n[len(DRY) :]: field for n, field in _FIELDS.items() if n.startswith(DRY)}


def sampler_field(name: str) -> SamplerField:
    """The field of this name, such as `top_k` or `dry.base`."""
    return _FIELDS[name]


# By the attributes of the core's EngineOptions.
ENGINE_FIELDS: Mapping[str, EngineField] = {field.name: field for field in engine_fields()}
# What guesses tokens ahead, by the names in settings and requests -> its meaning.
DRAFTERS: Mapping[str, str] = drafters()
# Types of cached keys and values, by name.
KV_TYPES: Mapping[str, KvType] = {kind.name: kind for kind in kv_types()}
# The engine counts the shares of a prompt that sparse prefill keeps in these parts.
KEEP_ALL = 10000
# Reason -> name of its error class.
REASONS: Mapping[str, str] = reasons()

__all__ = [
    "ARITHMETIC_REVISION",
    "DRAFTERS",
    "DRY",
    "DRY_FIELDS",
    "ENGINE_FIELDS",
    "KEEP_ALL",
    "KV_TYPES",
    "LIMITS",
    "REASONS",
    "SAMPLER_FIELDS",
    "EngineField",
    "KvType",
    "SamplerField",
    "sampler_field",
]
