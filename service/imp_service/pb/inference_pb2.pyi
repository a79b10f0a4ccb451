import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from . import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Truncation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRUNCATION_UNSPECIFIED: _ClassVar[Truncation]
    TRUNCATION_NONE: _ClassVar[Truncation]
    TRUNCATION_END: _ClassVar[Truncation]
    TRUNCATION_START: _ClassVar[Truncation]
TRUNCATION_UNSPECIFIED: Truncation
TRUNCATION_NONE: Truncation
TRUNCATION_END: Truncation
TRUNCATION_START: Truncation

class GenerateRequest(_message.Message):
    __slots__ = ("request_id", "model", "text", "token_ids", "chat", "session_id", "parts", "infill", "sampling", "stop", "constraint", "output", "cache", "num_sequences", "sparse_prefill", "speculation", "tool_choice", "max_reasoning_tokens", "parallel_tool_calls", "resume")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    INFILL_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    NUM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SPARSE_PREFILL_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    MAX_REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    text: str
    token_ids: _types_pb2.TokenIds
    chat: _types_pb2.ChatPrompt
    session_id: str
    parts: _types_pb2.PromptParts
    infill: _types_pb2.InfillPrompt
    sampling: _types_pb2.SamplingOptions
    stop: _types_pb2.StopOptions
    constraint: _types_pb2.Constraint
    output: _types_pb2.OutputOptions
    cache: _types_pb2.CacheOptions
    num_sequences: int
    sparse_prefill: _types_pb2.SparsePrefillOptions
    speculation: _types_pb2.SpeculationOptions
    tool_choice: str
    max_reasoning_tokens: int
    parallel_tool_calls: bool
    resume: Resume
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., text: _Optional[str] = ..., token_ids: _Optional[_Union[_types_pb2.TokenIds, _Mapping]] = ..., chat: _Optional[_Union[_types_pb2.ChatPrompt, _Mapping]] = ..., session_id: _Optional[str] = ..., parts: _Optional[_Union[_types_pb2.PromptParts, _Mapping]] = ..., infill: _Optional[_Union[_types_pb2.InfillPrompt, _Mapping]] = ..., sampling: _Optional[_Union[_types_pb2.SamplingOptions, _Mapping]] = ..., stop: _Optional[_Union[_types_pb2.StopOptions, _Mapping]] = ..., constraint: _Optional[_Union[_types_pb2.Constraint, _Mapping]] = ..., output: _Optional[_Union[_types_pb2.OutputOptions, _Mapping]] = ..., cache: _Optional[_Union[_types_pb2.CacheOptions, _Mapping]] = ..., num_sequences: _Optional[int] = ..., sparse_prefill: _Optional[_Union[_types_pb2.SparsePrefillOptions, _Mapping]] = ..., speculation: _Optional[_Union[_types_pb2.SpeculationOptions, _Mapping]] = ..., tool_choice: _Optional[str] = ..., max_reasoning_tokens: _Optional[int] = ..., parallel_tool_calls: bool = ..., resume: _Optional[_Union[Resume, _Mapping]] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("origin", "sequences")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    sequences: _containers.RepeatedCompositeFieldContainer[ResumedSequence]
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., sequences: _Optional[_Iterable[_Union[ResumedSequence, _Mapping]]] = ...) -> None: ...

class ResumedSequence(_message.Message):
    __slots__ = ("token_ids", "finished")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    finished: bool
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., finished: bool = ...) -> None: ...

