"""Two servers in an InferencePool: the overlay's configuration finds their load, and calls go to the right one."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from imp_service.pb import inference_pb2, model_pb2, model_pb2_grpc, types_pb2
from support.deploy.manifests import KUBERNETES
from support.servers.endpoint_picker import Picker
from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import ENDLESS, scripted

CONFIG: dict[str, Any] = yaml.safe_load((KUBERNETES / "overlays/inference_pool/picker.yaml").read_text())
PREFIXES = [f"Conversation {i}: " + f"the river {i} and the stone {i * 7} " * 12 for i in range(6)]
SHORT = "hello"


@pytest.fixture
def servers() -> Iterator[Mapping[str, HttpServed]]:
    """Two servers that run one request at a time."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(serve_http("scheduler.max_running=1", model=scripted(**ENDLESS)))
            for name in ("a", "b")
        }


def scrapes(servers: Mapping[str, HttpServed]) -> dict[str, Any]:
    """Returns the picker's reader of each server: /metrics of the port for requests."""
    return {
        name: lambda server=server: server.client.get("/metrics").content.decode() for name, server in servers.items()
    }


def complete(server: HttpServed, prompt: str) -> dict[str, Any]:
    reply = server.complete(prompt, max_tokens=4, temperature=0, ignore_eos=True)
    assert reply.status == 200, reply.content
    return dict(reply.json)


def test_gwy_4_the_picker_reads_what_the_servers_report(servers: Mapping[str, HttpServed]) -> None:
    loads = Picker(CONFIG, scrapes(servers)).refresh()
    for name, server in servers.items():
        stub = model_pb2_grpc.ModelServiceStub(server.served.channel())
        info = stub.GetServerInfo(model_pb2.GetServerInfoRequest())
        stats = server.served.stats()
        assert loads[name].block_tokens == info.kv_block_tokens == 16
        assert loads[name].n_blocks == stats.blocks_live + stats.blocks_cached + stats.blocks_free == 16_000
        assert (loads[name].waiting, loads[name].running, loads[name].kv_usage) == (0, 0, 0)


@pytest.mark.long
def test_gwy_4_calls_go_to_the_server_without_a_queue(servers: Mapping[str, HttpServed]) -> None:
    picker = Picker(CONFIG, scrapes(servers))
    busy, free = servers["a"].served, servers["b"]
    assert picker.pick(SHORT) == "a"  # both are idle: the first of equals
    stop = types_pb2.StopOptions(ignore_eos=True)
    request = inference_pb2.GenerateRequest(token_ids=types_pb2.TokenIds(ids=[300]), stop=stop)
    streams = [busy.inference.Generate(request) for _ in range(3)]
    busy.wait_until(lambda: busy.state.model.client.engine.stats().waiting == 2, "one runs and two wait")
    load = picker.refresh()["a"]
    assert (load.waiting, load.running) == (2, 1)
    assert load.kv_usage > 0
    for _ in range(6):  # a server renders ten pages at once, then ten a second
        assert picker.pick(SHORT) == "b"
        assert complete(free, SHORT)["usage"]["completion_tokens"] == 4
    for stream in streams:
        stream.cancel()
    busy.wait_for_rest()
    assert picker.refresh()["a"].waiting == 0
    assert picker.pick(SHORT) == "a"


@pytest.mark.long
def test_gwy_4_a_conversation_goes_to_the_server_that_has_its_beginning(servers: Mapping[str, HttpServed]) -> None:
    def cached_tokens(name: str, prompt: str) -> int:
        return int(complete(servers[name], prompt)["usage"]["prompt_tokens_details"]["cached_tokens"])

    picker = Picker(CONFIG, scrapes(servers))
    picker.refresh()
    homes = dict(zip(PREFIXES, "abbaab", strict=True))
    for prefix, home in homes.items():
        picker.sent(home, prefix)
        cached_tokens(home, prefix)
    for prefix, home in homes.items():
        prompt = prefix + "And then?"
        assert picker.pick(prompt) == home
        assert cached_tokens(home, prompt) > cached_tokens("ab".replace(home, ""), prompt) + 32


def test_gwy_4_a_wrong_name_of_a_metric_is_noticed(servers: Mapping[str, HttpServed]) -> None:
    wrong = copy.deepcopy(CONFIG)
    (engine,) = next(p for p in wrong["plugins"] if p["type"] == "core-metrics-extractor")["parameters"][
        "engineConfigs"
    ]
    engine["queuedRequestsSpec"] = "imp_requests_queued"
    with pytest.raises(KeyError, match="imp_requests_queued"):
        Picker(wrong, scrapes(servers)).refresh()
