import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from . import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetModelInfoRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class GetModelInfoResponse(_message.Message):
    __slots__ = ("model", "aliases", "architecture", "parameters", "weight_format", "weights_sha256", "tokenizer_sha256", "max_context_tokens", "vocab_size", "bos_token_id", "eos_token_ids", "chat_template", "default_sampling", "max_top_logprobs", "constraints", "supports_embeddings", "supports_logits", "num_tokens", "drafters", "supports_sparse_prefill", "default_sampling_origins", "embeddings", "media", "supports_infill", "supports_reasoning_budget", "supports_decisions")
    class DefaultSamplingOriginsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_SHA256_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_SHA256_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    BOS_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MAX_TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_LOGITS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRAFTERS_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_SPARSE_PREFILL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SAMPLING_ORIGINS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_INFILL_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_REASONING_BUDGET_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_DECISIONS_FIELD_NUMBER: _ClassVar[int]
    model: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    architecture: str
    parameters: int
    weight_format: str
    weights_sha256: str
    tokenizer_sha256: str
    max_context_tokens: int
    vocab_size: int
    bos_token_id: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    chat_template: str
    default_sampling: _types_pb2.SamplingOptions
    max_top_logprobs: int
    constraints: _containers.RepeatedScalarFieldContainer[str]
    supports_embeddings: bool
    supports_logits: bool
    num_tokens: int
    drafters: _containers.RepeatedScalarFieldContainer[str]
    supports_sparse_prefill: bool
    default_sampling_origins: _containers.ScalarMap[str, str]
    embeddings: EmbeddingSupport
    media: MediaSupport
    supports_infill: bool
    supports_reasoning_budget: bool
    supports_decisions: bool
    def __init__(self, model: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., architecture: _Optional[str] = ..., parameters: _Optional[int] = ..., weight_format: _Optional[str] = ..., weights_sha256: _Optional[str] = ..., tokenizer_sha256: _Optional[str] = ..., max_context_tokens: _Optional[int] = ..., vocab_size: _Optional[int] = ..., bos_token_id: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., chat_template: _Optional[str] = ..., default_sampling: _Optional[_Union[_types_pb2.SamplingOptions, _Mapping]] = ..., max_top_logprobs: _Optional[int] = ..., constraints: _Optional[_Iterable[str]] = ..., supports_embeddings: bool = ..., supports_logits: bool = ..., num_tokens: _Optional[int] = ..., drafters: _Optional[_Iterable[str]] = ..., supports_sparse_prefill: bool = ..., default_sampling_origins: _Optional[_Mapping[str, str]] = ..., embeddings: _Optional[_Union[EmbeddingSupport, _Mapping]] = ..., media: _Optional[_Union[MediaSupport, _Mapping]] = ..., supports_infill: bool = ..., supports_reasoning_budget: bool = ..., supports_decisions: bool = ...) -> None: ...

class EmbeddingSupport(_message.Message):
    __slots__ = ("dimensions", "pooling", "max_tokens", "prompt_names", "reranks", "is_matryoshka")
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAMES_FIELD_NUMBER: _ClassVar[int]
    RERANKS_FIELD_NUMBER: _ClassVar[int]
    IS_MATRYOSHKA_FIELD_NUMBER: _ClassVar[int]
    dimensions: int
    pooling: str
    max_tokens: int
    prompt_names: _containers.RepeatedScalarFieldContainer[str]
    reranks: bool
    is_matryoshka: bool
    def __init__(self, dimensions: _Optional[int] = ..., pooling: _Optional[str] = ..., max_tokens: _Optional[int] = ..., prompt_names: _Optional[_Iterable[str]] = ..., reranks: bool = ..., is_matryoshka: bool = ...) -> None: ...

class MediaSupport(_message.Message):
    __slots__ = ("formats", "images", "request_bytes", "pixels", "side", "image_tokens", "needs_chat")
    FORMATS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    PIXELS_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_CHAT_FIELD_NUMBER: _ClassVar[int]
    formats: _containers.RepeatedScalarFieldContainer[str]
    images: int
    request_bytes: int
    pixels: int
    side: int
    image_tokens: int
    needs_chat: bool
    def __init__(self, formats: _Optional[_Iterable[str]] = ..., images: _Optional[int] = ..., request_bytes: _Optional[int] = ..., pixels: _Optional[int] = ..., side: _Optional[int] = ..., image_tokens: _Optional[int] = ..., needs_chat: bool = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("version", "revision", "instance_id", "start_time", "device", "device_names", "threads", "kv_block_tokens", "kv_blocks", "max_running", "max_waiting", "config", "api_revision", "fingerprint", "fingerprint_parts")
    class FingerprintPartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NAMES_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    KV_BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNNING_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITING_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    API_REVISION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_PARTS_FIELD_NUMBER: _ClassVar[int]
    version: str
    revision: str
    instance_id: str
    start_time: _timestamp_pb2.Timestamp
    device: str
    device_names: _containers.RepeatedScalarFieldContainer[str]
    threads: int
    kv_block_tokens: int
    kv_blocks: int
    max_running: int
    max_waiting: int
    config: _struct_pb2.Struct
    api_revision: int
    fingerprint: str
    fingerprint_parts: _containers.ScalarMap[str, str]
    def __init__(self, version: _Optional[str] = ..., revision: _Optional[str] = ..., instance_id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., device: _Optional[str] = ..., device_names: _Optional[_Iterable[str]] = ..., threads: _Optional[int] = ..., kv_block_tokens: _Optional[int] = ..., kv_blocks: _Optional[int] = ..., max_running: _Optional[int] = ..., max_waiting: _Optional[int] = ..., config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., api_revision: _Optional[int] = ..., fingerprint: _Optional[str] = ..., fingerprint_parts: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetLoadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLoadResponse(_message.Message):
    __slots__ = ("load",)
    LOAD_FIELD_NUMBER: _ClassVar[int]
    load: Load
    def __init__(self, load: _Optional[_Union[Load, _Mapping]] = ...) -> None: ...

class WatchLoadRequest(_message.Message):
    __slots__ = ("min_interval",)
    MIN_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    min_interval: _duration_pb2.Duration
    def __init__(self, min_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WatchLoadResponse(_message.Message):
    __slots__ = ("load",)
    LOAD_FIELD_NUMBER: _ClassVar[int]
    load: Load
    def __init__(self, load: _Optional[_Union[Load, _Mapping]] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("time", "running", "waiting", "waiting_tokens", "sessions", "kv_usage", "cache_hit_rate", "output_tokens_per_second", "silence", "draining", "draft_tokens_per_second", "accepted_draft_tokens_per_second")
    TIME_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WAITING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    KV_USAGE_FIELD_NUMBER: _ClassVar[int]
    CACHE_HIT_RATE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SILENCE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_DRAFT_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    running: int
    waiting: int
    waiting_tokens: int
    sessions: int
    kv_usage: float
    cache_hit_rate: float
    output_tokens_per_second: float
    silence: _duration_pb2.Duration
    draining: bool
    draft_tokens_per_second: float
    accepted_draft_tokens_per_second: float
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., waiting_tokens: _Optional[int] = ..., sessions: _Optional[int] = ..., kv_usage: _Optional[float] = ..., cache_hit_rate: _Optional[float] = ..., output_tokens_per_second: _Optional[float] = ..., silence: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., draining: bool = ..., draft_tokens_per_second: _Optional[float] = ..., accepted_draft_tokens_per_second: _Optional[float] = ...) -> None: ...
