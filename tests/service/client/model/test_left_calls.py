"""However a client's generations and sessions are left, their calls end and their places become free."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import imp_service
from imp_service import AsyncClient, Chunk, Client, Started
from support.run.patience import HANGS_AFTER
from support.run.release_run import repetitions
from support.servers.gate import ALL_STEPS, HELD, gate
from support.servers.served import Served, serve

PROMPT = [HELD - 5]
OPTIONS = {"max_tokens": 100, "ignore_eos": True}


@contextmanager
def standing_still() -> Iterator[Served]:
    """A server whose engine stops in the sixth step of the prompt."""
    with gate() as held, serve(model=held.model()) as served:
        try:
            yield served
        finally:
            held.open(ALL_STEPS)


def drop(client: Client) -> None:
    generation = client.generate(PROMPT, **OPTIONS)
    assert isinstance(next(generation), Started) and isinstance(next(generation), Chunk)
    del generation


def close(client: Client) -> None:
    with client.generate(PROMPT, **OPTIONS) as generation:
        next(generation)


def cancel(client: Client) -> None:
    generation = client.generate(PROMPT, **OPTIONS)
    next(generation)
    threading.Timer(0.05, generation.cancel).start()
    assert [*generation][-1].reason == "cancelled"  # type: ignore[union-attr]


def miss_the_deadline(client: Client) -> None:
    with pytest.raises(imp_service.StateError) as caught:
        client.generate(PROMPT, timeout=0.2, **OPTIONS).result()
    assert (caught.value.reason, caught.value.retry_after) == ("DEADLINE_EXCEEDED", None)


def never_read(client: Client) -> None:
    client.generate(PROMPT, **OPTIONS)


@pytest.mark.few(2)
@pytest.mark.parametrize("leave", [drop, close, cancel, miss_the_deadline, never_read])
def test_cnt_3_a_generation_that_a_thread_leaves_ends_its_call(leave: Callable[[Client], None]) -> None:
    with standing_still() as served, imp_service.connect(served.address) as client:
        leave(client)
        served.wait_for_calls()


async def dropped(client: AsyncClient) -> None:
    generation = client.generate(PROMPT, **OPTIONS)
    assert isinstance(await anext(generation), Started) and isinstance(await anext(generation), Chunk)
    del generation


async def left(client: AsyncClient) -> None:
    async with client.generate(PROMPT, **OPTIONS) as generation:
        await anext(generation)
    assert [each async for each in generation] == []


async def waiting(client: AsyncClient) -> asyncio.Task[object]:
    """Returns a task that waits for the result of a running generation."""
    generation = client.generate(PROMPT, **OPTIONS)
    await anext(generation)
    task = asyncio.ensure_future(generation.result())
    await asyncio.sleep(0)
    return task


async def cancelled(client: AsyncClient) -> None:
    task = await waiting(client)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def late(client: AsyncClient) -> None:
    with pytest.raises(imp_service.StateError) as caught:
        await client.generate(PROMPT, timeout=0.2, **OPTIONS).result()
    assert caught.value.reason == "DEADLINE_EXCEEDED"


async def closed(client: AsyncClient) -> None:
    """A waiting task gets an error, and is not cancelled."""
    task = await waiting(client)
    await client.close()
    with pytest.raises(imp_service.StateError) as caught:
        await task
    assert caught.value.reason == "CANCELLED"


@pytest.mark.few(2)
@pytest.mark.parametrize("leave", [dropped, left, cancelled, late, closed])
def test_cnt_3_a_generation_that_a_task_leaves_ends_its_call(leave: Callable[[AsyncClient], object]) -> None:
    with standing_still() as served:
        client = imp_service.connect_async(served.address)

        async def run() -> None:
            await leave(client)  # type: ignore[misc]

        served.run(run())
        served.wait_for_calls()
        served.run(client.close())


@pytest.mark.long
def test_cnt_1_closing_a_client_ends_who_waits() -> None:
    with standing_still() as served:
        client = imp_service.connect(served.address)
        generation = client.generate(PROMPT, **OPTIONS)
        next(generation)
        threading.Timer(0.05, client.close).start()
        with pytest.raises(imp_service.StateError) as caught:
            generation.result()
        assert caught.value.reason == "CANCELLED"
        served.wait_for_calls()


N_GENERATIONS = repetitions(10_000, 1_500)
PROGRAM = Path(__file__).parents[3] / "support" / "calls" / "leaving_tasks.py"


def left_by(served: Served, n: int, seed: int) -> dict[str, int]:
    """Runs `n` generations in their own process, since grpc.aio needs the only event loop of a process."""
    words = [
        sys.executable,
        "-X",
        "dev",
        "-W",
        "error",
        str(PROGRAM),
        served.address,
        str(n),
        str(seed),
        str(HANGS_AFTER / 2),
    ]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=2 * HANGS_AFTER, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    told = json.loads(ran.stdout)
    assert (told["tasks"], told["complaints"]) == ([], [])
    served.wait_for_calls()
    served.wait_for_rest()
    ends: dict[str, int] = told["ends"]
    assert sum(ends.values()) == n
    return ends


@pytest.mark.long
def test_cnt_3_thousands_of_generations_leave_nothing(served: Served) -> None:
    ends = left_by(served, N_GENERATIONS, 4)
    assert ends.keys() >= {"whole", "cancelled", "timeout", "closed", "dropped", "deadline"}


IDS = [300, 400, 500]


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    """A server with room for one session."""
    with serve("sessions.max=1") as served:
        yield served


def test_cnt_1_a_dropped_session_makes_room(small: Served) -> None:
    with imp_service.connect(small.address) as client:
        for _ in range(20):
            client.open().prefill(IDS)
    small.wait_for_rest()


def test_cnt_1_a_session_that_a_task_drops_makes_room(small: Served) -> None:
    async def drop() -> None:
        async with imp_service.connect_async(small.address) as client:
            for _ in range(20):
                await client.open().prefill(IDS)

    small.run(drop())
    small.wait_for_rest()


def test_cnt_1_a_generation_frees_dropped_sessions(small: Served) -> None:
    with imp_service.connect(small.address) as client:
        client.open().prefill(IDS)
        client.generate(IDS, max_tokens=1).result()
        small.wait_until(lambda: not small.state.sessions.held(), "the session is freed")


@pytest.mark.long
def test_cnt_1_a_server_that_will_be_full_for_long_is_told_at_once(small: Served) -> None:
    with imp_service.connect(small.address) as client, client.open() as session:
        session.prefill(IDS)
        with pytest.raises(imp_service.Error) as caught:
            client.open().prefill(IDS)
        assert caught.value.reason == "SESSIONS_FULL"
        assert (caught.value.retry_after or 0) > 10
    small.wait_for_rest()
