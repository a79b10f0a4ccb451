"""A server's reports about its model and its load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from .options import SamplingOptions
from .shown import model_text


@dataclass(frozen=True, slots=True)
class EmbeddingSupport:
    """The vectors and scores that a model makes of texts."""

    dimensions: int  # of a vector; 0 where it only scores
    pooling: str  # "mean", "cls", "last"; "rank" or "yes_no" where it scores
    max_tokens: int  # of an input, with the special ones
    prompt_names: Sequence[str] = ()
    reranks: bool = False
    is_matryoshka: bool = False  # the first components are a vector too


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """`imp.v1.GetModelInfoResponse`."""

    name: str
    aliases: Sequence[str]
    architecture: str
    parameters: int
    weight_format: str
    weights_sha256: str  # empty while the server still computes it
    tokenizer_sha256: str
    max_context: int
    num_tokens: int
    vocab_size: int
    bos_token_id: int | None
    eos_token_ids: Sequence[int]
    chat_template: str
    default_sampling: SamplingOptions
    default_sampling_origins: Mapping[str, str]  # "imp.conf", "model" (its file) or "imp", by option
    max_top_logprobs: int
    constraints: Sequence[str]
    supports_embeddings: bool
    supports_logits: bool
    drafters: Sequence[str] = ()  # what guesses tokens ahead, in the order of use
    supports_sparse_prefill: bool = False
    embeddings: EmbeddingSupport | None = None  # None: it makes neither vectors nor scores
    supports_infill: bool = False
    supports_reasoning_budget: bool = False
    supports_decisions: bool = False


def info_text(info: ModelInfo) -> str:
    """The model's name and size."""
    return model_text(info.name, info.parameters, info.weight_format, info.max_context)


@dataclass(frozen=True, slots=True)
class LoadReport:
    """`imp.v1.Load`: how busy a server is."""

    time: datetime
    running: int
    waiting: int
    waiting_tokens: int
    sessions: int
    kv_usage: float  # a share, in [0, 1]
    cache_hit_rate: float  # a share, in [0, 1]
    output_tokens_per_second: float
    silence: float  # seconds since the last decode step while there was work
    draining: bool
    draft_tokens_per_second: float = 0.0  # guesses that the model verified
    accepted_draft_tokens_per_second: float = 0.0  # of them, the right ones
