import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SparsePrefillPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPARSE_PREFILL_POLICY_UNSPECIFIED: _ClassVar[SparsePrefillPolicy]
    SPARSE_PREFILL_POLICY_DENSE: _ClassVar[SparsePrefillPolicy]
    SPARSE_PREFILL_POLICY_AUTO: _ClassVar[SparsePrefillPolicy]
    SPARSE_PREFILL_POLICY_SPARSE: _ClassVar[SparsePrefillPolicy]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_MAX_TOKENS: _ClassVar[FinishReason]
    FINISH_REASON_CONTEXT_FULL: _ClassVar[FinishReason]
    FINISH_REASON_TIME_LIMIT: _ClassVar[FinishReason]
    FINISH_REASON_ABORTED: _ClassVar[FinishReason]
SPARSE_PREFILL_POLICY_UNSPECIFIED: SparsePrefillPolicy
SPARSE_PREFILL_POLICY_DENSE: SparsePrefillPolicy
SPARSE_PREFILL_POLICY_AUTO: SparsePrefillPolicy
SPARSE_PREFILL_POLICY_SPARSE: SparsePrefillPolicy
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_MAX_TOKENS: FinishReason
FINISH_REASON_CONTEXT_FULL: FinishReason
FINISH_REASON_TIME_LIMIT: FinishReason
FINISH_REASON_ABORTED: FinishReason

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "content", "name", "tool_call_id", "tool_calls_json", "reasoning_content", "null_content", "parts")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_JSON_FIELD_NUMBER: _ClassVar[int]
    REASONING_CONTENT_FIELD_NUMBER: _ClassVar[int]
    NULL_CONTENT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    name: str
    tool_call_id: str
    tool_calls_json: str
    reasoning_content: str
    null_content: bool
    parts: _containers.RepeatedCompositeFieldContainer[ContentPart]
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., name: _Optional[str] = ..., tool_call_id: _Optional[str] = ..., tool_calls_json: _Optional[str] = ..., reasoning_content: _Optional[str] = ..., null_content: bool = ..., parts: _Optional[_Iterable[_Union[ContentPart, _Mapping]]] = ...) -> None: ...

