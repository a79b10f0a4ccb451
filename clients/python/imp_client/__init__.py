"""A client of imp, an LLM inference microservice.

>>> import imp_client
>>> with imp_client.connect("127.0.0.1:50051") as model:
...     model.generate("Once upon a time", max_tokens=8, temperature=0).result().text
', in a little house near the farm'

The methods, options, replies and errors are those of the library imp_service, whose guide is docs/python.md.
"""

from typing import TYPE_CHECKING, Any

from .api.chat_prompt import ChatMessage, ChatPrompt
from .api.constraint_spec import ConstraintKind, ConstraintSpec
from .api.errors import (
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
from .api.options import (
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
from .api.replies import (
    Candidate,
    Chunk,
    DrafterReport,
    Finished,
    GenerationResult,
    Reply,
    SparsePrefillReport,
    SpeculationReport,
    Started,
    StepOutput,
    StopMatch,
    Timings,
    TokenScores,
    Usage,
)
from .api.reports import LoadReport, ModelInfo
from .api.tool_calls import ToolCallDelta
from .client.connect import connect, connect_async

if TYPE_CHECKING:
    from .client.model.async_client import AsyncClient
    from .client.model.async_session import AsyncSession
    from .client.model.client import Client
    from .client.model.remote_async_generation import AsyncGeneration
    from .client.model.remote_generation import Generation
    from .client.model.remote_generations import AsyncGenerations, Generations
    from .client.model.session import Session

__all__ = [
    "AsyncClient",
    "AsyncGeneration",
    "AsyncGenerations",
    "AsyncSession",
    "CacheOptions",
    "Candidate",
    "ChatMessage",
    "ChatPrompt",
    "Chunk",
    "Client",
    "ConstraintKind",
    "ConstraintSpec",
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
    "InternalError",
    "InvalidArgument",
    "LoadReport",
    "ModelError",
    "ModelInfo",
    "OutputOptions",
    "Reply",
    "ResourceExhausted",
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
    "Violation",
    "connect",
    "connect_async",
]

# They import gRPC, which takes longer than all else: the first that is used imports it.
_LATE = {
    "AsyncClient": "async_client",
    "AsyncGeneration": "remote_async_generation",
    "AsyncGenerations": "remote_generations",
    "AsyncSession": "async_session",
    "Client": "client",
    "Generation": "remote_generation",
    "Generations": "remote_generations",
    "Session": "session",
}

if not TYPE_CHECKING:  # a type checker takes a name for wrong that is not above

    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module 'imp_client' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"imp_client.client.model.{_LATE[name]}"), name)