class Origin(_message.Message):
    __slots__ = ("server", "request", "seed", "created")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    server: str
    request: str
    seed: int
    created: int
    def __init__(self, server: _Optional[str] = ..., request: _Optional[str] = ..., seed: _Optional[int] = ..., created: _Optional[int] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("started", "chunk", "finished")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    started: GenerationStarted
    chunk: GenerationChunk
    finished: GenerationFinished
    def __init__(self, started: _Optional[_Union[GenerationStarted, _Mapping]] = ..., chunk: _Optional[_Union[GenerationChunk, _Mapping]] = ..., finished: _Optional[_Union[GenerationFinished, _Mapping]] = ...) -> None: ...

class GenerationStarted(_message.Message):
    __slots__ = ("request_id", "model", "seed", "prompt_tokens", "cached_prompt_tokens", "prompt", "sparse_prefill", "sampling", "origin", "resumed_tokens", "media")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    SPARSE_PREFILL_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    RESUMED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    seed: int
    prompt_tokens: int
    cached_prompt_tokens: int
    prompt: _types_pb2.TokenScores
    sparse_prefill: _types_pb2.SparsePrefillReport
    sampling: _types_pb2.SamplingOptions
    origin: Origin
    resumed_tokens: int
    media: _containers.RepeatedCompositeFieldContainer[_types_pb2.MediaSpan]
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., seed: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., prompt: _Optional[_Union[_types_pb2.TokenScores, _Mapping]] = ..., sparse_prefill: _Optional[_Union[_types_pb2.SparsePrefillReport, _Mapping]] = ..., sampling: _Optional[_Union[_types_pb2.SamplingOptions, _Mapping]] = ..., origin: _Optional[_Union[Origin, _Mapping]] = ..., resumed_tokens: _Optional[int] = ..., media: _Optional[_Iterable[_Union[_types_pb2.MediaSpan, _Mapping]]] = ...) -> None: ...

class GenerationChunk(_message.Message):
    __slots__ = ("index", "first_token", "token_ids", "text", "logprobs", "candidates", "reasoning", "tool_calls")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    index: int
    first_token: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    text: str
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    candidates: _containers.RepeatedCompositeFieldContainer[_types_pb2.Candidates]
    reasoning: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.ToolCallDelta]
    def __init__(self, index: _Optional[int] = ..., first_token: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., text: _Optional[str] = ..., logprobs: _Optional[_Iterable[float]] = ..., candidates: _Optional[_Iterable[_Union[_types_pb2.Candidates, _Mapping]]] = ..., reasoning: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[_types_pb2.ToolCallDelta, _Mapping]]] = ...) -> None: ...

class GenerationFinished(_message.Message):
    __slots__ = ("index", "reason", "match", "text", "usage", "timings", "reasoning", "tool_calls", "position", "speculation")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    index: int
    reason: _types_pb2.FinishReason
    match: _types_pb2.StopMatch
    text: str
    usage: _types_pb2.Usage
    timings: _types_pb2.Timings
    reasoning: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.ToolCallDelta]
    position: int
    speculation: _types_pb2.SpeculationReport
    def __init__(self, index: _Optional[int] = ..., reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ..., match: _Optional[_Union[_types_pb2.StopMatch, _Mapping]] = ..., text: _Optional[str] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., timings: _Optional[_Union[_types_pb2.Timings, _Mapping]] = ..., reasoning: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[_types_pb2.ToolCallDelta, _Mapping]]] = ..., position: _Optional[int] = ..., speculation: _Optional[_Union[_types_pb2.SpeculationReport, _Mapping]] = ...) -> None: ...

class GenerateUnaryRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: GenerateRequest
    def __init__(self, request: _Optional[_Union[GenerateRequest, _Mapping]] = ...) -> None: ...

