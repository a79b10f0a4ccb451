"""Turns the engine's events into text and replies: a runtime for the service, and the Python API over it."""

from imp_service.api.options import (
    CacheOptions,
    DryOptions,
    GenerationRequest,
    OutputOptions,
    SamplingOptions,
    SessionStep,
    SpeculationOptions,
    StepOptions,
    StopOptions,
)
from imp_service.api.replies import (
    Candidate,
    Chunk,
    Finished,
    GenerationResult,
    Started,
    StepOutput,
    StopMatch,
    Timings,
    TokenScores,
    Usage,
)
from imp_service.api.tool_calls import ToolCallDelta
from imp_service.generation.engine_session import EngineSession
from imp_service.generation.generation import Generation
from imp_service.generation.language_model import LanguageModel
from imp_service.generation.load_model import finish_load, load_model
from imp_service.generation.runtime import ModelRuntime
from imp_service.generation.session import Session

__all__ = [
    "CacheOptions",
    "Candidate",
    "Chunk",
    "DryOptions",
    "EngineSession",
    "Finished",
    "Generation",
    "GenerationRequest",
    "GenerationResult",
    "LanguageModel",
    "ModelRuntime",
    "OutputOptions",
    "SamplingOptions",
    "Session",
    "SessionStep",
    "SpeculationOptions",
    "Started",
    "StepOptions",
    "StepOutput",
    "StopMatch",
    "StopOptions",
    "Timings",
    "TokenScores",
    "ToolCallDelta",
    "Usage",
    "finish_load",
    "load_model",
]
