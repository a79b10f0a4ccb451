"""Prefill and DecodeStep: a request, checked, as a step of its session, and the step's output as its reply.

What takes a place or a session gives it back on every way out; what the engine was given runs to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from imp_service.core import Error
from imp_service.generation import LanguageModel, SamplingOptions, StepOptions, StepOutput
from imp_service.generation.validate import invalid
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import Call
from imp_service.rpc.check_request import checked
from imp_service.rpc.durations import duration, seconds_of
from imp_service.rpc.read_prompts import chat_bytes
from imp_service.rpc.read_requests import read_cache, read_prompt, read_sampling, read_step
from imp_service.rpc.reply_size import refuse_large, step_part
from imp_service.rpc.request_digest import request_digest
from imp_service.rpc.statuses import failure_of
from imp_service.rpc.terms import Terms
from imp_service.rpc.write_replies import write_step_output, write_timings
from imp_service.serving.held_session import HeldSession
from imp_service.serving.host import Host
from imp_service.serving.refusal import Refusal
from imp_service.serving.session_steps import Extension, begin, check_base, check_position, check_room
from imp_service.serving.sessions import Opening
from imp_service.serving.workers import SMALL_BYTES
from imp_service.text import ChatPrompt

OnOpen = Callable[[HeldSession], None]


@dataclass(frozen=True, slots=True)
class Stepped:
    """A session's part of a batched step."""

    output: pb.StepOutput
    forward: float  # seconds


