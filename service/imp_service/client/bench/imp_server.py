"""A server of imp.v1 for the ladder: prompts of random token ids, streams of Generate."""

import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from ...pb.inference_pb2 import GenerateRequest
from ...pb.model_pb2 import (
    GetModelInfoRequest,
    GetModelInfoResponse,
    GetServerInfoRequest,
    GetServerInfoResponse,
)
from ..async_connection import AsyncConnection
from ..async_joined_replies import AsyncJoinedReplies
from ..failure import CallFailure
from ..stream_order import StreamBroken
from ..target import Target
from .measure import RequestResult
from .measured_server import Ask, ServerFacts
from .plan import LadderPlan

# Servers bound the streams of one connection, many of them at 100.
STREAMS_PER_CONNECTION = 64


class ImpServer:
    """A connection for every 64 streams."""

    def __init__(
        self, facts: ServerFacts, model: GetModelInfoResponse, connections: Sequence[AsyncConnection], plan: LadderPlan
    ) -> None:
        self.facts, self.model = facts, model
        self._connections = connections
        self._prompt_tokens = plan.prompt_tokens

    @property
    def only_makes_vectors(self) -> bool:
        """Its model generates no text."""
        return self.model.HasField("embeddings") and not self.model.supports_decisions

    def connection_of(self, stream: int) -> AsyncConnection:
        """The connection of a stream."""
        return self._connections[stream // STREAMS_PER_CONNECTION]

    def prepare(self, stream: int, identity: tuple[int, ...], output_tokens: int) -> Ask:
        request = request_of(self.model, identity, self._prompt_tokens, output_tokens)
        connection = self.connection_of(stream)
        return lambda: measure_request(connection, request)


@asynccontextmanager
async def open_imp_server(target: Target, plan: LadderPlan) -> AsyncIterator[ImpServer]:
    """Connects to the server. Raises CallFailure if the server's facts cannot be read."""
    async with AsyncExitStack() as stack:
        n_connections = -(-max(plan.levels) // STREAMS_PER_CONNECTION)
        connections = [AsyncConnection(target, own_connection=True) for _ in range(n_connections)]
        for connection in connections:
            stack.push_async_callback(connection.close)
        model, server = await _ask(connections[0])
        yield ImpServer(facts_of(target.address, model, server), model, connections, plan)


async def _ask(connection: AsyncConnection) -> tuple[GetModelInfoResponse, GetServerInfoResponse]:
    model = await connection.unary(connection.models.GetModelInfo, GetModelInfoRequest())
    return model, await connection.unary(connection.models.GetServerInfo, GetServerInfoRequest())


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
    ids = random_ids(model, identity, prompt_tokens)
    request = GenerateRequest(token_ids={"ids": ids}, sampling={"temperature": 0.0}, stop={"ignore_eos": True})
    request.stop.max_tokens = output_tokens
    return request


def random_ids(model: GetModelInfoResponse, identity: tuple[int, ...], n: int) -> list[int]:
    """Ordinary tokens, others for each identity."""
    draw = random.Random(",".join(map(str, identity)))
    special = {*model.eos_token_ids, model.bos_token_id} if model.HasField("bos_token_id") else {*model.eos_token_ids}
    return [_ordinary(draw, model.num_tokens or model.vocab_size, special) for _ in range(n)]


def _ordinary(draw: random.Random, n_tokens: int, special: set[int]) -> int:
    while (token := draw.randrange(n_tokens)) in special:
        pass
    return token


async def measure_request(connection: AsyncConnection, request: GenerateRequest) -> RequestResult:
    result = RequestResult(time.perf_counter())
    replies = AsyncJoinedReplies(connection, request)
    try:
        async for response in replies:
            now = time.perf_counter()
            if response.chunk.token_ids:
                result.arrivals.append((now, len(response.chunk.token_ids)))
            result.prompt_tokens = response.finished.usage.prompt_tokens or result.prompt_tokens
    except (CallFailure, StreamBroken) as error:
        result.failure = error.reason
    result.n_resumed = replies.n_resumed
    result.end()
    return result
