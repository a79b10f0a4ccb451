"""A server of imp.v1 for the ladder: prompts of random token ids, streams of Generate."""

import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import grpc

from ...pb.inference_pb2 import GenerateRequest
from ...pb.inference_pb2_grpc import InferenceServiceStub
from ...pb.model_pb2 import (
    GetModelInfoRequest,
    GetModelInfoResponse,
    GetServerInfoRequest,
    GetServerInfoResponse,
)
from ...pb.model_pb2_grpc import ModelServiceStub
from ..failure import failure_of
from ..stream_order import StreamBroken, StreamOrder
from ..target import Target, open_async_channel
from .measure import RequestResult
from .measured_server import Ask, ServerFacts
from .plan import LadderPlan

if TYPE_CHECKING:
    from ...pb.inference_pb2_grpc import InferenceServiceAsyncStub
    from ...pb.model_pb2_grpc import ModelServiceAsyncStub

# Servers bound the streams of one connection, many of them at 100.
STREAMS_PER_CONNECTION = 64

Metadata = tuple[tuple[str, str], ...]


class ImpServer:
    """A connection for every 64 streams."""

    def __init__(
        self, facts: ServerFacts, model: GetModelInfoResponse, stubs: "Sequence[InferenceServiceAsyncStub]",
        plan: LadderPlan, metadata: Metadata,
    ) -> None:  # fmt: skip
        self.facts = facts
        self._model, self._stubs, self._metadata = model, stubs, metadata
        self._prompt_tokens = plan.prompt_tokens

    def prepare(self, stream: int, identity: tuple[int, ...], output_tokens: int) -> Ask:
        request = request_of(self._model, identity, self._prompt_tokens, output_tokens)
        stub = self._stubs[stream // STREAMS_PER_CONNECTION]
        return lambda: measure_request(stub, request, self._metadata)


@asynccontextmanager
async def open_imp_server(target: Target, plan: LadderPlan) -> AsyncIterator[ImpServer]:
    """Connects to the server. Raises CallFailure if the server's facts cannot be read."""
    async with AsyncExitStack() as stack:
        n_connections = -(-max(plan.levels) // STREAMS_PER_CONNECTION)
        channels = [
            await stack.enter_async_context(open_async_channel(target, own_connection=True))
            for _ in range(n_connections)
        ]
        model, server = await _ask(ModelServiceStub(channels[0]), target)
        stubs = [InferenceServiceStub(channel) for channel in channels]
        yield ImpServer(facts_of(target.address, model, server), model, stubs, plan, target.call_metadata)


async def _ask(stub: "ModelServiceAsyncStub", target: Target) -> tuple[GetModelInfoResponse, GetServerInfoResponse]:
    try:
        model = await stub.GetModelInfo(GetModelInfoRequest(), metadata=target.call_metadata)
        return model, await stub.GetServerInfo(GetServerInfoRequest(), metadata=target.call_metadata)
    except grpc.RpcError as error:
        raise failure_of(error, target) from None


def facts_of(address: str, model: GetModelInfoResponse, server: GetServerInfoResponse) -> ServerFacts:
    return ServerFacts(
        address=address,
        model=model.model,
        weights=f"{model.architecture}, {model.parameters / 1e6:.1f}M parameters, {model.weight_format}",
        server=f"imp {server.version}",
        device=f"{server.device}: {', '.join(server.device_names)}; {server.threads} threads",
        max_context=model.max_context_tokens,
    )


def request_of(
    model: GetModelInfoResponse, identity: tuple[int, ...], prompt_tokens: int, output_tokens: int
) -> GenerateRequest:
    draw = random.Random(",".join(map(str, identity)))
    special = {*model.eos_token_ids, model.bos_token_id} if model.HasField("bos_token_id") else {*model.eos_token_ids}
    ids = [_ordinary(draw, model.num_tokens or model.vocab_size, special) for _ in range(prompt_tokens)]
    request = GenerateRequest(token_ids={"ids": ids}, sampling={"temperature": 0.0}, stop={"ignore_eos": True})
    request.stop.max_tokens = output_tokens
    return request


def _ordinary(draw: random.Random, n_tokens: int, special: set[int]) -> int:
    while (token := draw.randrange(n_tokens)) in special:
        pass
    return token


async def measure_request(
    stub: "InferenceServiceAsyncStub", request: GenerateRequest, metadata: Metadata
) -> RequestResult:
    result, order = RequestResult(time.perf_counter()), StreamOrder()
    try:
        async for response in stub.Generate(request, metadata=metadata):
            now = time.perf_counter()
            order.check(response)
            if response.chunk.token_ids:
                result.arrivals.append((now, len(response.chunk.token_ids)))
            result.prompt_tokens = response.finished.usage.prompt_tokens or result.prompt_tokens
        order.end()
    except grpc.RpcError as error:
        result.failure = failure_of(error).reason
    except StreamBroken as error:
        result.failure = error.reason
    result.end()
    return result
