"""A front before real servers: clients get the undisturbed answer, wherever a connection or a server ends."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from support.run.pauses import pause_loop
from support.run.quick_run import Repeats
from support.servers.cut_after import cut_after
from support.servers.front_answers import ALONE, CHAT, MESSAGE, MESSAGES, REQUESTS, RESPONSES
from support.servers.front_served import front_served, plain, ready
from support.servers.http_served import HttpServed
from support.servers.messages_served import serve_template
from support.servers.ray_serve import free_ports
from support.servers.server_process import ServerProcess
from support.text.tool_templates import HERMES

DEATHS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGTERM)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with serve_template(tmp_path_factory.mktemp("here"), HERMES, *ALONE) as it:
        yield it


@pytest.mark.parametrize("name", REQUESTS)
def test_iso_3_an_answer_through_the_front_is_the_answer_of_the_server(here: HttpServed, name: str) -> None:
    path, body = REQUESTS[name]

    async def run() -> None:
        async with front_served([f"127.0.0.1:{here.address.port}"]) as served:
            await ready(served)
            for streams in (True, False):
                direct = await served.session.post(
                    f"http://127.0.0.1:{here.address.port}{path}", json={**body, "stream": streams}
                )
                through = await served.session.post(f"{served.url}{path}", json={**body, "stream": streams})
                assert plain(await through.read()) == plain(await direct.read())
                assert direct.headers.keys() == through.headers.keys()
                assert through.headers["content-type"] == direct.headers["content-type"]

    asyncio.run(run())


BAD: list[tuple[str, str, bytes]] = [
    ("POST", CHAT, b'{"stream":true,"messages":[]'),
    ("POST", CHAT, b'{"stream":true,"messages":[],}'),
    ("POST", CHAT, b'{"stream":true,"messages":[]} {}'),
    ("POST", CHAT, b'{"stream":true,"messages":[],"stream":true}'),
    ("POST", CHAT, b'{"stream":true,"unknown":1,"messages":[{"role":"user","content":"x"}]}'),
    ("POST", CHAT, b'{"stream":true,"temperature":NaN}'),
    ("POST", CHAT, b'{"stream":true,"max_tokens":-1,"messages":[{"role":"x"}]}'),
    ("POST", CHAT, b'{"stream":true}\xff'),
    ("POST", CHAT, b""),
    ("POST", MESSAGES, b'{"stream":true,"max_tokens":0}'),
    ("POST", RESPONSES, b'{"stream":true,"input":3}'),
    ("POST", "/v1/nothing", b"{}"),
    ("GET", "/v1/models", b""),
    ("GET", "/v1/models/none", b""),
    ("DELETE", "/v1/models", b""),
    ("PUT", CHAT, b"{}"),
    ("GET", "/", b""),
    ("POST", "/tokenize", b'{"content":"Hello"}'),
]


def test_iso_3_refusals_and_other_paths_pass_byte_for_byte(here: HttpServed) -> None:
    async def run() -> None:
        async with front_served([f"127.0.0.1:{here.address.port}"]) as served:
            await ready(served)
            for method, path, body in BAD:
                how: dict[str, Any] = {"data": body, "headers": {"content-type": "application/json"}} if body else {}
                direct = await served.session.request(method, f"http://127.0.0.1:{here.address.port}{path}", **how)
                through = await served.session.request(method, f"{served.url}{path}", **how)
                found, expected = await through.read(), await direct.read()
                assert (through.status, plain(found)) == (direct.status, plain(expected)), body

    asyncio.run(run())


@pytest.mark.parametrize("name", REQUESTS)
def test_iso_2_an_answer_that_is_cut_anywhere_is_the_undisturbed_one(
    here: HttpServed, name: str, repeats: Repeats
) -> None:
    path, body = REQUESTS[name]
    rng = random.Random(name)

    async def run() -> None:
        async with (
            cut_after(here.address.port) as first,
            cut_after(here.address.port) as second,
            front_served([first.address, second.address]) as served,
        ):
            await ready(served, 2)
            golden = await served.get(path, "POST", json={**body, "stream": True})
            direct = await served.session.post(
                f"http://127.0.0.1:{here.address.port}{path}", json={**body, "stream": True, "resume": {}}
            )
            n_bytes = len(await direct.read()) + 400
            for _ in range(repeats(60)):
                first.n_left = second.n_left = rng.randrange(1, n_bytes)
                got = await served.get(path, "POST", json={**body, "stream": True})
                assert got.is_whole
                assert plain(got.content) == plain(golden.content)
                first.n_left = second.n_left = None
                await ready(served, 1)
            assert first.n_cut + second.n_cut > repeats(60) // 2

    asyncio.run(run())


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    started: list[ServerProcess] = []

    def start(number: int) -> ServerProcess:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        return ServerProcess(folder, "--http", f"127.0.0.1:{ports[number]}", is_traced=False)

    ports = free_ports(2)
    try:
        started += [start(0), start(1)]
        for each in started:
            each.wait_until_ready()
        yield started
    finally:
        for each in started:
            each.kill()


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.name)
def test_c01_streams_of_the_openai_package_survive_a_server(
    processes: list[ServerProcess], death: signal.Signals
) -> None:
    async def run() -> None:
        addresses = [each.wait_until_ready()["http"][0] for each in processes]
        async with (
            front_served(addresses) as served,
            openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
        ):
            await ready(served, 2)

            async def chat(seed: int) -> tuple[str, list[str | None], int]:
                stream = await client.chat.completions.create(
                    model="imp-demo", messages=MESSAGE, seed=seed, max_tokens=160, stream=True, temperature=1,
                    stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
                )  # fmt: skip
                text, ends, n_tokens = "", [], 0
                async for chunk in stream:
                    for choice in chunk.choices:
                        text += choice.delta.content or ""
                        ends += [choice.finish_reason] if choice.finish_reason else []
                    n_tokens += chunk.usage.completion_tokens if chunk.usage else 0
                return text, ends, n_tokens

            golden = [await chat(seed) for seed in range(8)]
            asking = [asyncio.create_task(chat(seed)) for seed in range(8)]
            while sum(call._told.n_tokens for call in served.front._calls) < 8:
                await pause_loop(0.001)
            processes[0].signal(death)
            assert await asyncio.gather(*asking) == golden
            assert [each[1:] for each in golden] == [(["length"], 160)] * 8
            if death != signal.SIGTERM:
                assert served.front.resumed.total() > 0

    asyncio.run(run())
