"""The ladder: each level keeps its streams busy at once, level after level, repetition after repetition."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import grpc

from ...pb.inference_pb2_grpc import InferenceServiceStub
from ...pb.model_pb2 import (
    GetModelInfoRequest,
    GetModelInfoResponse,
    GetServerInfoRequest,
    GetServerInfoResponse,
)
from ...pb.model_pb2_grpc import ModelServiceStub
from ..failure import failure_of
from ..target import Target, open_async_channel
from .measure import LevelRun, RequestResult, measure_request
from .plan import LadderPlan
from .report import LadderReport, report_of

# Servers bound the streams of one connection, many of them at 100.
STREAMS_PER_CONNECTION = 64
WARM_UP = -1  # instead of a repetition's number


async def climb(target: Target, plan: LadderPlan, tell: Callable[[str], None]) -> LadderReport:
    """Runs the plan; `tell` hears what is going on. CallFailure where the server cannot be asked what it is."""
    async with AsyncExitStack() as stack:
        n_connections = -(-max(plan.levels) // STREAMS_PER_CONNECTION)
        channels = [
            await stack.enter_async_context(open_async_channel(target, own_connection=True))
            for _ in range(n_connections)
        ]
        model, server = await _ask(ModelServiceStub(channels[0]), target)
        plan.check(model)
        climber = _Climber(target, plan, model, [InferenceServiceStub(channel) for channel in channels])
        for level in plan.levels:
            tell(f"warming up, {level} streams")
            await climber.run(WARM_UP, level, n_requests=1, output_tokens=min(plan.warm_up_tokens, plan.output_tokens))
        runs = []
        for rep, level in plan.order():
            tell(f"repetition {rep + 1} of {plan.reps}, {level} streams")
            runs.append(await climber.run(rep, level, plan.requests, plan.output_tokens))
    return report_of(target.address, plan, model, server, runs)


class _Climber:
    def __init__(
        self, target: Target, plan: LadderPlan, model: GetModelInfoResponse, stubs: Sequence[InferenceServiceStub]
    ) -> None:
        self._metadata, self._plan, self._model, self._stubs = target.call_metadata, plan, model, stubs

    async def run(self, rep: int, level: int, n_requests: int, output_tokens: int) -> LevelRun:
        """`level` streams, each with so many requests one after the other."""

        async def stream(number: int) -> list[RequestResult]:
            # Made before the clock starts: a prompt of thousands of ids takes its time.
            requests = [
                self._plan.request(self._model, rep, level, number, i, output_tokens=output_tokens)
                for i in range(n_requests)
            ]
            await everyone_is_ready.wait()
            stub = self._stubs[number // STREAMS_PER_CONNECTION]
            return [await measure_request(stub, request, self._metadata) for request in requests]

        everyone_is_ready = asyncio.Barrier(level)
        results = await asyncio.gather(*(stream(number) for number in range(level)))
        return LevelRun(level, [result for of_stream in results for result in of_stream])


async def _ask(stub: ModelServiceStub, target: Target) -> tuple[GetModelInfoResponse, GetServerInfoResponse]:
    try:
        model = await stub.GetModelInfo(GetModelInfoRequest(), metadata=target.call_metadata)
        return model, await stub.GetServerInfo(GetServerInfoRequest(), metadata=target.call_metadata)
    except grpc.RpcError as error:
        raise failure_of(error, target) from None
