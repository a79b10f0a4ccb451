"""DecodeStep: one step of several sessions, each of which succeeds or fails by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from imp_service.api.replies import Scores, StepOutput
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.durations import duration
from imp_service.rpc.imp_v1.requests.check_request import checked_steps
from imp_service.rpc.imp_v1.requests.read_requests import AskedStep, request_digest
from imp_service.rpc.imp_v1.requests.reply_size import refuse_large, step_part
from imp_service.rpc.imp_v1.write_replies import add_scores, write_step_output
from imp_service.rpc.statuses import step_error
from imp_service.serving.calls import Call
from imp_service.serving.errors.failures import reported_failure
from imp_service.serving.refusal import Refusal
from imp_service.serving.server_state import ServerState
from imp_service.serving.session.commands import Extension, begin_step, check_position, find_breakers


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one session."""

    output: pb.StepOutput
    forward: float  # seconds
    scores: Scores


# A step that runs, the stored result of an equal step, or why the step cannot run.
Begun = asyncio.Future[StepResult | Exception] | StepResult | Exception


class DecodeStep:
    """Runs batched steps of one server's sessions."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def answer(self, request: pb.DecodeStepRequest, call: Call) -> pb.DecodeStepResponse:
        """The results in request order. Raises the first failure if every step failed."""
        steps = await checked_steps(request, call.n_request_bytes, self._state)
        return await self.answer_checked(request, steps, call)

    async def answer_checked(
        self, request: pb.DecodeStepRequest, steps: Sequence[AskedStep], call: Call
    ) -> pb.DecodeStepResponse:
        """The same for a checked request, of which `steps` are read."""
        model, began = self._state.model, self._state.clock()
        self._check_size(request, steps)
        for step in steps:
            await find_breakers(self._state.workers, model, step.sampling)
        with model.client.together():
            begun = [self._begin(*each, call) for each in zip(request.steps, steps, strict=True)]
        outcomes = [await each if isinstance(each, asyncio.Future) else each for each in begun]
        reply = self._reply(request, outcomes, call)
        await self._add_scores(reply, outcomes)
        ran = [out for each, out in zip(begun, outcomes, strict=True) if isinstance(each, asyncio.Future)]
        n_sampled = sum(isinstance(each, StepResult) and each.output.HasField("token_id") for each in ran)
        if ran:
            call.record.stepped(n_sampled, self._state.clock() - began)
        return reply

    def _check_size(self, request: pb.DecodeStepRequest, steps: Sequence[AskedStep]) -> None:
        served = self._state.served
        refuse_large(
            (
                step_part(asked.options, max(1, len(step.token_ids)), served, f"steps[{i}].step")
                for i, (step, asked) in enumerate(zip(request.steps, steps, strict=True))
            ),
            served,
        )

    def _begin(self, step: pb.SessionStep, asked: AskedStep, call: Call) -> Begun:
        sessions = self._state.sessions
        try:
            held = sessions.take(call.tenant, step.session_id)
        except Refusal as refusal:
            return refusal
        try:
            position = step.position if step.HasField("position") else None
            digest = None if position is None else request_digest(step)
            if (stored := held.reply_to(digest)) is not None:
                sessions.leave(held)
                return cast(StepResult, stored)
            check_position(held, position)
            extension = Extension(
                list(step.token_ids), asked.options, _stepped, sampling=asked.sampling, position=position, digest=digest
            )
            return begin_step(sessions, held, extension)
        except Exception as error:  # also a bug: the steps of other sessions go on
            sessions.abandon(held)
            return error

    def _reply(
        self, request: pb.DecodeStepRequest, outcomes: list[StepResult | Exception], call: Call
    ) -> pb.DecodeStepResponse:
        failures = [each for each in outcomes if isinstance(each, Exception)]
        if len(failures) == len(outcomes):
            raise failures[0]
        reply = pb.DecodeStepResponse()
        forward = 0.0
        for step, outcome in zip(request.steps, outcomes, strict=True):
            result = reply.results.add(session_id=step.session_id)
            if isinstance(outcome, StepResult):
                result.output.CopyFrom(outcome.output)
                forward = max(forward, outcome.forward)
            else:
                result.error.CopyFrom(self._step_error(outcome, call))
        reply.forward.CopyFrom(duration(forward))
        return reply

    async def _add_scores(self, reply: pb.DecodeStepResponse, outcomes: list[StepResult | Exception]) -> None:
        scored = [
            (result.output, outcome.scores)
            for result, outcome in zip(reply.results, outcomes, strict=True)
            if isinstance(outcome, StepResult) and outcome.scores
        ]
        if scored:
            await self._state.workers.write(lambda: _add_all(scored))

    def _step_error(self, error: Exception, call: Call) -> pb.StepError:
        return step_error(reported_failure(error, call, self._state.telemetry.log))


def _add_all(scored: list[tuple[pb.StepOutput, Scores]]) -> None:
    for output, scores in scored:
        add_scores(output.scores, scores)


def _stepped(output: StepOutput) -> StepResult:
    forward = output.timings.prefill + output.timings.decode
    return StepResult(write_step_output(output), forward, output.held_scores)
