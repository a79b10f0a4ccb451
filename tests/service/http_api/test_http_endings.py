"""How calls over HTTP end: failures with status and code, one record each, and a drain."""

from __future__ import annotations

import http.client
import json
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from imp_service.core import make_error
from imp_service.generation import ModelRuntime
from imp_service.http_api.openai.form import CODES
from imp_service.serving.errors.error_table import ERRORS, Detail
from imp_service.serving.lifecycle import Phase
from imp_service.serving.refusal import Refusal
from support.calls.failed_calls import failed
from support.calls.generations import in_one, streamed
from support.calls.http_calls import Reply
from support.calls.wire import ask
from support.servers.gate import ALL_STEPS, HELD, gate
from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import scripted

# From docs/contracts.md for gateways. A prompt that is too long is a bad request.
STATUSES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "CANCELLED": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 400,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
OPENAIS_OWN = {
    "CONTEXT_TOO_LONG": "context_length_exceeded",
    "MODEL_NOT_SERVED": "model_not_found",
    "TOKEN_MISSING": "invalid_api_key",
    "TOKEN_INVALID": "invalid_api_key",
    "QUEUE_FULL": "rate_limit_exceeded",
    "TENANT_LIMIT": "rate_limit_exceeded",
    "CANCELLED": "aborted",
}
# The same call can succeed later or elsewhere.
REPEATABLE = {"SESSION_BUSY", "QUEUE_FULL", "KV_FULL", "NO_MEMORY", "SESSIONS_FULL", "TENANT_LIMIT", "LOADING"}
REPEATABLE |= {"DRAINING", "NON_FINITE", "STALLED"}


@pytest.fixture(scope="module")
def http_() -> Iterator[HttpServed]:
    with serve_http() as it:
        it.served.is_checked = False  # tests cause faults in its log
        yield it


