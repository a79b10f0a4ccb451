"""Turns the engine's events into text and replies: a runtime for the service, and the Python API over it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imp_service.generation.engine_session import EngineSession
    from imp_service.generation.generation import Generation, Generations
    from imp_service.generation.language_model import LanguageModel
    from imp_service.generation.loading import finish_load, load_model
    from imp_service.generation.runtime import ModelRuntime
    from imp_service.generation.session import Session

__all__ = [
    "EngineSession",
    "Generation",
    "Generations",
    "LanguageModel",
    "ModelRuntime",
    "Session",
    "finish_load",
    "load_model",
]

# A load begins before most of these modules are imported, and goes on meanwhile.
_MODULES = {
    "EngineSession": "engine_session",
    "Generation": "generation",
    "Generations": "generation",
    "LanguageModel": "language_model",
    "ModelRuntime": "runtime",
    "Session": "session",
    "finish_load": "loading",
    "load_model": "loading",
}


def __getattr__(name: str) -> Any:
    """Names whose modules are imported when they are first used."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"imp_service.generation.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'imp_service.generation' has no attribute {name!r}")