class Steps:
    """Steps of one host's sessions."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def prefill(self, request: pb.PrefillRequest, call: Call) -> pb.PrefillResponse:
        """Opens a session, or extends one."""
        await checked(request, self._host)
        return await self.prefill_checked(request, call)

    async def decode_step(self, request: pb.DecodeStepRequest, call: Call) -> pb.DecodeStepResponse:
        """One step of several sessions."""
        await checked(request, self._host)
        return await self.decode_checked(request, call)

    async def prefill_checked(
        self, request: pb.PrefillRequest, call: Call, on_open: OnOpen = lambda _: None
    ) -> pb.PrefillResponse:
        """The same for a request that is checked; tells of the session that it opens."""
        sessions, model, began = self._host.sessions, self._host.model, self._host.clock()
        sampling = read_sampling(request.sampling) if request.HasField("sampling") else None
        await self._find_breakers(model, sampling)
        held = await self._take_or_open(request, call, sampling, on_open)
        was_new = held.is_new
        digest = request_digest(request) if request.HasField("position") else None
        try:
            if digest is not None and held.stored is not None and held.stored.digest == digest:
                sessions.leave(held)
                return cast(pb.PrefillResponse, held.stored.reply)
            extension = await self._prefill_of(request, held, sampling, digest)
            ended = begin(sessions, held, extension)
        except BaseException:
            sessions.give_up(held)
            raise
        try:
            outcome = await ended
        except asyncio.CancelledError:
            if was_new and not request.session_id:
                sessions.close(held)  # nobody knows its name
            raise
        if isinstance(outcome, Exception):
            raise outcome
        n_sampled = int(outcome.output.HasField("token_id"))
        call.record.prefilled(len(extension.tokens), outcome.cached_tokens, n_sampled, self._host.clock() - began)
        return outcome

    async def decode_checked(self, request: pb.DecodeStepRequest, call: Call) -> pb.DecodeStepResponse:
        """The same for a request that is checked."""
        model, began = self._host.model, self._host.clock()
        steps = [(each, read_step(each.step)) for each in request.steps]
        terms = Terms.of(model)
        refuse_large(
            (
                step_part(options, max(1, len(each.token_ids)), terms, f"steps[{i}].step")
                for i, (each, options) in enumerate(steps)
            ),
            terms,
        )
        samplings = [read_sampling(each.sampling) if each.HasField("sampling") else None for each in request.steps]
        for sampling in samplings:
            await self._find_breakers(model, sampling)
        with model.client.together():
            begun = [
                self._begin_step(each, options, sampling, call)
                for (each, options), sampling in zip(steps, samplings, strict=True)
            ]
        outcomes = [await each if isinstance(each, asyncio.Future) else each for each in begun]
        ran = [
            outcome
            for each, outcome in zip(begun, outcomes, strict=True)
            if isinstance(each, asyncio.Future) and isinstance(outcome, Stepped)
        ]
        if ran:
            n_sampled = sum(each.output.HasField("token_id") for each in ran)
            call.record.stepped(n_sampled, self._host.clock() - began)
        return self._step_reply(request, outcomes, call)

    async def _take_or_open(
        self, request: pb.PrefillRequest, call: Call, sampling: SamplingOptions | None, on_open: OnOpen
    ) -> HeldSession:
        sessions, session_id = self._host.sessions, request.session_id
        if session_id:
            may_open = request.HasField("position") and request.position == 0
            if sessions.find(call.tenant, session_id) is not None or not (
                may_open and not sessions.is_of_another_instance(session_id)
            ):
                return sessions.take(call.tenant, session_id)
        ttl = seconds_of(request.ttl) if request.HasField("ttl") else None
        opening = Opening(sampling, call.priority, read_cache(request.cache), ttl)
        held = await sessions.open(call.tenant, session_id, opening)
        on_open(held)
        return held

    async def _prefill_of(
        self, request: pb.PrefillRequest, held: HeldSession, sampling: SamplingOptions | None, digest: bytes | None
    ) -> Extension[pb.PrefillResponse]:
        check_position(held, request.position if request.HasField("position") else None)
        if request.HasField("cache") and read_cache(request.cache) != held.cache:
            raise invalid("cache: set, expected what the session was opened with")
        if request.WhichOneof("input") == "chat" and held.position > 0:
            raise invalid("chat: set, expected text or token_ids: the session holds tokens already")
        model, options = self._host.model, read_step(request.step)
        tokens = await self._tokens(model, request, held)
        check_room(held, len(tokens), model.max_context)
        base = request.base if request.HasField("base") else None
        check_base(held, len(tokens), base)
        terms = Terms.of(model)
        refuse_large([step_part(options, len(tokens), terms)], terms)

        def write(output: StepOutput) -> pb.PrefillResponse:
            return pb.PrefillResponse(
                session_id=held.session_id,
                cached_tokens=output.cached_tokens,
                output=write_step_output(output),
                timings=write_timings(output.timings),
            )

        return Extension(
            tokens,
            options,
            write,
            # A new session was opened with its sampler.
            sampling=None if held.is_new else sampling,
            position=held.position,
            base=base,
            is_prefill=True,
            ttl=seconds_of(request.ttl) if request.HasField("ttl") else None,
            digest=digest,
        )

    async def _tokens(self, model: LanguageModel, request: pb.PrefillRequest, held: HeldSession) -> list[int]:
        prompt = read_prompt(request, "input")
        if isinstance(prompt, list):
            return prompt
        n_bytes = chat_bytes(prompt) if isinstance(prompt, ChatPrompt) else len(prompt.encode())
        begins = held.position == 0
        tokens = await self._host.workers.run(lambda: model.prompt_ids(prompt, begins=begins), n_bytes)
        if not tokens:
            raise invalid(f"{request.WhichOneof('input')}: holds no token")
        return tokens

    async def _find_breakers(self, model: LanguageModel, sampling: SamplingOptions | None) -> None:
        """The tokens that hold a breaker are found by going through the vocabulary, and are remembered then."""
        if sampling is not None and sampling.dry is not None and sampling.dry.breakers:
            await self._host.workers.run(lambda: model.resolve_sampling(sampling), SMALL_BYTES)

    def _begin_step(
        self, step: pb.SessionStep, options: StepOptions, sampling: SamplingOptions | None, call: Call
    ) -> asyncio.Future[Stepped | Exception] | Stepped | Exception:
        """The step under way, its stored outcome, or why it cannot be run."""
        sessions = self._host.sessions
        try:
            held = sessions.take(call.tenant, step.session_id)
        except Refusal as refusal:
            return refusal
        try:
            position = step.position if step.HasField("position") else None
            digest = None if position is None else request_digest(step)
            if digest is not None and held.stored is not None and held.stored.digest == digest:
                sessions.leave(held)
                return cast(Stepped, held.stored.reply)
            check_position(held, position)
            extension = Extension(
                list(step.token_ids), options, _stepped, sampling=sampling, position=position, digest=digest
            )
            return begin(sessions, held, extension)
        except (Refusal, Error) as error:
            sessions.give_up(held)
            return error
        except BaseException:
            sessions.give_up(held)
            raise

    def _step_reply(
        self, request: pb.DecodeStepRequest, outcomes: list[Stepped | Exception], call: Call
    ) -> pb.DecodeStepResponse:
        failures = [each for each in outcomes if isinstance(each, Exception)]
        if len(failures) == len(outcomes):
            raise failures[0]
        reply = pb.DecodeStepResponse()
        forward = 0.0
        for step, outcome in zip(request.steps, outcomes, strict=True):
            result = reply.results.add(session_id=step.session_id)
            if isinstance(outcome, Stepped):
                result.output.CopyFrom(outcome.output)
                forward = max(forward, outcome.forward)
            else:
                result.error.CopyFrom(failure_of(outcome, request_id=call.request_id).step_error())
        reply.forward.CopyFrom(duration(forward))
        return reply


def _stepped(output: StepOutput) -> Stepped:
    return Stepped(write_step_output(output), output.timings.prefill + output.timings.decode)