class GenerateUnaryResponse(_message.Message):
    __slots__ = ("started", "sequences", "usage", "timings", "speculation")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    started: GenerationStarted
    sequences: _containers.RepeatedCompositeFieldContainer[GeneratedSequence]
    usage: _types_pb2.Usage
    timings: _types_pb2.Timings
    speculation: _types_pb2.SpeculationReport
    def __init__(self, started: _Optional[_Union[GenerationStarted, _Mapping]] = ..., sequences: _Optional[_Iterable[_Union[GeneratedSequence, _Mapping]]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., timings: _Optional[_Union[_types_pb2.Timings, _Mapping]] = ..., speculation: _Optional[_Union[_types_pb2.SpeculationReport, _Mapping]] = ...) -> None: ...

class GeneratedSequence(_message.Message):
    __slots__ = ("output", "reason", "match", "position")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    output: GenerationChunk
    reason: _types_pb2.FinishReason
    match: _types_pb2.StopMatch
    position: int
    def __init__(self, output: _Optional[_Union[GenerationChunk, _Mapping]] = ..., reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ..., match: _Optional[_Union[_types_pb2.StopMatch, _Mapping]] = ..., position: _Optional[int] = ...) -> None: ...

class StepOptions(_message.Message):
    __slots__ = ("sample", "top_logprobs", "logits", "scores", "allowed_token_mask")
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    LOGITS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_TOKEN_MASK_FIELD_NUMBER: _ClassVar[int]
    sample: bool
    top_logprobs: int
    logits: bool
    scores: bool
    allowed_token_mask: bytes
    def __init__(self, sample: bool = ..., top_logprobs: _Optional[int] = ..., logits: bool = ..., scores: bool = ..., allowed_token_mask: _Optional[bytes] = ...) -> None: ...

class PrefillRequest(_message.Message):
    __slots__ = ("session_id", "model", "token_ids", "text", "chat", "parts", "infill", "position", "sampling", "step", "ttl", "cache", "base", "resume", "resumable")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    INFILL_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    model: str
    token_ids: _types_pb2.TokenIds
    text: str
    chat: _types_pb2.ChatPrompt
    parts: _types_pb2.PromptParts
    infill: _types_pb2.InfillPrompt
    position: int
    sampling: _types_pb2.SamplingOptions
    step: StepOptions
    ttl: _duration_pb2.Duration
    cache: _types_pb2.CacheOptions
    base: int
    resume: SessionResume
    resumable: bool
    def __init__(self, session_id: _Optional[str] = ..., model: _Optional[str] = ..., token_ids: _Optional[_Union[_types_pb2.TokenIds, _Mapping]] = ..., text: _Optional[str] = ..., chat: _Optional[_Union[_types_pb2.ChatPrompt, _Mapping]] = ..., parts: _Optional[_Union[_types_pb2.PromptParts, _Mapping]] = ..., infill: _Optional[_Union[_types_pb2.InfillPrompt, _Mapping]] = ..., position: _Optional[int] = ..., sampling: _Optional[_Union[_types_pb2.SamplingOptions, _Mapping]] = ..., step: _Optional[_Union[StepOptions, _Mapping]] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cache: _Optional[_Union[_types_pb2.CacheOptions, _Mapping]] = ..., base: _Optional[int] = ..., resume: _Optional[_Union[SessionResume, _Mapping]] = ..., resumable: bool = ...) -> None: ...

class SessionResume(_message.Message):
    __slots__ = ("origin", "text_from", "token_id", "taken")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FROM_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    text_from: int
    token_id: int
    taken: bool
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., text_from: _Optional[int] = ..., token_id: _Optional[int] = ..., taken: bool = ...) -> None: ...

class PrefillResponse(_message.Message):
    __slots__ = ("session_id", "cached_tokens", "output", "timings", "base", "media", "origin", "prompt_token_ids")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    cached_tokens: int
    output: StepOutput
    timings: _types_pb2.Timings
    base: int
    media: _containers.RepeatedCompositeFieldContainer[_types_pb2.MediaSpan]
    origin: Origin
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session_id: _Optional[str] = ..., cached_tokens: _Optional[int] = ..., output: _Optional[_Union[StepOutput, _Mapping]] = ..., timings: _Optional[_Union[_types_pb2.Timings, _Mapping]] = ..., base: _Optional[int] = ..., media: _Optional[_Iterable[_Union[_types_pb2.MediaSpan, _Mapping]]] = ..., origin: _Optional[_Union[Origin, _Mapping]] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class StepOutput(_message.Message):
    __slots__ = ("position", "token_id", "logprob", "text", "eos", "candidates", "logits", "scores")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    EOS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    LOGITS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    position: int
    token_id: int
    logprob: float
    text: str
    eos: bool
    candidates: _types_pb2.Candidates
    logits: bytes
    scores: _types_pb2.TokenScores
    def __init__(self, position: _Optional[int] = ..., token_id: _Optional[int] = ..., logprob: _Optional[float] = ..., text: _Optional[str] = ..., eos: bool = ..., candidates: _Optional[_Union[_types_pb2.Candidates, _Mapping]] = ..., logits: _Optional[bytes] = ..., scores: _Optional[_Union[_types_pb2.TokenScores, _Mapping]] = ...) -> None: ...

