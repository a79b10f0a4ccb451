"""Generate and GenerateUnary: one fold over the same stream of replies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from imp_service.generation import Chunk, Finished, GenerationRequest, SamplingOptions, Started, StopOptions
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import Call
from imp_service.serving.generation_stream import GenerationStream
from imp_service.serving.host import Host


class Generate:
    """Runs generations of one host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def stream(self, request: pb.GenerateRequest, call: Call) -> None:
        """Writes every reply as a message."""
        async with self._started(request, call) as stream:
            while (reply := await stream.next_reply()) is not None:
                await call.write(response(reply, call, self._host.model.name))

    async def unary(self, request: pb.GenerateUnaryRequest, call: Call) -> pb.GenerateUnaryResponse:
        """All replies folded into one."""
        whole = pb.GenerateUnaryResponse()
        async with self._started(request.request, call) as stream:
            while (reply := await stream.next_reply()) is not None:
                message = response(reply, call, self._host.model.name)
                if message.WhichOneof("event") == "started":
                    whole.started.CopyFrom(message.started)
        return whole

    @asynccontextmanager
    async def _started(self, request: pb.GenerateRequest, call: Call) -> AsyncIterator[GenerationStream]:
        model = self._host.model
        prompt = request.text if request.WhichOneof("prompt") == "text" else list(request.token_ids.ids)
        wanted = GenerationRequest(
            prompt,
            sampling=SamplingOptions(
                temperature=request.sampling.temperature if request.sampling.HasField("temperature") else None,
                seed=request.sampling.seed if request.sampling.HasField("seed") else None,
            ),
            stop=StopOptions(max_tokens=request.stop.max_tokens if request.stop.HasField("max_tokens") else None),
        )
        plan = await self._host.workers.run(lambda: model.plan(wanted), len(request.text))
        call.request_id = request.request_id or call.request_id
        stream = GenerationStream(model.client, plan)
        try:
            yield stream
        finally:
            await stream.leave()


def response(reply: Started | Chunk | Finished, call: Call, model: str) -> pb.GenerateResponse:
    """A reply as a message."""
    if isinstance(reply, Started):
        started = pb.GenerationStarted(
            request_id=call.request_id, model=model, seed=reply.seed, prompt_tokens=reply.prompt_tokens
        )
        return pb.GenerateResponse(started=started)
    if isinstance(reply, Chunk):
        chunk = pb.GenerationChunk(
            index=reply.index, first_token=reply.first_token, token_ids=reply.token_ids, text=reply.text
        )
        return pb.GenerateResponse(chunk=chunk)
    return pb.GenerateResponse(
        finished=pb.GenerationFinished(index=reply.index, reason="FINISH_REASON_STOP", text=reply.text)
    )