class ContentPart(_message.Message):
    __slots__ = ("text", "image")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    text: str
    image: Image
    def __init__(self, text: _Optional[str] = ..., image: _Optional[_Union[Image, _Mapping]] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ("encoded", "raw", "max_tokens")
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    encoded: bytes
    raw: RawImage
    max_tokens: int
    def __init__(self, encoded: _Optional[bytes] = ..., raw: _Optional[_Union[RawImage, _Mapping]] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class RawImage(_message.Message):
    __slots__ = ("width", "height", "rgb")
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    RGB_FIELD_NUMBER: _ClassVar[int]
    width: int
    height: int
    rgb: bytes
    def __init__(self, width: _Optional[int] = ..., height: _Optional[int] = ..., rgb: _Optional[bytes] = ...) -> None: ...

class PromptParts(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[PromptPart]
    def __init__(self, parts: _Optional[_Iterable[_Union[PromptPart, _Mapping]]] = ...) -> None: ...

class PromptPart(_message.Message):
    __slots__ = ("text", "token_ids", "image")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_ids: TokenIds
    image: Image
    def __init__(self, text: _Optional[str] = ..., token_ids: _Optional[_Union[TokenIds, _Mapping]] = ..., image: _Optional[_Union[Image, _Mapping]] = ...) -> None: ...

class InfillPrompt(_message.Message):
    __slots__ = ("prefix", "suffix", "middle", "files")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    MIDDLE_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    suffix: str
    middle: str
    files: _containers.RepeatedCompositeFieldContainer[InfillFile]
    def __init__(self, prefix: _Optional[str] = ..., suffix: _Optional[str] = ..., middle: _Optional[str] = ..., files: _Optional[_Iterable[_Union[InfillFile, _Mapping]]] = ...) -> None: ...

class InfillFile(_message.Message):
    __slots__ = ("name", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class MediaSpan(_message.Message):
    __slots__ = ("first_token", "tokens", "positions", "image")
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    first_token: int
    tokens: int
    positions: int
    image: int
    def __init__(self, first_token: _Optional[int] = ..., tokens: _Optional[int] = ..., positions: _Optional[int] = ..., image: _Optional[int] = ...) -> None: ...

class ChatPrompt(_message.Message):
    __slots__ = ("messages", "tools_json", "add_generation_prompt", "continue_final_message", "template_kwargs_json", "documents_json")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_JSON_FIELD_NUMBER: _ClassVar[int]
    ADD_GENERATION_PROMPT_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_FINAL_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    tools_json: str
    add_generation_prompt: bool
    continue_final_message: bool
    template_kwargs_json: str
    documents_json: str
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., tools_json: _Optional[str] = ..., add_generation_prompt: bool = ..., continue_final_message: bool = ..., template_kwargs_json: _Optional[str] = ..., documents_json: _Optional[str] = ...) -> None: ...

class SamplingOptions(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias", "seed", "penalty_window", "typical_p", "dry")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PENALTY_WINDOW_FIELD_NUMBER: _ClassVar[int]
    TYPICAL_P_FIELD_NUMBER: _ClassVar[int]
    DRY_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    logit_bias: _containers.ScalarMap[int, float]
    seed: int
    penalty_window: int
    typical_p: float
    dry: DryOptions
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., seed: _Optional[int] = ..., penalty_window: _Optional[int] = ..., typical_p: _Optional[float] = ..., dry: _Optional[_Union[DryOptions, _Mapping]] = ...) -> None: ...

class DryOptions(_message.Message):
    __slots__ = ("multiplier", "base", "allowed_length", "window", "breakers")
    MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    BREAKERS_FIELD_NUMBER: _ClassVar[int]
    multiplier: float
    base: float
    allowed_length: int
    window: int
    breakers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, multiplier: _Optional[float] = ..., base: _Optional[float] = ..., allowed_length: _Optional[int] = ..., window: _Optional[int] = ..., breakers: _Optional[_Iterable[str]] = ...) -> None: ...

class StopOptions(_message.Message):
    __slots__ = ("max_tokens", "min_tokens", "strings", "token_ids", "ignore_eos", "include_match", "time_limit")
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_MATCH_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    min_tokens: int
    strings: _containers.RepeatedScalarFieldContainer[str]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    ignore_eos: bool
    include_match: bool
    time_limit: _duration_pb2.Duration
    def __init__(self, max_tokens: _Optional[int] = ..., min_tokens: _Optional[int] = ..., strings: _Optional[_Iterable[str]] = ..., token_ids: _Optional[_Iterable[int]] = ..., ignore_eos: bool = ..., include_match: bool = ..., time_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Constraint(_message.Message):
    __slots__ = ("json_schema", "regex", "gbnf", "choices", "json_object", "unbounded_whitespace")
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    GBNF_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    JSON_OBJECT_FIELD_NUMBER: _ClassVar[int]
    UNBOUNDED_WHITESPACE_FIELD_NUMBER: _ClassVar[int]
    json_schema: str
    regex: str
    gbnf: str
    choices: Choices
    json_object: JsonObject
    unbounded_whitespace: bool
    def __init__(self, json_schema: _Optional[str] = ..., regex: _Optional[str] = ..., gbnf: _Optional[str] = ..., choices: _Optional[_Union[Choices, _Mapping]] = ..., json_object: _Optional[_Union[JsonObject, _Mapping]] = ..., unbounded_whitespace: bool = ...) -> None: ...

class Choices(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class JsonObject(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OutputOptions(_message.Message):
    __slots__ = ("text", "logprobs", "top_logprobs", "prompt_logprobs", "prompt_token_ids", "max_chunk_tokens", "max_chunk_delay", "special_tokens", "parse")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNK_DELAY_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARSE_FIELD_NUMBER: _ClassVar[int]
    text: bool
    logprobs: bool
    top_logprobs: int
    prompt_logprobs: bool
    prompt_token_ids: bool
    max_chunk_tokens: int
    max_chunk_delay: _duration_pb2.Duration
    special_tokens: bool
    parse: bool
    def __init__(self, text: bool = ..., logprobs: bool = ..., top_logprobs: _Optional[int] = ..., prompt_logprobs: bool = ..., prompt_token_ids: bool = ..., max_chunk_tokens: _Optional[int] = ..., max_chunk_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., special_tokens: bool = ..., parse: bool = ...) -> None: ...

class CacheOptions(_message.Message):
    __slots__ = ("bypass_prefix", "salt")
    BYPASS_PREFIX_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    bypass_prefix: bool
    salt: str
    def __init__(self, bypass_prefix: bool = ..., salt: _Optional[str] = ...) -> None: ...

class SparsePrefillOptions(_message.Message):
    __slots__ = ("policy", "keep", "backbone")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    BACKBONE_FIELD_NUMBER: _ClassVar[int]
    policy: SparsePrefillPolicy
    keep: float
    backbone: float
    def __init__(self, policy: _Optional[_Union[SparsePrefillPolicy, str]] = ..., keep: _Optional[float] = ..., backbone: _Optional[float] = ...) -> None: ...

class SparsePrefillReport(_message.Message):
    __slots__ = ("effective_policy", "fallback_reason", "scored_tokens", "selected_tokens", "scoring")
    EFFECTIVE_POLICY_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_REASON_FIELD_NUMBER: _ClassVar[int]
    SCORED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SELECTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SCORING_FIELD_NUMBER: _ClassVar[int]
    effective_policy: SparsePrefillPolicy
    fallback_reason: str
    scored_tokens: int
    selected_tokens: int
    scoring: _duration_pb2.Duration
    def __init__(self, effective_policy: _Optional[_Union[SparsePrefillPolicy, str]] = ..., fallback_reason: _Optional[str] = ..., scored_tokens: _Optional[int] = ..., selected_tokens: _Optional[int] = ..., scoring: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SpeculationOptions(_message.Message):
    __slots__ = ("enabled", "max_draft_tokens", "drafters")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRAFTERS_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    max_draft_tokens: int
    drafters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, enabled: bool = ..., max_draft_tokens: _Optional[int] = ..., drafters: _Optional[_Iterable[str]] = ...) -> None: ...

class SpeculationReport(_message.Message):
    __slots__ = ("drafters", "rounds", "off_reason")
    DRAFTERS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    OFF_REASON_FIELD_NUMBER: _ClassVar[int]
    drafters: _containers.RepeatedCompositeFieldContainer[DrafterReport]
    rounds: int
    off_reason: str
    def __init__(self, drafters: _Optional[_Iterable[_Union[DrafterReport, _Mapping]]] = ..., rounds: _Optional[int] = ..., off_reason: _Optional[str] = ...) -> None: ...

class DrafterReport(_message.Message):
    __slots__ = ("name", "drafted", "accepted")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    drafted: int
    accepted: int
    def __init__(self, name: _Optional[str] = ..., drafted: _Optional[int] = ..., accepted: _Optional[int] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("token_id", "logprob")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    logprob: float
    def __init__(self, token_id: _Optional[int] = ..., logprob: _Optional[float] = ...) -> None: ...

class Candidates(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Candidate]
    def __init__(self, items: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ...) -> None: ...

class ToolCallDelta(_message.Message):
    __slots__ = ("index", "id", "name", "arguments_json")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    index: int
    id: str
    name: str
    arguments_json: str
    def __init__(self, index: _Optional[int] = ..., id: _Optional[str] = ..., name: _Optional[str] = ..., arguments_json: _Optional[str] = ...) -> None: ...

class TokenScores(_message.Message):
    __slots__ = ("token_ids", "logprobs", "candidates")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    candidates: _containers.RepeatedCompositeFieldContainer[Candidates]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., candidates: _Optional[_Iterable[_Union[Candidates, _Mapping]]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "cached_prompt_tokens", "output_tokens", "draft_tokens", "accepted_draft_tokens", "reasoning_tokens", "prompt_media_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_MEDIA_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    cached_prompt_tokens: int
    output_tokens: int
    draft_tokens: int
    accepted_draft_tokens: int
    reasoning_tokens: int
    prompt_media_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., draft_tokens: _Optional[int] = ..., accepted_draft_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., prompt_media_tokens: _Optional[int] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue", "prefill", "decode", "blocked", "encode")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    ENCODE_FIELD_NUMBER: _ClassVar[int]
    queue: _duration_pb2.Duration
    prefill: _duration_pb2.Duration
    decode: _duration_pb2.Duration
    blocked: _duration_pb2.Duration
    encode: _duration_pb2.Duration
    def __init__(self, queue: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., prefill: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., decode: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., blocked: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., encode: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class StopMatch(_message.Message):
    __slots__ = ("text", "token_id", "eos_token_id")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_id: int
    eos_token_id: int
    def __init__(self, text: _Optional[str] = ..., token_id: _Optional[int] = ..., eos_token_id: _Optional[int] = ...) -> None: ...
