"""The keys of [model.overrides], which replace facts of the model's file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from typing import Any

from imp_service.config.cache_types import CacheTypes
from imp_service.config.kinds import Boolean, Enumeration, Integer, ListOf, Real, String
from imp_service.config.quantities import Count
from imp_service.config.table import key, named, section
from imp_service.tables import SAMPLER_FIELDS, SamplerField

_TOKEN = Integer(0, 4 * 1024**2 - 1)
KV_DTYPE = CacheTypes()


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Each field replaces one fact of the file; the string "none" in place of the section turns scaling off."""

    type: str | None = key(
        Enumeration("none", "linear", "yarn", "llama3"), None, "method of scaling positions", example="yarn"
    )
    factor: float | None = key(Real(1.0, 1e6), None, "scaling factor", example=4.0)
    original_context: int | None = key(
        Count(1, 16 * 1024**2), None, "context the model was trained with", example=32768
    )
    attention_factor: float | None = key(
        Real(1e-6, 1e6), None, "yarn: further factor of the rotated vectors", example=1.0
    )
    beta_fast: float | None = key(
        Real(1e-6, 1e6), None, "yarn: no scaling above this number of rotations", example=32.0
    )
    beta_slow: float | None = key(
        Real(1e-6, 1e6), None, "yarn: full scaling below this number of rotations", example=1.0
    )
    low_freq_factor: float | None = key(
        Real(1e-6, 1e6), None, "llama3: full scaling below this number of rotations", example=1.0
    )
    high_freq_factor: float | None = key(
        Real(1e-6, 1e6), None, "llama3: no scaling above this number of rotations", example=4.0
    )


def _sampler_key(field: SamplerField) -> float | None:
    if field.is_whole:
        most = 2**32 - 1 if math.isinf(field.high) else int(field.high)  # as on the wire
        return key(Integer(int(field.low), most), None, field.meaning, example=int(field.example))
    return key(Real(field.low, field.high, above=field.above), None, field.meaning, example=field.example)


_SamplerKeys: Any = make_dataclass(
    "_SamplerKeys",
    [(name, float | None, _sampler_key(field)) for name, field in SAMPLER_FIELDS.items()],
    frozen=True,
    slots=True,
)


class DefaultSampling(_SamplerKeys):  # type: ignore[misc]
    """Values for fields that a request leaves unset. The core defines the fields."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ModelOverrides:
    max_context: int | None = key(Count(1, 16 * 1024**2), None, "longest context in tokens", example=32768)
    untrained_context: bool = key(Boolean(), False, "allow a max_context for which the model was not trained")
    rope_theta: float | None = key(Real(1e-3, 1e15), None, "base of the rotary wavelengths", example=10000.0)
    kv_dtype: str | None = key(
        KV_DTYPE,
        None,
        "type of this model's cached keys and values; unset: kv.dtype",
        example="f16",
    )
    kv_layers: Mapping[str, str] = named(
        KV_DTYPE,
        "types of some layers of the cache; -1 is the last one; narrower ranges count",
        name=String("a range of layers", pattern="[-0-9]{1,16}"),
        example=("0-1", "q8_0"),
    )
    suppress_tokens: tuple[int, ...] | None = key(ListOf(_TOKEN, 4096), None, "ids never produced", example=[3])
    eos_token_ids: tuple[int, ...] | None = key(
        ListOf(_TOKEN, 256), None, "ids that end a text; they replace those of the file", example=[0, 2]
    )
    pre_tokenizer: str | None = key(
        String("the name of a rule", pattern="[a-z0-9._-]{1,64}"),
        None,
        "pre-tokenization rule; replaces the file's tokenizer.ggml.pre",
        example="llama-bpe",
    )
    chat_template: str | None = key(String("a path"), None, "file with a Jinja template", example="chat.jinja")
    chat_template_name: str | None = key(
        String("a template's name", pattern="[A-Za-z0-9._-]{1,64}"),
        None,
        "which of the file's chat templates; unset: tool_use if a chat has tools",
        example="tool_use",
    )
    dialect: str | None = key(
        String("a dialect", pattern="[a-z0-9-]{1,32}"),
        None,
        "how the model writes reasoning and tool calls; unset: found from its chat template",
        example="hermes",
    )
    pooling: str | None = key(
        Enumeration("mean", "cls", "last", "rank", "yes_no"),
        None,
        "how a text becomes a vector, or a pair of texts a score; unset: as the files say",
        example="mean",
    )
    matryoshka: bool | None = key(
        Boolean(),
        None,
        "whether the beginnings of its vectors are vectors too; unset: as the files say",
        example=True,
    )
    rope_scaling: RopeScaling = section(
        RopeScaling, "scaling of rotary positions for a longer context than trained", shorthand="type"
    )
    gemm: Mapping[str, str] = named(
        String("the name of a kernel", pattern="[a-z0-9_]{1,64}"),
        "kernel for a weight type, or for the tensors that a pattern matches",
        name=String("a weight type or a tensor pattern", most_bytes=256),
        example=("q4_k", "reference"),
    )
    deterministic: bool = key(Boolean(), False, "equal bits for any batch, slower on a GPU; the CPU always has them")
    unvalidated_kernels: bool = key(Boolean(), False, "allow kernels that are not validated on hardware", shipped=False)
    default_sampling: DefaultSampling = section(DefaultSampling, "values for fields that a request leaves unset")