@pytest.mark.few(27)
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("reason", [reason for reason in ERRORS if reason != "BUG"])
def test_htp_10_every_reason_has_its_status_code_and_retry(
    http_: HttpServed, reason: str, is_streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ERRORS[reason]
    details = dict.fromkeys(row.metadata, "1")

    def fail(model: ModelRuntime, request: object, **how: object) -> None:
        raise Refusal(reason, "injected", details, 2.5 if Detail.RETRY_INFO in row.details else None)

    monkeypatch.setattr(ModelRuntime, "plan", fail)
    reply = http_.complete("x", stream=is_streamed)
    status = STATUSES.get(row.code, 500)
    assert (reply.status, reply.error["code"]) == (status, OPENAIS_OWN.get(reason, reason.lower()))
    # Agents and gateways search for OpenAI's words at the beginning.
    assert reply.error["message"].partition("; ")[0].endswith("injected") and reply.headers["x-request-id"]
    may_repeat = reason in REPEATABLE
    repeats = reply.headers.get("x-should-retry")
    is_repeated_by_default = status in (409, 429) or status >= 500
    assert repeats == ("false" if is_repeated_by_default and not may_repeat else None)
    waits = may_repeat and Detail.RETRY_INFO in row.details
    # Blocks become free when a lease ends; without any session the table's delay applies.
    seconds = 1.0 if reason == "KV_FULL" else 2.5
    expected = (str(math.ceil(seconds)), str(int(seconds * 1000))) if waits else (None, None)
    assert (reply.headers.get("retry-after"), reply.headers.get("retry-after-ms")) == expected
    assert set(OPENAIS_OWN) == set(CODES)


def test_htp_10_a_bug_tells_only_the_request(http_: HttpServed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: ModelRuntime, request: object, **how: object) -> None:
        raise RuntimeError("of the inside")

    monkeypatch.setattr(ModelRuntime, "plan", fail)
    reply = http_.complete("x")
    assert reply.refusal == (500, "bug", None) and reply.headers["x-should-retry"] == "false"
    assert "inside" not in reply.error["message"] and reply.headers["x-request-id"] in reply.error["message"]


def test_htp_10_what_can_never_fit_is_not_repeated(http_: HttpServed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: ModelRuntime, request: object, **how: object) -> None:
        raise make_error("KV_FULL", "too large", {"needed": "9", "available": "1", "total": "4"})

    monkeypatch.setattr(ModelRuntime, "plan", fail)
    reply = http_.complete("x")
    assert (reply.refusal, reply.headers["x-should-retry"]) == ((429, "kv_full", None), "false")
    assert "retry-after" not in reply.headers


@pytest.mark.parametrize("prompt", [[HELD], [[HELD], [HELD]]])
def test_rpc_8_requests_over_http_share_an_id_and_a_request_over_grpc_does_not(prompt: Any) -> None:
    name = {"x-request-id": "mine"}
    with (
        gate() as held,
        serve_http(model=held.model(max_context=2000, n_blocks=200)) as it,
        ThreadPoolExecutor() as pool,
    ):

        def completion(prompt: list[Any]) -> tuple[str, dict[str, Any]]:
            return "/v1/completions", {"prompt": prompt, "max_tokens": 2, "ignore_eos": True}

        first = pool.submit(it.client.post, *completion(prompt), **name)
        held.wait()
        over_grpc = failed(lambda: streamed(it.served, ask([300], 2, request_id="mine")))
        assert (over_grpc.code, over_grpc.reason) == ("ALREADY_EXISTS", "REQUEST_ID_IN_USE")
        second = pool.submit(it.client.post, *completion([300]), **name)
        third = pool.submit(it.client.stream, *completion([300]), **name)
        n_prompts = len(prompt) if isinstance(prompt[0], list) else 1
        it.served.wait_until(lambda: len(it.served.state.requests) == n_prompts + 2, "all of them run")
        held.open(ALL_STEPS)
        answers = [first.result(), second.result(), third.result()]
        assert [(each.status, each.headers["x-request-id"]) for each in answers] == [(200, "mine")] * 3
        ids = {first.result().json["id"], second.result().json["id"], third.result().objects[0]["id"]}
        assert len(ids) == 3 and all(each.startswith("cmpl-mine-") for each in ids)
        it.wait_for_rest()
        assert streamed(it.served, ask([300], 2, request_id="mine")).outputs


def test_rpc_8_abort_ends_every_request_with_the_id() -> None:
    with (
        gate() as held,
        serve_http(model=held.model(max_context=2000, n_blocks=200)) as it,
        ThreadPoolExecutor() as pool,
    ):

        def complete(name: str) -> Reply:
            body = {"prompt": [HELD], "max_tokens": 2, "ignore_eos": True}
            return it.client.post("/v1/completions", body, **{"x-request-id": name})

        named = [pool.submit(complete, "mine") for _ in range(2)]
        other = pool.submit(complete, "other")
        it.served.wait_until(
            lambda: sum(r.stream is not None for r in it.served.state.requests) == 3, "all of them run"
        )
        aborted = it.served.call(lambda: it.served.state.requests.abort({"mine"}))
        assert aborted == ["mine", "mine"]
        held.open(ALL_STEPS)
        assert [each.result().refusal[1] for each in named] == ["aborted"] * 2
        assert other.result().status == 200


COUNTS = ("imp_requests_started_total", "imp_requests_ended_total", "imp_requests_active")


def counts_of(served: Any) -> dict[str, float]:
    """Returns sums over the labels of the metrics that both transports count alike."""
    metrics = served.state.telemetry.metrics.registry
    names = (*COUNTS, "imp_output_tokens_total", "imp_request_finish_total", "imp_request_seconds_count")

    def collect() -> dict[str, float]:
        samples = [sample for family in metrics.collect() for sample in family.samples]
        return {name: sum(each.value for each in samples if each.name == name) for name in names}

    found: dict[str, float] = served.call(collect)
    return found


def test_htp_11_a_request_counts_as_over_grpc() -> None:
    with serve_http() as it:

        def growth(work: Callable[[], Any]) -> dict[str, float]:
            before = counts_of(it.served)
            work()
            it.wait_for_rest()
            return {name: value - before[name] for name, value in counts_of(it.served).items()}

        same = {"temperature": 0, "max_tokens": 7, "ignore_eos": True}
        request = ask("the cat", 7)
        request.stop.ignore_eos = True
        whole = growth(lambda: in_one(it.served, request))
        assert whole["imp_output_tokens_total"] == 7 and whole["imp_requests_started_total"] == 1
        assert growth(lambda: it.complete("the cat", **same)) == whole
        stream = growth(lambda: streamed(it.served, request))
        body = {"prompt": "the cat", **same}
        assert growth(lambda: it.client.stream("/v1/completions", body)) == stream


def test_htp_11_every_call_has_one_line_and_no_label_has_a_callers_words() -> None:
    with serve_http() as it:
        word = "quite-unusual-word"
        asked: list[Callable[[], Any]] = [
            lambda: it.complete(word, max_tokens=1, user=word),
            lambda: it.complete("x", max_tokens=1, nosuch=word),
            lambda: it.complete("x", model=word),
            lambda: it.client.get(f"/v1/models/{word}"),
            lambda: it.client.get("/v1/models"),
            lambda: it.client.stream("/v1/completions", {"prompt": word, "max_tokens": 1}),
        ]
        for call in asked:
            begin = it.served.log_bytes
            call()
            it.wait_for_rest()

            def lines_of_calls(begin: int = begin) -> list[str]:
                return [line for line in it.served.log_lines(begin) if '"event": "call' in line]

            # The client may read the answer before the server writes the line.
            it.served.wait_until(lambda: bool(lines_of_calls()), "a line of the call")
            lines = lines_of_calls()
            assert len(lines) == 1
            assert word not in lines[0]
        for path in (f"/{word}", f"/v1/{word}"):
            it.client.get(path)
        it.client.request(word.upper(), "/v1/models", None, {})
        text = it.client.get("/metrics").content.decode()
        assert word not in text.lower() and "/v1/models/{id}" in text


def test_l02_the_watchdog_speaks_for_liveness(http: HttpServed) -> None:
    for is_alive, status in ((False, 503), (True, 200)):
        watchers = http.served.state.watchdog._watchers
        http.served.call(lambda told=is_alive, watchers=watchers: [tell(told) for tell in watchers])
        assert (http.client.get("/health/live").status, http.client.get("/health").status) == (status, 200)


def test_htp_12_a_drain_refuses_new_requests_and_lets_streams_end() -> None:
    with gate() as held, serve_http(model=held.model(max_context=2000, n_blocks=200)) as it:
        stream = it.client.streaming("/v1/completions", {"prompt": [HELD - 2], "max_tokens": 9, "ignore_eos": True})
        next(stream)
        held.wait()
        kept = http.client.HTTPConnection("localhost")
        kept.sock = it.socket()
        it.served.call(lambda: it.served.state.drain.begin(is_final=True))
        health = it.client.get("/health")
        assert health.status == 503
        assert it.client.get("/health/live").status == 200
        refused = it.complete("x")
        assert refused.refusal == (503, "draining", None)
        assert (refused.headers["retry-after"], refused.headers["connection"]) == ("0", "close")
        assert "x-should-retry" not in refused.headers
        held.open(ALL_STEPS)
        *_, events = stream
        assert events.has_done
        stopping = threading.Thread(target=it.stop, args=(1.0,))
        stopping.start()
        stopping.join()
        kept.close()


def test_rsm_8_a_drain_does_not_wait_for_requests_that_go_on_elsewhere() -> None:
    with gate() as held, serve_http("drain.delay=10s", model=held.model(max_context=2000, n_blocks=200)) as it:
        body = {"prompt": [HELD - 2], "max_tokens": 9, "ignore_eos": True, "stream": True, "resume": {}}
        connection = http.client.HTTPConnection("localhost")
        connection.sock = it.socket()
        headers = {"content-type": "application/json", "imp-resumes": "1"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        with closing(connection), connection.getresponse() as response:
            held.wait()
            it.served.call(lambda: it.served.state.drain.begin(is_final=True))
            it.served.jump(10)
            assert response.read().endswith(b': imp {"end":"DRAINING"}\n\n')
        it.served.wait_until(lambda: it.served.state.drain.is_drained, "drained")
        held.open(ALL_STEPS)


@pytest.mark.parametrize("fields", [{}, {"prompt": [[HELD - 2], [300]], "resume": {}}])
def test_rsm_8_a_drain_waits_for_streams_that_have_no_marks(fields: dict[str, Any]) -> None:
    """Nobody could go on with what was sent: a stream without the field `resume`, or of several prompts."""
    with gate() as held, serve_http("drain.delay=10s", model=held.model(max_context=2000, n_blocks=200)) as it:
        body = {"prompt": [HELD - 2], "max_tokens": 9, "ignore_eos": True, **fields}
        stream = it.client.streaming("/v1/completions", body, imp_resumes="1")
        next(stream)
        held.wait()
        it.served.call(lambda: it.served.state.drain.begin(is_final=True))
        it.served.jump(10)
        it.served.wait_until(lambda: it.served.state.lifecycle.phase is Phase.DRAINING, "new calls are refused")
        held.open(ALL_STEPS)
        *_, events = stream
        assert events.has_done


def test_htp_12_a_stream_beyond_the_grace_ends_with_the_error() -> None:
    with serve_http("drain.grace=100ms", model=scripted(max_context=100_000, n_blocks=7000)) as it:
        body = {"prompt": [300], "max_tokens": 90_000, "ignore_eos": True}
        stream = it.client.streaming("/v1/completions", body)
        next(stream)
        next(stream)
        it.served.call(lambda: it.served.state.drain.begin(is_final=True))
        it.served.jump(1)
        *_, events = stream
        assert events.error is not None and events.error["code"] == "draining"
