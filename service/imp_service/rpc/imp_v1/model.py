"""ModelService: the model, the server, and its load."""

from __future__ import annotations

import json
import re

from google.protobuf.struct_pb2 import Struct

from imp_service import __version__
from imp_service.api.revision import API_REVISION
from imp_service.config.render import as_json
from imp_service.core.installation import revision
from imp_service.core.weights import count_parameters, weight_format
from imp_service.generation import ModelRuntime
from imp_service.generation.embedding_facts import EmbeddingFacts
from imp_service.generation.text_side import DECISIONS, INFILL, REASONING_BUDGET
from imp_service.media import FILE_FORMATS, Images
from imp_service.pb import model_pb2 as pb
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.durations import duration, seconds_of, timestamp
from imp_service.rpc.imp_v1.requests.check_request import checked, checked_without_model
from imp_service.rpc.imp_v1.write_replies import write_sampling
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState
from imp_service.serving.utilization import Utilization
from imp_service.tables import LIMITS

DEFAULT_INTERVAL = 1.0
_USER_INFO = re.compile(r"//[^/@]*@")


class ModelServicer:
    """On the event loop's thread. Only GetModelInfo needs a model."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def GetModelInfo(self, request: pb.GetModelInfoRequest, call: GrpcCall) -> pb.GetModelInfoResponse:  # noqa: N802
        served = await checked(request, call.n_request_bytes, self._state)
        model, sha256 = self._state.model, self._state.digest.sha256
        # On a worker: the first call counts parameters and hashes the tokenizer.
        return await self._state.workers.write(lambda: write_model_info(model, served, sha256))

    async def GetServerInfo(  # noqa: N802
        self, request: pb.GetServerInfoRequest, call: GrpcCall
    ) -> pb.GetServerInfoResponse:
        return write_server_info(self._state)

    async def GetLoad(self, request: pb.GetLoadRequest, call: GrpcCall) -> pb.GetLoadResponse:  # noqa: N802
        return pb.GetLoadResponse(load=write_load(self._state.utilization.snapshot()))

    async def WatchLoad(self, request: pb.WatchLoadRequest, call: GrpcCall) -> None:  # noqa: N802
        checked_without_model(request, self._state)
        interval = seconds_of(request.min_interval) if request.HasField("min_interval") else DEFAULT_INTERVAL
        async for snapshot in self._state.utilization.watch(interval):
            await call.write(pb.WatchLoadResponse(load=write_load(snapshot)))


def write_model_info(model: ModelRuntime, served: ServedModel, weights_sha256: str) -> pb.GetModelInfoResponse:
    """The model and what it can do."""
    features = served.settings.features
    info = pb.GetModelInfoResponse(
        model=served.names[0],
        aliases=served.names[1:],
        architecture=model.core.architecture,
        parameters=count_parameters(model.core),
        weight_format=weight_format(model.core),
        weights_sha256=weights_sha256,
        tokenizer_sha256=model.tokenizer.sha256,
        max_context_tokens=served.max_context,
        vocab_size=served.vocab_size,
        eos_token_ids=model.eos_tokens,
        chat_template=model.text.template_source or "",
        default_sampling=write_sampling(model.default_sampling),
        default_sampling_origins=model.default_sampler.origins,
        max_top_logprobs=LIMITS.top_logprobs,
        constraints=served.constraints,
        supports_embeddings=model.embedder.facts.embeds,
        supports_logits=features.logits and model.embedder.facts.has_head,
        num_tokens=served.n_tokens,
        drafters=model.drafters,
        supports_sparse_prefill=not model.no_sparse_prefill,
        supports_infill=INFILL in served.capabilities,
        supports_reasoning_budget=REASONING_BUDGET in served.capabilities,
        supports_decisions=DECISIONS in served.capabilities,
    )
    if model.embedder.facts.embeds or model.embedder.facts.reranks:
        info.embeddings.CopyFrom(write_embedding_support(model.embedder.facts))
    if model.images is not None:
        info.media.CopyFrom(write_media_support(model.images))
    bos = model.tokenizer.bos_id
    if bos is not None:
        info.bos_token_id = bos
    return info


def write_embedding_support(facts: EmbeddingFacts) -> pb.EmbeddingSupport:
    """The vectors and scores that the model makes."""
    return pb.EmbeddingSupport(
        dimensions=facts.dimensions,
        pooling=facts.pooling,
        max_tokens=facts.max_tokens,
        prompt_names=facts.prompt_names,
        reranks=facts.reranks,
        is_matryoshka=facts.is_matryoshka,
    )


def write_media_support(images: Images) -> pb.MediaSupport:
    """The images that the model takes."""
    limits = images.limits
    return pb.MediaSupport(
        formats=FILE_FORMATS,
        images=limits.images,
        request_bytes=limits.request_bytes,
        pixels=limits.pixels,
        side=limits.side,
        image_tokens=images.most_cells,
        needs_chat=images.needs_chat,
    )


def write_server_info(state: ServerState) -> pb.GetServerInfoResponse:
    """The server. Fields that depend on the model are absent until it is loaded."""
    settings = state.settings
    info = pb.GetServerInfoResponse(
        version=__version__,
        revision=revision(),
        instance_id=state.instance_id,
        start_time=timestamp(state.started_at),
        device=settings.device.kind if isinstance(settings.device.kind, str) else "",
        kv_block_tokens=settings.kv.block_tokens,
        max_running=settings.scheduler.max_running,
        max_waiting=settings.scheduler.max_waiting,
        config=_config(state),
        api_revision=API_REVISION,
    )
    if state.has_model:
        core = state.model.core
        info.device_names.append(core.device_name)
        info.threads = core.n_threads
        info.kv_blocks = core.n_blocks
        info.fingerprint = state.model.fingerprint.digest
        info.fingerprint_parts.update(state.model.fingerprint.parts)
    return info


def write_load(load: Utilization) -> pb.Load:
    """How busy the server is."""
    return pb.Load(
        time=timestamp(load.time),
        running=load.running,
        waiting=load.waiting,
        waiting_tokens=load.waiting_tokens,
        sessions=load.sessions,
        kv_usage=load.kv_usage,
        cache_hit_rate=load.cache_hit_rate,
        output_tokens_per_second=load.output_tokens_per_second,
        silence=duration(load.silence),
        draining=load.is_draining,
        draft_tokens_per_second=load.draft_tokens_per_second,
        accepted_draft_tokens_per_second=load.accepted_draft_tokens_per_second,
    )


def _config(state: ServerState) -> Struct:
    """Each key of the settings with its value. Secrets are in files, but the user in an address is removed."""
    values = json.loads(as_json(state.config))
    endpoint = values["tracing.endpoint"]
    if endpoint is not None:
        values["tracing.endpoint"] = _USER_INFO.sub("//", endpoint)
    config = Struct()
    config.update(values)
    return config
