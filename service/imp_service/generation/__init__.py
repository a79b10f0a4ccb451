"""Turns the engine's events into text and replies: a runtime for the service, and the Python API over it."""

from imp_service.generation.engine_session import EngineSession
from imp_service.generation.generation import Generation
from imp_service.generation.language_model import LanguageModel
from imp_service.generation.load_model import finish_load, load_model
from imp_service.generation.runtime import ModelRuntime
from imp_service.generation.session import Session

__all__ = [
    "EngineSession",
    "Generation",
    "LanguageModel",
    "ModelRuntime",
    "Session",
    "finish_load",
    "load_model",
]
