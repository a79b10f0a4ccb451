"""Protocols of other servers that the data listeners speak as well: `listen.compat`."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.descriptor import ServiceDescriptor

from imp_service.config import ConfigError
from imp_service.rpc.tokenizer_archive import TokenizerArchive
from imp_service.serving.server_state import ServerState

EXTRA = "pip install smg-grpc-proto, the extra `smg`"


def compat_servicers(state: ServerState, archive: TokenizerArchive) -> Mapping[ServiceDescriptor, object]:
    """The servicers of `listen.compat`. Raises ConfigError if a protocol's package is not installed."""
    if "vllm" not in state.settings.listen.compat:
        return {}
    try:
        from imp_service.rpc.vllm.engine import SERVICE, VllmEngineServicer
    except ImportError as error:
        message = f'has "vllm", but {error.name or "smg_grpc_proto"} is not installed; {EXTRA}'
        raise ConfigError("listen.compat", message) from None
    return {SERVICE: VllmEngineServicer(state, archive)}
