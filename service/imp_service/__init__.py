"""imp: an LLM inference microservice. `load()` gives a model; see the README for the map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from os import PathLike

    from imp_service.generation import (
        CacheOptions,
        DryOptions,
        GenerationRequest,
        LanguageModel,
        OutputOptions,
        SamplingOptions,
        SessionStep,
        StepOptions,
        StopOptions,
    )
    from imp_service.text import ChatMessage, ChatPrompt, ConstraintKind, ConstraintSpec

__all__ = [
    "CacheOptions",
    "ChatMessage",
    "ChatPrompt",
    "ConstraintKind",
    "ConstraintSpec",
    "DryOptions",
    "GenerationRequest",
    "LanguageModel",
    "OutputOptions",
    "SamplingOptions",
    "SessionStep",
    "StepOptions",
    "StopOptions",
    "__version__",
    "load",
]

_TEXT = {"ChatMessage", "ChatPrompt", "ConstraintKind", "ConstraintSpec"}


def load(path: str | PathLike[str] | None = None, *settings: str, config: str | None = None) -> LanguageModel:
    """Loads a model file, or the built-in model.

    `settings` are texts such as "device.threads=2", as the command line's --set takes them; `config` names an imp.conf.
    """
    from os import fspath

    from imp_service.config import load as load_config
    from imp_service.config.select import select_model
    from imp_service.generation import load_model

    chosen = load_config(config, settings)
    if path is not None:
        chosen = select_model(chosen, fspath(path))
    return load_model(chosen)


def __getattr__(name: str) -> Any:
    """Names of the API, found when first used: the command line starts without them."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("imp_service.text" if name in _TEXT else "imp_service.generation"), name)
    raise AttributeError(f"module 'imp_service' has no attribute {name!r}")
