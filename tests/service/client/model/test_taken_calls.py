"""Calls that a server had count when they break, and those that only a proxy had do not."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from imp_service.client import patience
from imp_service.client.async_connection import AsyncConnection
from imp_service.client.connection import Connection
from imp_service.client.failure import CallFailure
from imp_service.client.target import ACKNOWLEDGE, Target
from imp_service.pb import inference_pb2 as pb
from support.calls.kinds_of_clients import client_of, refused
from support.machine.lasting_port import lasting_port
from support.servers.answering_proxy import UNAVAILABLE, answering_proxy
from support.servers.loop_thread import loop_thread
from support.servers.poisoned_server import POISON_STOP, POISON_TOKEN, poisoned_server
from support.servers.scripted_server import scripted_server
from support.servers.served import Served

PROMPT = "Once upon a time"
KINDS = ("threads", "tasks")
# For so long a proxy before a server that starts answers by itself.
COLD_SECONDS = 4.0
N_TRIES = 100


def generation(client: Any) -> list[int]:
    return list(client.generate(PROMPT, max_tokens=60, seed=5, ignore_eos=True).result().token_ids)


def generation_of_session(client: Any) -> list[int]:
    with client.open(seed=5) as session:
        session.prefill(PROMPT)
        generated = session.generate(max_tokens=60, ignore_eos=True).result()
        return [*generated.token_ids, session.position]


def steps(client: Any) -> list[int]:
    with client.open(seed=5) as session:
        return [session.prefill(PROMPT).token_id, *(session.decode_step().token_id for _ in range(8))]


WAYS: tuple[Callable[[Any], list[int]], ...] = (generation, generation_of_session, steps)


def test_k02_rsm_4_rsm_9_calls_wait_while_a_proxy_has_no_server(served: Served) -> None:
    def behind_a_proxy(way: Callable[[Any], list[int]], kind: str) -> tuple[list[int], int]:
        with answering_proxy(served.address, 3, COLD_SECONDS) as proxy, client_of(proxy.address, kind) as client:
            return way(client), proxy.n_own

    with client_of(served.address) as client:
        expected = [way(client) for way in WAYS]
    with ThreadPoolExecutor(len(WAYS) * len(KINDS)) as pool:
        found = list(pool.map(lambda each: behind_a_proxy(*each), itertools.product(WAYS, KINDS)))
    assert [outputs for outputs, _ in found] == [each for each in expected for _ in KINDS]
    assert all(n_own > patience.MOST_FRUITLESS for _, n_own in found)


POISONS: tuple[Callable[[Any], object], ...] = (
    lambda client: client.generate(PROMPT, stop=POISON_STOP).result(),
    lambda client: opened(client).decode_step([POISON_TOKEN]),
    lambda client: opened(client).generate(stop=POISON_STOP).result(),
)


def opened(client: Any) -> Any:
    session = client.open(temperature=0)
    session.prefill(PROMPT)
    return session


def test_k02_rsm_4_rsm_9_a_request_that_ends_its_servers_ends_three(tmp_path: Path) -> None:
    n = 0
    with poisoned_server(tmp_path, f"127.0.0.1:{lasting_port()}") as server:
        for kind in KINDS:
            with client_of(server.address, kind) as client:
                client.generate(PROMPT, max_tokens=1).result()
                for poison in POISONS if kind == "threads" else POISONS[:2]:
                    n += patience.MOST_FRUITLESS
                    assert refused(client, poison).reason == "UNAVAILABLE"
                    assert server.deaths(n) == n


@pytest.mark.parametrize("acknowledges", [True, False])
def test_rsm_4_a_break_shows_whether_a_server_had_the_call(acknowledges: bool) -> None:
    """However soon it breaks: the head and the end come together."""

    def breaks(request: Any, context: grpc.ServicerContext) -> Any:
        context.abort(UNAVAILABLE, "Socket closed")
        yield

    def blocking(address: str) -> list[bool]:
        found = []
        with Connection(Target(address, resumes=True)) as connection:
            for stub in (connection.inference, connection.sessions):
                for _ in range(N_TRIES):
                    with pytest.raises(CallFailure) as streamed:
                        next(connection.stream(stub.Generate, pb.GenerateRequest(), metadata=ACKNOWLEDGE))
                    with pytest.raises(CallFailure) as unary:
                        connection.unary(stub.DecodeStep, pb.DecodeStepRequest(), metadata=ACKNOWLEDGE)
                    found += [streamed.value.was_taken, unary.value.was_taken]
        return found

    async def waiting(address: str) -> list[bool]:
        found: list[bool] = []

        async def one(connection: AsyncConnection) -> None:
            with pytest.raises(CallFailure) as streamed:
                await anext(
                    connection.stream(connection.inference.Generate, pb.GenerateRequest(), metadata=ACKNOWLEDGE)
                )
            with pytest.raises(CallFailure) as unary:
                await connection.unary(connection.sessions.DecodeStep, pb.DecodeStepRequest(), metadata=ACKNOWLEDGE)
            found.extend([streamed.value.was_taken, unary.value.was_taken])

        connection = AsyncConnection(Target(address, resumes=True))
        for _ in range(N_TRIES // 4):
            await asyncio.gather(*(one(connection) for _ in range(4)))
        await connection.close()
        return found

    with scripted_server(acknowledges=acknowledges, Generate=breaks, DecodeStep=breaks) as address:
        assert set(blocking(address)) == {acknowledges}
        assert set(loop_thread().run(waiting(address))) == {acknowledges}
