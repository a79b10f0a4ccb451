"""DecodeStream: steps over one stream, answered in order; sessions opened on it end with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import Call
from imp_service.rpc.steps import Steps
from imp_service.serving.refusal import Refusal


class DecodeStream:
    """One stream."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def answer(self, requests: AsyncIterator[pb.DecodeStreamRequest], call: Call) -> None:
        """Answers every request in order."""
        raise Refusal("FEATURE_DISABLED", "DecodeStream is not built yet")
