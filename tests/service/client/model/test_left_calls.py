"""However a client's generation is left, its call ends. The engine of these servers is stopped until then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import imp_service
from imp_service import AsyncClient, Chunk, Client, Started
from support.gate import ALL_STEPS, HELD, gate
from support.served import Served, serve

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
