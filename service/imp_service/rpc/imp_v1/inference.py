"""InferenceService: whole generations, and token-level control of one sequence."""

from __future__ import annotations

from collections.abc import AsyncIterator

from google.protobuf.message import Message

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.encoded import Encoded
from imp_service.rpc.imp_v1.decide import Decide
from imp_service.rpc.imp_v1.decode_step import DecodeStep
from imp_service.rpc.imp_v1.decode_stream import DecodeStream
from imp_service.rpc.imp_v1.embed import Embed
from imp_service.rpc.imp_v1.generate import Generate
from imp_service.rpc.imp_v1.prefill import Prefill
from imp_service.rpc.imp_v1.session_changes import SessionChanges
from imp_service.serving.server_state import ServerState


class InferenceServicer:
    """Passes each call to the class of its method."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._generate = Generate(state)
        self._prefill = Prefill(state)
        self._decode_step = DecodeStep(state)
        self._changes = SessionChanges(state)
        self._decide = Decide(state)
        self._embed = Embed(state)

    async def Generate(self, request: pb.GenerateRequest, call: GrpcCall) -> None:  # noqa: N802
        await self._generate.stream(request, call)

    async def GenerateUnary(self, request: pb.GenerateUnaryRequest, call: GrpcCall) -> Message:  # noqa: N802
        return await self._generate.unary(request, call)

    async def Prefill(self, request: pb.PrefillRequest, call: GrpcCall) -> Message:  # noqa: N802
        return await self._prefill.answer(request, call)

    async def DecodeStep(self, request: pb.DecodeStepRequest, call: GrpcCall) -> Message:  # noqa: N802
        return await self._decode_step.answer(request, call)

    async def ForkSession(self, request: pb.ForkSessionRequest, call: GrpcCall) -> Message:  # noqa: N802
        return await self._changes.fork(request, call)

    async def TruncateSession(self, request: pb.TruncateSessionRequest, call: GrpcCall) -> Message:  # noqa: N802
        return await self._changes.truncate(request, call)

    async def ReleaseSession(self, request: pb.ReleaseSessionRequest, call: GrpcCall) -> Message:  # noqa: N802
        return await self._changes.release(request, call)

    async def DecodeStream(self, requests: AsyncIterator[pb.DecodeStreamRequest], call: GrpcCall) -> None:  # noqa: N802
        await DecodeStream(self._state, call).answer(requests)

    async def Decide(self, request: pb.DecideRequest, call: GrpcCall) -> Message:  # noqa: N802
        return await self._decide.answer(request, call)

    async def Embed(self, request: pb.EmbedRequest, call: GrpcCall) -> Encoded:  # noqa: N802
        return await self._embed.embed(request, call)

    async def Rerank(self, request: pb.RerankRequest, call: GrpcCall) -> Message:  # noqa: N802
        return await self._embed.rerank(request, call)
