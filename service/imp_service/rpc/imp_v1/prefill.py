"""Prefill: opens a session or extends one, and stores the reply for a caller that lost it.

However a call ends, it leaves the session that it uses. A step that was submitted runs to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import cast

from imp_service.api.chat_prompt import InfillPrompt, PromptParts
from imp_service.api.errors import invalid
from imp_service.api.options import CacheOptions, Prompt, SamplingOptions
from imp_service.api.replies import Scores, StepOutput
from imp_service.generation import ModelRuntime
from imp_service.generation.prompt_images import ReadPrompt
from imp_service.generation.session_resume import require_session_origin, require_text_from, session_origin
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.durations import seconds_of
from imp_service.rpc.imp_v1.requests.check_request import checked_steps
from imp_service.rpc.imp_v1.requests.read_options import read_options
from imp_service.rpc.imp_v1.requests.read_requests import AskedStep, read_prompt, request_digest
from imp_service.rpc.imp_v1.requests.reply_size import ids_part, refuse_large, step_part
from imp_service.rpc.imp_v1.write_replies import add_scores, write_media, write_step_output, write_timings
from imp_service.serving.calls import Call
from imp_service.serving.images_hold import ImagesHold
from imp_service.serving.mismatches import mismatches_counted
from imp_service.serving.prompt_cost import reading_bytes
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState
from imp_service.serving.session.commands import (
    Extension,
    begin_step,
    check_base,
    check_context,
    check_position,
    find_breakers,
)
from imp_service.serving.session.held_session import HeldSession
from imp_service.serving.session.sessions import Opening
from imp_service.text import ChatPrompt

OnOpen = Callable[[HeldSession], None]


@dataclass(frozen=True, slots=True)
class PrefillResult:
    """The reply without the scores, and the scores."""

    reply: pb.PrefillResponse
    scores: Scores


class Prefill:
    """Prefills sessions of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def answer(self, request: pb.PrefillRequest, call: Call) -> pb.PrefillResponse:
        """Checks the request, and runs it."""
        [step] = await checked_steps(request, call.n_request_bytes, self._state)
        return await self.answer_checked(request, step, call)

    async def answer_checked(
        self, request: pb.PrefillRequest, step: AskedStep, call: Call, on_open: OnOpen = lambda _: None
    ) -> pb.PrefillResponse:
        """The same for a checked request, of which `step` is read. Calls `on_open` with a session that it opens."""
        with mismatches_counted(self._state.telemetry.metrics):
            return await self._run(request, step, call, on_open)

    async def _run(
        self, request: pb.PrefillRequest, step: AskedStep, call: Call, on_open: OnOpen
    ) -> pb.PrefillResponse:
        sessions, model, began = self._state.sessions, self._state.model, self._state.clock()
        await find_breakers(self._state.workers, model, step.sampling)
        held = await self._take_or_open(request, call, step.sampling, on_open)
        was_new = held.is_new
        digest = self._digest(request)
        try:
            if (stored := held.reply_to(digest)) is not None:
                sessions.leave(held)
                return await self._whole(cast(PrefillResult, stored))
            extension = await self._extension(request, held, step, digest)
            ended = begin_step(sessions, held, extension)
        except BaseException:
            sessions.abandon(held)
            raise
        try:
            outcome = await ended
            if isinstance(outcome, Exception):
                raise outcome
            whole = await self._whole(outcome)
        except asyncio.CancelledError:
            if was_new and not request.session_id:
                sessions.close(held)  # nobody knows its id
            raise
        n_sampled = int(outcome.reply.output.HasField("token_id"))
        n_cached = outcome.reply.cached_tokens
        if step.resume is None:
            call.record.prefilled(len(extension.tokens), n_cached, n_sampled, self._state.clock() - began)
        else:
            call.record.session_resumed(len(extension.tokens), n_cached)
            self._state.telemetry.progress.resumed(step.resume.origin.request, len(extension.tokens))
        return whole

    async def _whole(self, prefilled: PrefillResult) -> pb.PrefillResponse:
        """The reply with its scores. The stored reply has them in a smaller form."""
        if not prefilled.scores:
            return prefilled.reply

        def write() -> pb.PrefillResponse:
            reply = pb.PrefillResponse()
            reply.CopyFrom(prefilled.reply)
            add_scores(reply.output.scores, prefilled.scores)
            return reply

        return await self._state.workers.write(write)

    def _digest(self, request: pb.PrefillRequest) -> bytes | None:
        """The digest of a request whose reply is stored; None for others, and if no session holds so many tokens."""
        fits = len(request.token_ids.ids) <= self._state.model.max_context
        return request_digest(request) if fits and request.HasField("position") else None

    async def _take_or_open(
        self, request: pb.PrefillRequest, call: Call, sampling: SamplingOptions | None, on_open: OnOpen
    ) -> HeldSession:
        sessions, session_id = self._state.sessions, request.session_id
        at_zero = request.HasField("position") and request.position == 0
        may_open = not session_id or (at_zero and not sessions.is_of_another_instance(session_id))
        if not may_open or sessions.find(call.tenant, session_id) is not None:
            return sessions.take(call.tenant, session_id)
        ttl = seconds_of(request.ttl) if request.HasField("ttl") else None
        opening = Opening(sampling, call.payer, call.priority, read_options(CacheOptions, request.cache), ttl)
        held = await sessions.open(call.tenant, session_id, opening)
        on_open(held)
        return held

    async def _extension(
        self, request: pb.PrefillRequest, held: HeldSession, step: AskedStep, digest: bytes | None
    ) -> Extension[PrefillResult]:
        check_position(held, request.position if request.HasField("position") else None)
        if request.HasField("cache") and read_options(CacheOptions, request.cache) != held.cache:
            raise invalid("cache", "set, expected what the session was opened with")
        if request.WhichOneof("input") == "chat" and held.position > 0:
            raise invalid("chat", "set, expected text or token_ids: the session holds tokens already")
        model = self._state.model
        if step.resume is not None:
            require_session_origin(model, step.resume)
        prompt = read_prompt(request, "input")
        read = await self._read(model, prompt, request, held)
        tokens = read.ids
        check_context(held, len(tokens), model.max_context)
        base = request.base if request.HasField("base") else None
        check_base(held, len(tokens), base)
        require_text_from(step.resume, held.position, held.position + len(tokens))
        served = ServedModel.of(model, self._state.settings)
        told_ids = tokens if request.resumable and request.WhichOneof("input") != "token_ids" else []
        refuse_large([step_part(step.options, len(tokens), served), ids_part(len(told_ids), served)], served)
        with ImagesHold(self._state, prompt) as images:
            await images.decode(read.images)
        media = write_media(read.images.spans, held.position)

        def write(output: StepOutput) -> PrefillResult:
            reply = pb.PrefillResponse(
                session_id=held.session_id,
                cached_tokens=output.cached_tokens,
                output=write_step_output(output),
                timings=write_timings(output.timings),
                base=output.position if base is None else base,
                media=media,
                prompt_token_ids=told_ids,
            )
            if request.resumable and (origin := session_origin(model, held.session.sampling)) is not None:
                reply.origin.CopyFrom(pb.Origin(**asdict(origin)))
            return PrefillResult(reply, output.held_scores)

        return Extension(
            tokens,
            step.options,
            write,
            # A new session already has its sampler.
            sampling=None if held.is_new else step.sampling,
            position=held.position,
            base=base,
            is_prefill=True,
            ttl=seconds_of(request.ttl) if request.HasField("ttl") else None,
            digest=digest,
            media=read.images.media,
            resume=step.resume,
        )

    async def _read(
        self, model: ModelRuntime, prompt: Prompt, request: pb.PrefillRequest, held: HeldSession
    ) -> ReadPrompt:
        if not isinstance(prompt, str | ChatPrompt | PromptParts | InfillPrompt):
            check_context(held, len(prompt), model.max_context)  # before each id is checked
        model.prompts.require_fitting(prompt)
        begins = held.position == 0
        n_bytes = reading_bytes(prompt, renders_quickly=model.text.renders_quickly)
        read = await self._state.workers.run(lambda: model.prompts.read(prompt, begins=begins), n_bytes)
        if not read.ids:
            raise invalid(str(request.WhichOneof("input")), "has no token")
        return read
