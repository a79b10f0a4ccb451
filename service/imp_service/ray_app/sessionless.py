"""InferenceService behind a proxy that chooses a replica for each call: generations only, no sessions."""

from collections.abc import AsyncIterator
from typing import NoReturn

from google.protobuf.message import Message

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.imp_v1.inference import InferenceServicer
from imp_service.serving.refusal import Refusal


class SessionlessInference(InferenceServicer):
    """Refuses sessions: a session lives in one instance, and the proxy does not route to it."""

    async def Generate(self, request: pb.GenerateRequest, call: GrpcCall) -> None:  # noqa: N802
        _require_whole(request)
        await super().Generate(request, call)

    async def GenerateUnary(self, request: pb.GenerateUnaryRequest, call: GrpcCall) -> Message:  # noqa: N802
        _require_whole(request.request)
        return await super().GenerateUnary(request, call)

    async def Prefill(self, request: pb.PrefillRequest, call: GrpcCall) -> Message:  # noqa: N802
        _refuse("Prefill")

    async def DecodeStep(self, request: pb.DecodeStepRequest, call: GrpcCall) -> Message:  # noqa: N802
        _refuse("DecodeStep")

    async def DecodeStream(self, requests: AsyncIterator[pb.DecodeStreamRequest], call: GrpcCall) -> None:  # noqa: N802
        _refuse("DecodeStream")

    async def ForkSession(self, request: pb.ForkSessionRequest, call: GrpcCall) -> Message:  # noqa: N802
        _refuse("ForkSession")

    async def TruncateSession(self, request: pb.TruncateSessionRequest, call: GrpcCall) -> Message:  # noqa: N802
        _refuse("TruncateSession")

    async def ReleaseSession(self, request: pb.ReleaseSessionRequest, call: GrpcCall) -> Message:  # noqa: N802
        _refuse("ReleaseSession")


def _require_whole(request: pb.GenerateRequest) -> None:
    if request.WhichOneof("prompt") == "session_id":
        _refuse("session_id")


def _refuse(feature: str) -> NoReturn:
    text = f"{feature} is not served behind Ray Serve: a session needs an instance of its own"
    raise Refusal("NOT_SUPPORTED_BY_HOST", text, {"feature": feature})
