"""Decide: the probability of each label as the answer to a prompt."""

from __future__ import annotations

from dataclasses import replace

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.imp_v1.requests.check_request import checked_decision
from imp_service.rpc.imp_v1.write_replies import write_decision
from imp_service.serving.calls import Call
from imp_service.serving.decision_runner import DecisionRunner
from imp_service.serving.server_state import ServerState


class Decide:
    """Decides for callers of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._decisions = DecisionRunner(state)

    async def answer(self, request: pb.DecideRequest, call: Call) -> pb.DecideResponse:
        """Checks the request, and runs it."""
        asked = await checked_decision(request, call.n_request_bytes, self._state)
        call.request_id = request.request_id or call.request_id
        asked = replace(asked, priority=call.priority, tenant=call.tenant)
        [decision] = await self._decisions.decide([asked], call, lambda _, path: path)
        return write_decision(decision, call.request_id, self._state.model.name)
