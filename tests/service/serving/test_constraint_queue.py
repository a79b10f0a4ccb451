"""Tenants alternate in the compilation of constraints. A caller that gives up leaves its queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from imp_service.serving.constraint_queue import ConstraintQueue
from support.run.patience import HANGS_AFTER


class Compiling:
    """Work that reports when it runs, and ends when the test allows it."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.running = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)

    def of(self, name: str) -> Callable[[], str]:
        def work() -> str:
            self.order.append(name)
            self.running.release()
            assert self.may_end.acquire(timeout=HANGS_AFTER)
            return name

        return work


def _run(test: Callable[[ConstraintQueue], Coroutine[Any, Any, None]]) -> None:
    async def go() -> None:
        queue = ConstraintQueue()
        try:
            await test(queue)
        finally:
            queue.close()

    asyncio.run(go())


def n_waiting(queue: ConstraintQueue) -> int:
    return sum(map(len, queue._queues.values()))


def test_txt_31_another_tenant_waits_for_one_constraint_at_most() -> None:
    compiling = Compiling()

    async def test(queue: ConstraintQueue) -> None:
        greedy = [asyncio.create_task(queue.run(compiling.of(f"greedy {i}"), "greedy")) for i in range(20)]
        await asyncio.sleep(0)
        assert n_waiting(queue) == 19, "one is in work"
        others = [asyncio.create_task(queue.run(compiling.of(name), name)) for name in ("a", "b")]
        await asyncio.sleep(0)
        compiling.may_end.release(22)
        assert await asyncio.gather(*others) == ["a", "b"]
        assert await asyncio.gather(*greedy) == [f"greedy {i}" for i in range(20)], "each in its own order"

    _run(test)
    assert compiling.order[0] == "greedy 0"
    assert set(compiling.order[1:4]) == {"greedy 1", "a", "b"}


def test_txt_31_a_cancelled_request_is_not_compiled() -> None:
    compiling = Compiling()

    async def test(queue: ConstraintQueue) -> None:
        tasks = [asyncio.create_task(queue.run(compiling.of(name), "one")) for name in ("first", "gone", "last")]
        await asyncio.sleep(0)
        assert n_waiting(queue) == 2
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        assert n_waiting(queue) == 1, "nothing is kept for it, although the first is still in work"
        compiling.may_end.release(2)
        assert await tasks[2] == "last"
        assert await tasks[0] == "first"
        assert n_waiting(queue) == 0

    _run(test)
    assert compiling.order == ["first", "last"]


def test_txt_31_giving_up_in_work_frees_the_thread_when_it_is_done() -> None:
    compiling = Compiling()

    async def test(queue: ConstraintQueue) -> None:
        task = asyncio.create_task(queue.run(compiling.of("gone"), "one"))
        await asyncio.to_thread(compiling.running.acquire)
        task.cancel()
        next_one = asyncio.create_task(queue.run(compiling.of("next"), "one"))
        await asyncio.sleep(0)
        assert compiling.order == ["gone"], "one at a time"
        compiling.may_end.release(2)
        assert await next_one == "next"

    _run(test)


def test_an_error_is_its_own_request_s() -> None:
    def fail() -> None:
        raise ValueError("no")

    async def test(queue: ConstraintQueue) -> None:
        with pytest.raises(ValueError, match="no"):
            await queue.run(fail, "one")
        assert await queue.run(lambda: 3, "one") == 3

    _run(test)
