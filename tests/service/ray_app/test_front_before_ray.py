"""A front before Ray Serve's HTTP port: streams go on at another replica when theirs is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from urllib.parse import urlsplit

from support.calls.disturbed_streams import DisturbedStreams, StreamRequest
from support.servers.front_served import front_served, ready
from support.servers.loop_thread import loop_thread
from support.servers.ray_http_stand_in import http_behind_stand_in
from support.servers.ray_serve import RayAddresses, replica_processes

LONG = {"max_tokens": 400, "ignore_eos": True, "max_chunk_tokens": 1}
SAID = {"messages": [{"role": "user", "content": "Tell a story"}]}
REQUESTS: list[StreamRequest] = [
    *(("/imp/v1/chat/completions", {**LONG, **SAID, "seed": seed}) for seed in range(3)),
    ("/imp/v1/chat/completions", {**LONG, **SAID, "seed": 3, "n": 2}),
    *(("/imp/v1/completions", {**LONG, "prompt": "Once", "seed": seed, "logprobs": 2}) for seed in range(2)),
    ("/imp/v1/messages", {**LONG, **SAID, "seed": 4}),
    (
        "/imp/v1/responses",
        {"input": "Tell a story", "max_output_tokens": 400, "ignore_eos": True, "max_chunk_tokens": 1, "seed": 5},
    ),
]


def test_frt_5_streams_survive_a_replica_behind_ray(ray_home: Path, ray_addresses: RayAddresses) -> None:
    async def run() -> None:
        async with front_served([urlsplit(ray_addresses.url).netloc]) as served:
            await ready(served)
            clients = DisturbedStreams(served.url, served.session, REQUESTS)
            golden = await clients.whole()
            killed = replica_processes(ray_home)[0]
            assert await clients.disturbed(lambda: os.kill(killed, signal.SIGKILL)) == golden
            assert served.front.resumed.total() > 0
            assert await clients.whole() == golden

    asyncio.run(run())


def test_frt_5_streams_survive_a_replica_behind_the_stand_in() -> None:
    """The proxy notices the death late, so the next call for the dead replica fails too."""
    with http_behind_stand_in(2, ("device.threads=1", "kv.bytes=8MiB")) as proxy:

        async def run() -> None:
            async with front_served([proxy.address]) as served:
                await ready(served)
                clients = DisturbedStreams(served.url, served.session, REQUESTS)
                golden = await clients.whole()
                proxy.doom(0, 200)
                assert await clients.whole() == golden
                assert served.front.resumed.total() > 0 and proxy.n_failed > 0

        loop_thread().run(run())
