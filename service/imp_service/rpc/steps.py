"""The session RPCs: Prefill, DecodeStep, fork, truncate, release."""

from __future__ import annotations

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import Call
from imp_service.serving.host import Host
from imp_service.serving.refusal import Refusal


class Steps:
    """Steps of one host's sessions."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def prefill(self, request: pb.PrefillRequest, call: Call) -> pb.PrefillResponse:
        raise Refusal("FEATURE_DISABLED", "Prefill is not built yet")

    async def decode_step(self, request: pb.DecodeStepRequest, call: Call) -> pb.DecodeStepResponse:
        raise Refusal("FEATURE_DISABLED", "DecodeStep is not built yet")

    async def fork(self, request: pb.ForkSessionRequest, call: Call) -> pb.ForkSessionResponse:
        raise Refusal("FEATURE_DISABLED", "ForkSession is not built yet")

    async def truncate(self, request: pb.TruncateSessionRequest, call: Call) -> pb.TruncateSessionResponse:
        raise Refusal("FEATURE_DISABLED", "TruncateSession is not built yet")

    async def release(self, request: pb.ReleaseSessionRequest, call: Call) -> pb.ReleaseSessionResponse:
        raise Refusal("FEATURE_DISABLED", "ReleaseSession is not built yet")
