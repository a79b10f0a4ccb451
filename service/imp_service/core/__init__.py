"""The engine in Python: loads and inspects models, sends commands to the engine and receives its events."""

from imp_service._core import (
    CacheTrial,
    DoneEvent,
    DraftedEvent,
    EngineStats,
    FailedEvent,
    FinishedEvent,
    Marker,
    ModelFile,
    ProfileEvent,
    RunLimits,
    RunReturns,
    RunTimings,
    Section,
    SectionBudget,
    StartedEvent,
    TensorInfo,
    TokenEvent,
    VectorRequest,
)
from imp_service._core import Candidate as CoreCandidate
from imp_service._core import Media as CoreMedia
from imp_service._core import MediaSpan as CoreMediaSpan
from imp_service._core import SamplingOptions as CoreSampling
from imp_service._core import TokenScores as CoreScores
from imp_service.core.checkpoint import open_file
from imp_service.core.engine_client import UNASKED, EngineClient, Event
from imp_service.core.errors import (
    ENGINE_STOPPED,
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    ModelError,
    ResourceExhausted,
    StateError,
    make_error,
)
from imp_service.core.load import LoadedModel, Progress, load_weights

__all__ = [
    "ENGINE_STOPPED",
    "UNASKED",
    "CacheTrial",
    "CoreCandidate",
    "CoreMedia",
    "CoreMediaSpan",
    "CoreSampling",
    "CoreScores",
    "DeviceError",
    "DoneEvent",
    "DraftedEvent",
    "EngineClient",
    "EngineStats",
    "Error",
    "Event",
    "FailedEvent",
    "FinishedEvent",
    "InternalError",
    "InvalidArgument",
    "LoadedModel",
    "Marker",
    "ModelError",
    "ModelFile",
    "ProfileEvent",
    "Progress",
    "ResourceExhausted",
    "RunLimits",
    "RunReturns",
    "RunTimings",
    "Section",
    "SectionBudget",
    "StartedEvent",
    "StateError",
    "TensorInfo",
    "TokenEvent",
    "VectorRequest",
    "load_weights",
    "make_error",
    "open_file",
]
