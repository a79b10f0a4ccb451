"""A front before SMG, and one behind it: clients get the undisturbed streams while a server dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from aiohttp import ClientSession

from support.calls.disturbed_streams import DisturbedStreams, StreamRequest
from support.calls.http_calls import HttpClient
from support.servers.front_served import front_served, ready
from support.servers.server_process import ServerProcess, server_process
from support.servers.smg_gateway import Pair, gateway, pair_behind

N_TOKENS = 240
LONG = {"model": "imp-demo", "max_tokens": N_TOKENS, "ignore_eos": True, "max_chunk_tokens": 1, "temperature": 1.2}
SAID = {"messages": [{"role": "user", "content": "Tell a story"}]}
# SMG takes no field `resume` on /v1/responses.
REQUESTS: list[StreamRequest] = [
    ("/v1/chat/completions", {**LONG, **SAID, "seed": 1, "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {**LONG, **SAID, "seed": 2, "n": 2}),
    ("/v1/chat/completions", {**LONG, **SAID, "seed": 3, "logprobs": True, "top_logprobs": 2}),
    ("/v1/completions", {**LONG, "prompt": "Once", "seed": 4, "stop": ["zzz"]}),
    ("/v1/messages", {**LONG, **SAID, "seed": 5, "temperature": 0.9}),
    ("/v1/messages", {**LONG, **SAID, "seed": 6, "temperature": 0.9}),
]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "drained"])
def test_frt_3_streams_through_a_front_and_smg_survive_a_server(
    smg: None, tmp_path: Path, number: signal.Signals
) -> None:
    async def run(pair: Pair) -> None:
        async with front_served([f"127.0.0.1:{pair.gateway.port}"]) as served:
            await ready(served)
            clients = DisturbedStreams(served.url, served.session, REQUESTS)
            golden = await clients.whole()
            assert await clients.disturbed(lambda: pair.servers[1].signal(number)) == golden
            assert served.front.resumed.total() > 0
            # The other one alone, and SMG's way to it.
            assert await clients.whole() == golden

    # SMG does not pass on `imp-resumes`: so a drain waits for its grace.
    options = ("--policy", "round_robin", "--cb-failure-threshold", "2", "--health-check-interval-secs", "5")
    with pair_behind(tmp_path, *options, settings=["drain.grace=0s"]) as pair:
        asyncio.run(run(pair))


def test_frt_3_responses_through_a_front_and_smg_are_relayed_but_not_resumed(pair: Pair, alone: HttpClient) -> None:
    body = {"model": "imp-demo", "input": "Hello", "max_output_tokens": 8, "temperature": 0, "stream": True}

    async def run() -> bytes:
        async with front_served([f"127.0.0.1:{pair.gateway.port}"]) as served:
            await ready(served)
            got = await served.get("/v1/responses", "POST", json=body)
            assert (got.status, served.front.n_unresumable) == (200, 1)
            return got.content

    texts = [
        json.loads(line[6:]).get("delta", "") for line in asyncio.run(run()).decode().splitlines() if '"delta"' in line
    ]
    whole = alone.post("/v1/responses", {**body, "stream": False}).json
    assert "".join(texts) == whole["output"][0]["content"][0]["text"] != ""


def test_frt_3_streams_through_smg_survive_the_engine_of_a_front_behind_it(smg: None, tmp_path: Path) -> None:
    def engine_of(server: ServerProcess) -> int:
        return int(json.loads(server.ready_file.read_text())["engine_pid"])

    async def run(port: int, server: ServerProcess) -> None:
        async with ClientSession() as session:
            clients = DisturbedStreams(f"http://127.0.0.1:{port}", session, REQUESTS)
            golden = await clients.whole()
            assert await clients.disturbed(lambda: os.kill(engine_of(server), signal.SIGKILL)) == golden
            assert len(server.wait_for_lines("resumed", 1)) >= 1

    with server_process(tmp_path, "--survive", "--http", "0", is_traced=False) as server:
        (address,) = server.wait_until_ready()["http"]
        with gateway(tmp_path, [f"http://{address}"]) as running:
            asyncio.run(run(running.port, server))
