"""The servicer of `vllm.grpc.engine.VllmEngine`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from smg_grpc_proto.generated import common_pb2 as common
from smg_grpc_proto.generated import vllm_engine_pb2 as vllm

from imp_service import __version__
from imp_service.generation import ModelRuntime
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.tokenizer_archive import TokenizerArchive
from imp_service.rpc.vllm.generate import VllmGenerate
from imp_service.serving.model_names import public_name
from imp_service.serving.server_state import ServerState
from imp_service.serving.utilization import Utilization

SERVICE: ServiceDescriptor = vllm.DESCRIPTOR.services_by_name["VllmEngine"]
ANSWERED = {"Generate", "Abort", "HealthCheck", "GetModelInfo", "GetServerInfo", "GetLoads", "GetTokenizer"}
# The protocol's name for every server that speaks it.
SERVER_TYPE = "vllm-grpc"
# Options that a gateway fills in if a request does not set them.
DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class VllmEngineServicer:
    """Answers every method. Runs on the event loop's thread."""

    # Embeddings, the cache's administration, and its events. A protocol of a later release may have more.
    UNIMPLEMENTED = frozenset(method.name for method in SERVICE.methods) - ANSWERED

    def __init__(self, state: ServerState, archive: TokenizerArchive) -> None:
        self._state = state
        self._archive = archive
        self._generate = VllmGenerate(state)

    async def Generate(self, request: Any, call: GrpcCall) -> None:  # noqa: N802
        await self._generate.stream(request, call)

    async def Abort(self, request: Any, call: GrpcCall) -> Any:  # noqa: N802
        """Ends requests of the caller's tenant. Others, and those that have ended, are left alone."""
        self._state.requests.abort(frozenset(request.request_ids), tenant=call.tenant)
        return vllm.AbortResponse()

    async def HealthCheck(self, request: Any, call: GrpcCall) -> Any:  # noqa: N802
        lifecycle = self._state.lifecycle
        return vllm.HealthCheckResponse(healthy=lifecycle.is_ready, message=lifecycle.phase.value)

    async def GetModelInfo(self, request: Any, call: GrpcCall) -> Any:  # noqa: N802
        return write_model_info(self._state.model)

    async def GetServerInfo(self, request: Any, call: GrpcCall) -> Any:  # noqa: N802
        state = self._state
        return vllm.GetServerInfoResponse(
            active_requests=len(state.requests),
            is_paused=state.utilization.snapshot().is_draining,
            uptime_seconds=state.wall() - state.started_at,
            server_type=SERVER_TYPE,
            data_parallel_size=1,
            block_size=state.settings.kv.block_tokens,
            max_num_seqs=state.settings.scheduler.max_running,
            constrained_decoding_start="first_token",
        )

    async def GetLoads(self, request: Any, call: GrpcCall) -> Any:  # noqa: N802
        load = self._state.utilization.snapshot()
        loads = [write_load(load, self._state)] if request.dp_rank == 0 else []
        time = datetime.fromtimestamp(load.time, UTC).isoformat()
        return vllm.GetLoadsResponse(timestamp=time, version=__version__, dp_rank_count=1, loads=loads)

    async def GetTokenizer(self, request: Any, call: GrpcCall) -> None:  # noqa: N802
        async for piece in self._archive.pieces():
            await call.write(common.GetTokenizerChunk(data=piece.content, sha256=piece.sha256))


def write_model_info(model: ModelRuntime) -> Any:
    """The model. A gateway gets its tokenizer from GetTokenizer, not from a path."""
    name = public_name(model.name)
    info = vllm.GetModelInfoResponse(
        model_path=name,
        served_model_name=name,
        is_generation=True,
        max_context_length=model.max_context,
        max_req_input_len=model.max_context,
        vocab_size=model.vocab_size,
        model_type=model.core.architecture,
        architectures=[model.core.architecture],
        eos_token_ids=model.eos_tokens,
        default_sampling_params_json=json.dumps({name: getattr(model.default_sampling, name) for name in DEFAULTS}),
    )
    if model.tokenizer.bos_id is not None:
        info.bos_token_id = model.tokenizer.bos_id
    return info


def write_load(load: Utilization, state: ServerState) -> Any:
    """How busy the server is, in the protocol's numbers of tokens."""
    most = state.settings.scheduler.max_running
    n_tokens = state.model.core.n_blocks * state.settings.kv.block_tokens if state.has_model else 0
    return vllm.SchedulerLoad(
        num_running_reqs=load.running,
        num_waiting_reqs=load.waiting,
        num_total_reqs=load.running + load.waiting,
        num_used_tokens=round(load.kv_usage * n_tokens),
        max_total_num_tokens=n_tokens,
        token_usage=load.kv_usage,
        gen_throughput=load.output_tokens_per_second,
        cache_hit_rate=load.cache_hit_rate,
        utilization=load.running / most,
        max_running_requests=most,
        num_waiting_uncached_tokens=load.waiting_tokens,
    )
