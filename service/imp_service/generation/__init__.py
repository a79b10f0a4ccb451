"""Folds the engine's events into text and replies: the Python API over models, generations and sessions."""

from imp_service.generation.generation import Generation
from imp_service.generation.language_model import LanguageModel, SessionStep
from imp_service.generation.load_model import finish_load, load_model
from imp_service.generation.options import (
    CacheOptions,
    DryOptions,
    GenerationRequest,
    OutputOptions,
    SamplingOptions,
    StepOptions,
    StopOptions,
)
from imp_service.generation.replies import (
    Chunk,
    Finished,
    Started,
    StepOutput,
    StopMatch,
    Timings,
    Usage,
)
from imp_service.generation.scores import Candidate, TokenScores
from imp_service.generation.session import Session

__all__ = [
    "CacheOptions",
    "Candidate",
    "Chunk",
    "DryOptions",
    "Finished",
    "Generation",
    "GenerationRequest",
    "LanguageModel",
    "OutputOptions",
    "SamplingOptions",
    "Session",
    "SessionStep",
    "Started",
    "StepOptions",
    "StepOutput",
    "StopMatch",
    "StopOptions",
    "Timings",
    "TokenScores",
    "Usage",
    "finish_load",
    "load_model",
]
