"""VllmEngine's Generate: runs a generation as imp.v1 does; errors have the field names of VllmEngine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from imp_service.api.replies import Chunk, Reply
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.encoded import Encoded
from imp_service.rpc.imp_v1.generate import delivery
from imp_service.rpc.imp_v1.requests.reply_size import check_generation_size
from imp_service.rpc.vllm.fields import caller_path
from imp_service.rpc.vllm.replies import VllmReplies
from imp_service.rpc.vllm.requests import checked, translate
from imp_service.serving.generation_runner import WHOLE, GenerationRunner, Wanted, refuse_late
from imp_service.serving.server_state import ServerState

# Each score of the prompt is a message, which costs a tag, a length and another tag.
SCORE_FRAME_BYTES = 3


class VllmGenerate:
    """Runs generations of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._generations = GenerationRunner(state)

    async def stream(self, request: Any, call: GrpcCall) -> None:
        """Sends the messages of every reply."""
        wanted = await self._wanted(request, call)
        replies = VllmReplies(request, wanted.request.num_sequences)
        async with self._generations.running(wanted, call) as generation:
            while (reply := await generation.next_reply()) is not None:
                messages = await self._written(replies, reply)
                n_tokens = len(reply.token_ids) if isinstance(reply, Chunk) else 0
                # While the caller does not read, only the encoded bytes stay in memory.
                del reply
                await call.begin_reply()
                for message in messages:
                    await call.write(message)
                call.n_sent_tokens += n_tokens if request.stream else 0

    async def _written(self, replies: VllmReplies, reply: Reply) -> list[Encoded]:
        def write() -> list[Encoded]:
            return [Encoded(message.SerializeToString()) for message in replies.write(reply)]

        return await self._state.workers.write(write) if replies.takes_long(reply) else write()

    async def _wanted(self, request: Any, call: GrpcCall) -> Wanted:
        """Checks a request, and converts it to a generation."""
        state, began = self._state, self._state.clock()
        refuse_late(call)
        translated = translate(request)
        generation, served = await checked(request, translated, call.n_request_bytes, state)
        generation = replace(generation, priority=call.priority, tenant=call.tenant)
        call.request_id = request.request_id or call.request_id
        return Wanted(
            request=generation,
            delivery=delivery(translated, generation, served) if request.stream else WHOLE,
            began=began,
            check_size=lambda n_prompt: check_generation_size(
                generation, n_prompt, served, is_unary=not request.stream, score_frame_bytes=SCORE_FRAME_BYTES
            ),
            rename=caller_path,
        )
