"""SMG in front of two HTTP servers: the answers are the same, and no call fails while one of the servers stops."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from imp_service.pb import model_pb2, model_pb2_grpc
from support.calls.http_calls import HttpClient, Reply
from support.run.patience import HANGS_AFTER
from support.servers.scraped import series_of
from support.servers.served_models import built_in
from support.servers.shared_prefixes import Prefixes
from support.servers.smg_gateway import Pair, pair_behind

MODEL = "imp-demo"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
SAID = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12}
CALLS: Sequence[tuple[str, dict[str, Any]]] = [
    (CHAT, SAID | {"temperature": 0}),
    (CHAT, SAID | {"seed": 7, "temperature": 1.5, "n": 2}),
    (CHAT, SAID | {"seed": 8, "logprobs": True, "top_logprobs": 3, "stop": ["e"]}),
    (CHAT, SAID | {"seed": 9, "response_format": SCHEMA}),
    (COMPLETIONS, {"model": MODEL, "prompt": "the cat", "max_tokens": 12, "temperature": 0}),
    (COMPLETIONS, {"model": MODEL, "prompt": "a river", "max_tokens": 12, "seed": 3, "logprobs": 2, "stop": "."}),
]
N_CLIENTS = 4
N_CALLS = 60  # before a server stops, and after
WATCH = model_pb2.WatchLoadRequest()


def choices_of(reply: Reply) -> Any:
    assert reply.status == 200, reply.content
    return reply.json["choices"]


def streamed(client: HttpClient, path: str, body: dict[str, Any]) -> dict[int, list[str]]:
    """Returns text and finish reason of each choice of a stream."""
    found: dict[int, list[str]] = {}
    for each in client.stream(path, body).objects:
        for choice in each["choices"]:
            text = choice.get("text") or choice.get("delta", {}).get("content") or ""
            parts = found.setdefault(choice["index"], ["", ""])
            parts[0] += text
            parts[1] += choice["finish_reason"] or ""
    return found


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_gwy_2_answers_are_those_of_a_server_alone(
    pair: Pair, alone: HttpClient, path: str, body: dict[str, Any]
) -> None:
    expected = choices_of(alone.post(path, body))
    replies = [pair.gateway.client.post(path, body) for _ in range(2)]
    assert [choices_of(reply) for reply in replies] == [expected, expected]
    assert len({reply.headers["imp-instance-id"] for reply in replies}) == 2  # each server answered once
    assert choices_of(alone.post(path, body | {"max_tokens": 3})) != expected


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_gwy_2_streams_are_those_of_a_server_alone(
    pair: Pair, alone: HttpClient, path: str, body: dict[str, Any]
) -> None:
    expected = streamed(alone, path, body)
    whole = choices_of(alone.post(path, body))
    texts = [each["text"] if "text" in each else each["message"]["content"] for each in whole]
    assert [text for text, _ in expected.values()] == texts
    assert streamed(pair.gateway.client, path, body) == expected


def test_gwy_2_the_tokens_are_those_of_the_model(pair: Pair, alone: HttpClient) -> None:
    canary = built_in().canary
    assert canary is not None  # narrows the type
    # SMG accepts a completion's prompt only as text.
    prompt = alone.post("/detokenize", {"tokens": canary.prompt_ids}).json["prompt"]
    body = {"model": MODEL, "prompt": prompt, "max_tokens": len(canary.output_ids), "temperature": 0}
    (choice,) = choices_of(pair.gateway.client.post(COMPLETIONS, body | {"return_token_ids": True}))
    assert (choice["prompt_token_ids"], choice["token_ids"]) == (list(canary.prompt_ids), list(canary.output_ids))


def test_gwy_2_a_client_that_leaves_frees_its_sequence(pair: Pair) -> None:
    def cancelled() -> float:
        pages = [series_of(server.get("/metrics").content.decode()) for server in pair.http_clients]
        return sum(page["imp_requests_ended_total[outcome=cancelled]"] for page in pages)

    before = cancelled()
    body = {"model": MODEL, "prompt": "the cat", "max_tokens": 480, "ignore_eos": True, "max_chunk_tokens": 1}
    with closing(pair.gateway.client.streaming(COMPLETIONS, body)) as stream:
        list(itertools.islice(stream, 3))
    wait_for_rest(pair)
    assert cancelled() - before == 1


def wait_for_rest(pair: Pair) -> None:
    """Waits until nothing runs on either server."""
    for server in pair.servers:
        with server.connection() as channel:
            watching = model_pb2_grpc.ModelServiceStub(channel).WatchLoad(WATCH, timeout=HANGS_AFTER)
            assert any(reply.load.running == 0 for reply in watching)
            watching.cancel()


class Load:
    """Clients that call repeatedly until they are stopped, and the problems that they found."""

    def __init__(self, client: HttpClient, calls: Iterable[tuple[str, dict[str, Any], bool]]) -> None:
        """Each call is a path, a body, and whether the answer is streamed."""
        self.n_asked = 0
        self.problems: list[object] = []
        self.is_stopped = False
        self._client = client
        self._calls = itertools.cycle(calls)
        self._changed = threading.Condition()

    def ask(self) -> None:
        """Runs one client."""
        while not self.is_stopped:
            with self._changed:
                call = next(self._calls)
            try:
                problem = self._problem(*call)
            except Exception as error:
                problem = error
            with self._changed:
                self.n_asked += 1
                self.problems += [] if problem is None else [problem]
                self._changed.notify_all()

    def wait_for(self, n_more: int) -> None:
        """Waits until `n_more` more calls have ended."""
        with self._changed:
            n_until = self.n_asked + n_more
            assert self._changed.wait_for(lambda: self.n_asked >= n_until, HANGS_AFTER)

    def _problem(self, path: str, body: dict[str, Any], is_streamed: bool) -> object:
        if is_streamed:
            return self._client.stream(path, body).error
        reply = self._client.post(path, body)
        return None if reply.status == 200 else (reply.status, reply.content)


# SMG repeats a call whose server died, unless its stream has begun.
@pytest.mark.parametrize(
    ("number", "streams"), [(signal.SIGTERM, True), (signal.SIGKILL, False)], ids=["drained", "killed"]
)
def test_gwy_2_no_request_fails_while_one_of_two_servers_goes(
    smg: None, tmp_path: Path, number: signal.Signals, streams: bool
) -> None:
    with pair_behind(tmp_path, "--policy", "round_robin") as pair:
        path, body = CALLS[0]
        expected = choices_of(pair.http_clients[0].post(path, body))
        kinds = (False, True) if streams else (False,)
        load = Load(pair.gateway.client, [(*call, kind) for call in CALLS for kind in kinds])
        with ThreadPoolExecutor(N_CLIENTS) as pool:
            clients = [pool.submit(load.ask) for _ in range(N_CLIENTS)]
            try:
                load.wait_for(N_CALLS)
                pair.servers[1].signal(number)
                status = pair.servers[1].wait_for_end()
                load.wait_for(N_CALLS)
            finally:
                load.is_stopped = True
        assert [client.result() for client in clients] == [None] * N_CLIENTS
        assert load.problems == []
        assert status == (0 if number == signal.SIGTERM else -number)
        assert choices_of(pair.gateway.client.post(path, body)) == expected


@pytest.mark.alone
def test_gwy_2_requests_find_the_server_that_has_their_prefix(smg: None, tmp_path: Path) -> None:
    """The cache of each server fits two thirds of the conversations."""
    prefixes = Prefixes.make(12, 280, 6, seed=3)
    shares = {}
    for policy in ("cache_aware", "round_robin"):
        (tmp_path / policy).mkdir()
        with pair_behind(tmp_path / policy, "--policy", policy, settings=["kv.bytes=6MiB"]) as pair:
            page = series_of(pair.http_clients[0].get("/metrics").content.decode())
            n_room = 16 * sum(page[f"imp_kv_blocks[state={state}]"] for state in ("live", "cached", "free"))
            n_held = sum(
                pair.http_clients[0].post("/tokenize", {"prompt": text}).json["count"] for text in prefixes.texts
            )
            assert 0.6 < n_room / n_held < 0.75
            shares[policy] = prefixes.cached_share(pair.gateway.client, MODEL)
    assert shares["cache_aware"] >= 0.85
    assert shares["cache_aware"] >= 1.4 * shares["round_robin"]
