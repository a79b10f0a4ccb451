"""A client process: runs many generations at once and ends or abandons them at random. Prints what remains.

python leaving_tasks.py ADDRESS N SEED
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import imp_service

AT_ONCE = 32
WAYS = ("whole", "cancelled", "timeout", "deadline", "closed", "dropped")
OPTIONS: dict[str, Any] = {"max_tokens": 24, "temperature": 1.0, "ignore_eos": True}


class Ways:
    """The ways in which a generation may end. Each returns what happened."""

    def __init__(self, client: imp_service.AsyncClient, rng: random.Random, expected: Sequence[list[int]]) -> None:
        self._client = client
        self._rng = rng
        self._seed = rng.randrange(len(expected))
        self._expected = expected[self._seed]

    async def whole(self) -> str:
        assert (await self._generation().result()).token_ids == self._expected
        return "whole"

    async def cancelled(self) -> str:
        task = asyncio.ensure_future(self._generation().result())
        asyncio.get_running_loop().call_later(self._moment(), task.cancel)
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        return "cancelled" if isinstance(ended, asyncio.CancelledError) else "ended first"

    async def timeout(self) -> str:
        try:
            async with asyncio.timeout(self._moment()):
                return await self.whole()
        except TimeoutError:
            return "timeout"

    async def deadline(self) -> str:
        try:
            await self._generation(timeout=self._moment()).result()
        except imp_service.StateError as error:
            assert error.reason == "DEADLINE_EXCEEDED", error
            return "deadline"
        return "ended first"

    async def closed(self) -> str:
        async with self._generation() as generation:
            await self._read_some(generation)
        return "closed"

    async def dropped(self) -> str:
        await self._read_some(self._generation())
        return "dropped"

    def _generation(self, **options: Any) -> Any:
        return self._client.generate("Once upon a time", seed=self._seed, **OPTIONS, **options)

    def _moment(self) -> float:
        return self._rng.random() * 0.05

    async def _read_some(self, generation: Any) -> None:
        for _ in range(self._rng.randrange(6)):
            await anext(generation, None)


async def main(address: str, n: int, seed: int, rest_seconds: float) -> dict[str, Any]:
    rng, complaints = random.Random(seed), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: complaints.append(str(context)))
    loop.slow_callback_duration = 60.0
    async with imp_service.connect_async(address) as client:
        expected = [
            (await client.generate("Once upon a time", seed=each, **OPTIONS).result()).token_ids for each in range(4)
        ]
        assert len(set(map(tuple, expected))) == 4
        places, ends = asyncio.Semaphore(AT_ONCE), Counter[str]()

        async def placed(each: random.Random) -> None:
            async with places:
                ends[await getattr(Ways(client, each, expected), each.choice(WAYS))()] += 1

        await asyncio.gather(*(placed(random.Random(rng.random())) for _ in range(n)))
        gc.collect()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=rest_seconds)  # gRPC ends the tasks of a cancelled call by itself
        left = [str(each.get_coro()) for each in asyncio.all_tasks() - {asyncio.current_task()}]
        return {"ends": ends, "tasks": left, "complaints": complaints}


if __name__ == "__main__":
    told = asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
    gc.collect()
    print(json.dumps(told))
