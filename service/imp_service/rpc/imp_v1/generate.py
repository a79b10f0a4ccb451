"""Generate and GenerateUnary: the same messages, sent as they come or merged into one."""

from __future__ import annotations

from dataclasses import replace

from imp_service.api.options import ChunkOptions, GenerationRequest
from imp_service.api.replies import Chunk, Finished, Reply, Started
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.encoded import Encoded
from imp_service.rpc.imp_v1.requests.check_request import checked_generation
from imp_service.rpc.imp_v1.requests.read_options import read_options
from imp_service.rpc.imp_v1.requests.reply_size import check_generation_size, most_chunk_tokens
from imp_service.rpc.imp_v1.whole_generation import WholeGeneration
from imp_service.rpc.imp_v1.write_replies import encode_started, write_reply
from imp_service.serving.generation_runner import (
    WHOLE,
    ContinuedSession,
    Delivery,
    GenerationRunner,
    Wanted,
    is_large,
    refuse_late,
)
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState


class Generate:
    """Runs generations of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._generations = GenerationRunner(state)

    async def stream(self, request: pb.GenerateRequest, call: GrpcCall) -> None:
        """Sends every reply as a message."""
        async with self._generations.running(await self._wanted(request, call), call) as generation:
            while (reply := await generation.next_reply()) is not None:
                content = await self._encoded(reply, request, call)
                n_tokens = len(reply.token_ids) if isinstance(reply, Chunk) else 0
                # While the caller does not read, only the bytes are kept: the objects take ten times as much memory.
                del reply
                await call.write(content)
                call.n_sent_tokens += n_tokens

    async def unary(self, request: pb.GenerateUnaryRequest, call: GrpcCall) -> pb.GenerateUnaryResponse:
        """All messages merged into one."""
        wanted = await self._wanted(request.request, call, unary=request)
        async with self._generations.running(wanted, call) as generation:
            whole = WholeGeneration(generation.n_sequences)
            while (reply := await generation.next_reply()) is not None:
                await self._add(reply, request.request, call, whole)
        return whole.response()

    async def _encoded(self, reply: Reply, request: pb.GenerateRequest, call: GrpcCall) -> Encoded:
        if not is_large(reply):
            return Encoded(self._message(reply, request, call).SerializeToString())
        if isinstance(reply, Started):
            started, name = reply, self._state.model.name
            return await self._state.workers.write(lambda: encode_started(started, call.request_id, name))
        return await self._state.workers.write(lambda: Encoded(self._message(reply, request, call).SerializeToString()))

    async def _add(self, reply: Reply, request: pb.GenerateRequest, call: GrpcCall, whole: WholeGeneration) -> None:
        if is_large(reply):
            await self._state.workers.write(lambda: whole.add(self._message(reply, request, call)))
        else:
            whole.add(self._message(reply, request, call))

    def _message(self, reply: Reply, request: pb.GenerateRequest, call: GrpcCall) -> pb.GenerateResponse:
        if isinstance(reply, Finished) and reply.reason == "cancelled":
            # The caller did not cancel it: its session was released.
            raise self._state.sessions.why_missing(call.tenant, request.session_id)
        message = write_reply(reply, call.request_id, self._state.model.name)
        if isinstance(reply, Finished) and request.WhichOneof("prompt") == "session_id":
            held = self._state.sessions.find(call.tenant, request.session_id)
            if held is not None:
                message.finished.position = held.position
        return message

    async def _wanted(
        self, request: pb.GenerateRequest, call: GrpcCall, unary: pb.GenerateUnaryRequest | None = None
    ) -> Wanted:
        """The generation of a request, which is checked."""
        state, began, is_unary = self._state, self._state.clock(), unary is not None
        refuse_late(call)
        generation, served = await checked_generation(unary or request, call.n_request_bytes, state)
        generation = replace(generation, priority=call.priority, tenant=call.tenant)
        call.request_id = request.request_id or call.request_id
        return Wanted(
            request=generation,
            delivery=WHOLE if is_unary else delivery(request, generation, served),
            began=began,
            check_size=lambda n_prompt: check_generation_size(generation, n_prompt, served, is_unary=is_unary),
            session=continued_session(request),
            rename=(lambda path: f"request.{path}") if is_unary else None,
        )


def delivery(request: pb.GenerateRequest, generation: GenerationRequest, served: ServedModel) -> Delivery:
    """How a stream's output is cut into messages. Each must be small enough to be sent."""
    asked, chunk = read_options(ChunkOptions, request.output), served.settings.chunk
    max_tokens = chunk.max_tokens if asked.max_chunk_tokens is None else asked.max_chunk_tokens
    max_delay = chunk.max_delay.total_seconds() if asked.max_chunk_delay is None else asked.max_chunk_delay
    return Delivery(most_chunk_tokens(generation, max_tokens, served), max_delay)


def continued_session(request: pb.GenerateRequest) -> ContinuedSession | None:
    """The session of a generation that continues one."""
    if request.WhichOneof("prompt") != "session_id":
        return None
    return ContinuedSession(request.session_id, keeps_sampler=not request.HasField("sampling"))
