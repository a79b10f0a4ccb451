"""imp: an LLM inference microservice, as a Python library.

>>> import imp_service
>>> with imp_service.load() as model:  # the built-in model; load("model.gguf") takes a file
...     model.generate("Once upon a time", max_tokens=8, temperature=0).result().text
', in a little house near the farm'

docs/python.md is a guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from os import PathLike
    from typing import Never

    from imp_service.api.chat_prompt import ChatMessage, ChatPrompt, InfillFile, InfillPrompt, PromptParts
    from imp_service.api.constraint_spec import ConstraintKind, ConstraintSpec
    from imp_service.api.decisions import Decision, IntegerRange, LabelProbability
    from imp_service.api.errors import (
        DeviceError,
        Error,
        FieldsInvalid,
        InternalError,
        InvalidArgument,
        ModelError,
        ResourceExhausted,
        StateError,
        Violation,
    )
    from imp_service.api.image import Image
    from imp_service.api.options import (
        CacheOptions,
        DryOptions,
        GenerationRequest,
        OutputOptions,
        SamplingOptions,
        SessionStep,
        SparsePrefillOptions,
        SpeculationOptions,
        StepOptions,
        StopOptions,
    )
    from imp_service.api.replies import (
        Candidate,
        Chunk,
        DrafterReport,
        Finished,
        GenerationResult,
        SparsePrefillReport,
        SpeculationReport,
        Started,
        StepOutput,
        StopMatch,
        Timings,
        TokenScores,
        Usage,
    )
    from imp_service.api.reports import LoadReport, ModelInfo
    from imp_service.api.resume import Origin, Resume, ResumedSequence
    from imp_service.api.threaded_generation import AsyncGeneration, AsyncGenerations
    from imp_service.api.tool_calls import ToolCallDelta
    from imp_service.api.vectors import Ranking, RankResult, Vectors
    from imp_service.client.connect import connect, connect_async
    from imp_service.client.model.async_client import AsyncClient
    from imp_service.client.model.client import Client
    from imp_service.config import ConfigError
    from imp_service.generation import Generation, Generations, LanguageModel, Session

__all__ = [
    "AsyncClient",
    "AsyncGeneration",
    "AsyncGenerations",
    "CacheOptions",
    "Candidate",
    "ChatMessage",
    "ChatPrompt",
    "Chunk",
    "Client",
    "ConfigError",
    "ConstraintKind",
    "ConstraintSpec",
    "Decision",
    "DeviceError",
    "DrafterReport",
    "DryOptions",
    "Error",
    "FieldsInvalid",
    "Finished",
    "Generation",
    "GenerationRequest",
    "GenerationResult",
    "Generations",
    "Image",
    "InfillFile",
    "InfillPrompt",
    "IntegerRange",
    "InternalError",
    "InvalidArgument",
    "LabelProbability",
    "LanguageModel",
    "LoadReport",
    "ModelError",
    "ModelInfo",
    "Origin",
    "OutputOptions",
    "PromptParts",
    "RankResult",
    "Ranking",
    "ResourceExhausted",
    "Resume",
    "ResumedSequence",
    "SamplingOptions",
    "Session",
    "SessionStep",
    "SparsePrefillOptions",
    "SparsePrefillReport",
    "SpeculationOptions",
    "SpeculationReport",
    "Started",
    "StateError",
    "StepOptions",
    "StepOutput",
    "StopMatch",
    "StopOptions",
    "Timings",
    "TokenScores",
    "ToolCallDelta",
    "Usage",
    "Vectors",
    "Violation",
    "__version__",
    "connect",
    "connect_async",
    "load",
]

_PLAIN = (
    *("errors", "options", "decisions", "replies", "reports", "chat_prompt", "image", "constraint_spec", "tool_calls"),
    *("vectors", "resume"),
)
# The modules with the public names, in the order of the search. Modules of `api` do not need the core; only the last
# one imports asyncio.
_HOMES = (*(f"api.{module}" for module in _PLAIN), "config", "generation", "api.threaded_generation")
# A client needs no core either.
_CLIENT = {
    **dict.fromkeys(("connect", "connect_async"), "client.connect"),
    **{"Client": "client.model.client", "AsyncClient": "client.model.async_client"},
}


def load(
    path: str | PathLike[str] | None = None,
    *settings: str,
    config: str | None = None,
    progress: bool | None = None,
    **unknown: Never,
) -> LanguageModel:
    """Loads a model, or the built-in one.

    `path` is that of a file or a folder, the name of a downloaded model such as "Qwen3-0.6B-GGUF", or
    "hf:OWNER/NAME:TYPE", which is downloaded unless it is in the cache. `settings` are texts such as
    "device.threads=2", as the command line's --set takes them. `config` names an imp.conf. `progress` shows a download
    and a long load on stderr; None: on a terminal and in a notebook. Raises an Error if the model cannot be used, and a
    ConfigError if a setting cannot.

    >>> with imp_service.load(None, "device.threads=1", "limits.max_context=256") as model:
    ...     model.max_context
    256
    """
    if unknown:
        from imp_service.library.unknown_settings import unknown_setting

        raise unknown_setting(unknown)
    from imp_service.library.load import load_named

    return load_named(path, settings, config, progress)


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker takes a name for wrong that is not above

    def __getattr__(name: str) -> Any:
        """Imports a name when it is first used: the command line starts without them."""
        if name not in __all__:
            raise AttributeError(f"module 'imp_service' has no attribute {name!r}")
        from importlib import import_module

        homes = (import_module(f"imp_service.{home}") for home in ([_CLIENT[name]] if name in _CLIENT else _HOMES))
        return next(getattr(home, name) for home in homes if hasattr(home, name))
