"""An answer on the page whose stream breaks goes on where it was."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from support.calls.http_calls import HttpClient
from support.run.patience import HANGS_AFTER
from support.servers.cutting_proxy import cutting_proxy
from support.servers.http_served import serve_http
from support.servers.server_process import server_process

# Long enough that an answer does not end before the test breaks its stream.
LONG = (
    "model.overrides.eos_token_ids=[]",
    "model.overrides.max_context=4096",
    "model.overrides.untrained_context=true",
)
STORY = "Tell me a short story."
N_TOKENS = 700


def answer_of(client: HttpClient) -> str:
    body = {"messages": [{"role": "user", "content": STORY}], "seed": 7, "max_tokens": N_TOKENS}
    return str(client.post("/v1/chat/completions", body).choice["message"]["content"])


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), HANGS_AFTER)


def wait_for(it: Any, n: int) -> None:
    """Waits until the page has n tokens."""
    while it.page.evaluate("now(turns[0]).n") < n:
        it.page.wait_for_timeout(5)


def told(it: Any) -> list[int]:
    """Returns how many tokens each request of the page says that it has."""
    sequences = [body["resume"].get("sequences", [{"token_ids": []}]) for body in it.bodies]
    return [len(first["token_ids"]) for (first,) in sequences]


def test_rsm_16_an_answer_goes_on_after_each_cut(visit: Any) -> None:
    with (
        serve_http(*LONG) as http,
        cutting_proxy(http.http.addresses[0]) as proxy,
        visit(f"http://{proxy.address}") as it,
    ):
        it.set(seed=7, max_tokens=N_TOKENS)
        it.say(STORY)
        for n in (5, 100, 300):
            wait_for(it, n)
            proxy.cut()
        it.button("Same again").wait_for()
        assert it.answer == answer_of(http.client)
        assert told(it) == sorted(set(told(it))) and len(told(it)) >= 2 and told(it)[0] == 0
        assert f"{N_TOKENS} tokens" in it.figures and "it reached your limit" in it.figures


@pytest.mark.long
def test_rsm_16_an_answer_goes_on_after_a_restart(tmp_path: Path, visit: Any) -> None:
    with server_process(tmp_path, "--http", "0", settings=LONG) as server:
        (address,) = server.wait_until_ready()["http"]
        with visit(f"http://{address}") as it:
            it.set(seed=7, max_tokens=N_TOKENS)
            it.say(STORY)
            wait_for(it, 5)
            server.kill()
            expect(it.page.locator(".figures")).to_contain_text("waiting for the server…")
            with server_process(tmp_path, "--http", address, settings=LONG) as again:
                again.wait_until_ready()
                it.button("Same again").wait_for()
                assert it.answer == answer_of(HttpClient(partial(connected, address)))
                assert len(told(it)) >= 2 and told(it)[1] >= 5