class DecodeStepRequest(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[SessionStep]
    def __init__(self, steps: _Optional[_Iterable[_Union[SessionStep, _Mapping]]] = ...) -> None: ...

class SessionStep(_message.Message):
    __slots__ = ("session_id", "token_ids", "position", "sampling", "step")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    position: int
    sampling: _types_pb2.SamplingOptions
    step: StepOptions
    def __init__(self, session_id: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., position: _Optional[int] = ..., sampling: _Optional[_Union[_types_pb2.SamplingOptions, _Mapping]] = ..., step: _Optional[_Union[StepOptions, _Mapping]] = ...) -> None: ...

class DecodeStepResponse(_message.Message):
    __slots__ = ("results", "forward")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SessionStepResult]
    forward: _duration_pb2.Duration
    def __init__(self, results: _Optional[_Iterable[_Union[SessionStepResult, _Mapping]]] = ..., forward: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SessionStepResult(_message.Message):
    __slots__ = ("session_id", "output", "error")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    output: StepOutput
    error: StepError
    def __init__(self, session_id: _Optional[str] = ..., output: _Optional[_Union[StepOutput, _Mapping]] = ..., error: _Optional[_Union[StepError, _Mapping]] = ...) -> None: ...

class StepError(_message.Message):
    __slots__ = ("code", "reason", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class DecodeStreamRequest(_message.Message):
    __slots__ = ("prefill", "step", "release")
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    prefill: PrefillRequest
    step: DecodeStepRequest
    release: ReleaseSessionRequest
    def __init__(self, prefill: _Optional[_Union[PrefillRequest, _Mapping]] = ..., step: _Optional[_Union[DecodeStepRequest, _Mapping]] = ..., release: _Optional[_Union[ReleaseSessionRequest, _Mapping]] = ...) -> None: ...

class DecodeStreamResponse(_message.Message):
    __slots__ = ("prefill", "step", "release", "error")
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    prefill: PrefillResponse
    step: DecodeStepResponse
    release: ReleaseSessionResponse
    error: StepError
    def __init__(self, prefill: _Optional[_Union[PrefillResponse, _Mapping]] = ..., step: _Optional[_Union[DecodeStepResponse, _Mapping]] = ..., release: _Optional[_Union[ReleaseSessionResponse, _Mapping]] = ..., error: _Optional[_Union[StepError, _Mapping]] = ...) -> None: ...

class ForkSessionRequest(_message.Message):
    __slots__ = ("session_id", "position", "new_session_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NEW_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    position: int
    new_session_id: str
    def __init__(self, session_id: _Optional[str] = ..., position: _Optional[int] = ..., new_session_id: _Optional[str] = ...) -> None: ...

class ForkSessionResponse(_message.Message):
    __slots__ = ("session_id", "position")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    position: int
    def __init__(self, session_id: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class TruncateSessionRequest(_message.Message):
    __slots__ = ("session_id", "position")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    position: int
    def __init__(self, session_id: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class TruncateSessionResponse(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: int
    def __init__(self, position: _Optional[int] = ...) -> None: ...

class ReleaseSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class ReleaseSessionResponse(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: bool
    def __init__(self, released: bool = ...) -> None: ...

class EmbedRequest(_message.Message):
    __slots__ = ("model", "texts", "token_ids", "normalize", "dimensions", "truncate", "prompt_name", "instruction", "max_tokens", "add_special_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    token_ids: _containers.RepeatedCompositeFieldContainer[_types_pb2.TokenIds]
    normalize: bool
    dimensions: int
    truncate: Truncation
    prompt_name: str
    instruction: str
    max_tokens: int
    add_special_tokens: bool
    def __init__(self, model: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., token_ids: _Optional[_Iterable[_Union[_types_pb2.TokenIds, _Mapping]]] = ..., normalize: bool = ..., dimensions: _Optional[int] = ..., truncate: _Optional[_Union[Truncation, str]] = ..., prompt_name: _Optional[str] = ..., instruction: _Optional[str] = ..., max_tokens: _Optional[int] = ..., add_special_tokens: bool = ...) -> None: ...

class EmbedResponse(_message.Message):
    __slots__ = ("embeddings", "usage", "truncated", "timings")
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    embeddings: _containers.RepeatedCompositeFieldContainer[Embedding]
    usage: _types_pb2.Usage
    truncated: _containers.RepeatedScalarFieldContainer[int]
    timings: _types_pb2.Timings
    def __init__(self, embeddings: _Optional[_Iterable[_Union[Embedding, _Mapping]]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., truncated: _Optional[_Iterable[int]] = ..., timings: _Optional[_Union[_types_pb2.Timings, _Mapping]] = ...) -> None: ...

class Embedding(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class DecideRequest(_message.Message):
    __slots__ = ("request_id", "model", "text", "token_ids", "chat", "parts", "labels", "range", "cache")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    text: str
    token_ids: _types_pb2.TokenIds
    chat: _types_pb2.ChatPrompt
    parts: _types_pb2.PromptParts
    labels: _containers.RepeatedScalarFieldContainer[str]
    range: IntegerRange
    cache: _types_pb2.CacheOptions
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., text: _Optional[str] = ..., token_ids: _Optional[_Union[_types_pb2.TokenIds, _Mapping]] = ..., chat: _Optional[_Union[_types_pb2.ChatPrompt, _Mapping]] = ..., parts: _Optional[_Union[_types_pb2.PromptParts, _Mapping]] = ..., labels: _Optional[_Iterable[str]] = ..., range: _Optional[_Union[IntegerRange, _Mapping]] = ..., cache: _Optional[_Union[_types_pb2.CacheOptions, _Mapping]] = ...) -> None: ...

class IntegerRange(_message.Message):
    __slots__ = ("low", "high", "step")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    low: int
    high: int
    step: int
    def __init__(self, low: _Optional[int] = ..., high: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class DecideResponse(_message.Message):
    __slots__ = ("request_id", "model", "label", "labels", "mass", "confidence", "mean", "usage", "evaluations")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MASS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    label: str
    labels: _containers.RepeatedCompositeFieldContainer[LabelProbability]
    mass: float
    confidence: float
    mean: float
    usage: _types_pb2.Usage
    evaluations: int
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., label: _Optional[str] = ..., labels: _Optional[_Iterable[_Union[LabelProbability, _Mapping]]] = ..., mass: _Optional[float] = ..., confidence: _Optional[float] = ..., mean: _Optional[float] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., evaluations: _Optional[int] = ...) -> None: ...

class LabelProbability(_message.Message):
    __slots__ = ("label", "probability", "token_ids")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    label: str
    probability: float
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, label: _Optional[str] = ..., probability: _Optional[float] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class RerankRequest(_message.Message):
    __slots__ = ("model", "query", "documents", "top_n", "truncate", "instruction", "raw_scores", "max_tokens", "max_document_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    TOP_N_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    RAW_SCORES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_DOCUMENT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    query: str
    documents: _containers.RepeatedScalarFieldContainer[str]
    top_n: int
    truncate: Truncation
    instruction: str
    raw_scores: bool
    max_tokens: int
    max_document_tokens: int
    def __init__(self, model: _Optional[str] = ..., query: _Optional[str] = ..., documents: _Optional[_Iterable[str]] = ..., top_n: _Optional[int] = ..., truncate: _Optional[_Union[Truncation, str]] = ..., instruction: _Optional[str] = ..., raw_scores: bool = ..., max_tokens: _Optional[int] = ..., max_document_tokens: _Optional[int] = ...) -> None: ...

class RerankResponse(_message.Message):
    __slots__ = ("results", "usage", "truncated", "timings")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RerankResult]
    usage: _types_pb2.Usage
    truncated: _containers.RepeatedScalarFieldContainer[int]
    timings: _types_pb2.Timings
    def __init__(self, results: _Optional[_Iterable[_Union[RerankResult, _Mapping]]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., truncated: _Optional[_Iterable[int]] = ..., timings: _Optional[_Union[_types_pb2.Timings, _Mapping]] = ...) -> None: ...

class RerankResult(_message.Message):
    __slots__ = ("index", "score")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    index: int
    score: float
    def __init__(self, index: _Optional[int] = ..., score: _Optional[float] = ...) -> None: ...
