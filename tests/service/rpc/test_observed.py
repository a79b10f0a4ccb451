"""Monitoring of a server: its counters add up over real calls, and the watchdog sees stalls."""

from __future__ import annotations

import os
import random
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from imp_service import __version__
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import model_pb2, model_pb2_grpc
from imp_service.serving.generation_stream import GenerationStream
from support.calls.deadlines import deadline_beyond, let_requests_travel
from support.calls.failed_calls import failed
from support.calls.session_calls import SessionCalls
from support.run.quick_run import Repeats
from support.servers.gate import HELD, Gate, gate
from support.servers.scraped import outcomes, scrape, series_of
from support.servers.served import Served, ask, serve
from support.servers.served_models import ENDLESS, scripted

# The engine hangs or fails at this token.
HANGING = FAILING = 399


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(model=scripted(**ENDLESS)) as found:
        yield found


def at_rest(served: Served) -> dict[str, float]:
    """Returns the samples after every call and every sequence has ended."""
    served.wait_until(lambda: not served.state.calls.n_requests, "no request is left")
    served.wait_for_rest()
    return scrape(served)


def assert_adds_up(series: dict[str, float]) -> None:
    assert series["imp_requests_started_total"] == sum(outcomes(series).values()) + series["imp_requests_active"]


def generations(n: int) -> Iterator[pb.GenerateRequest]:
    """Yields requests of every kind that ends well: several sequences, chunk sizes, stop tokens in the text or not."""
    draw = random.Random(5)
    for i in range(n):
        request = ask(list(range(300, 300 + draw.randint(1, 40))), draw.randint(1, 25))
        request.num_sequences = draw.choice([1, 1, 1, 2, 3])
        request.output.max_chunk_tokens = draw.choice([1, 2, 1000])
        if i % 3 == 0:
            request.stop.token_ids.append(300 + draw.randint(30, 60))
            request.stop.include_match = bool(i % 2)
        yield request


@pytest.mark.long
def test_obs_1_obs_2_tokens_are_those_of_usage_however_they_are_sent(served: Served) -> None:
    prompt = cached = output = n_sequences = 0
    for i, request in enumerate(generations(250)):
        if i % 2:
            usage = list(served.inference.Generate(request))[-1].finished.usage
        else:
            usage = served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=request)).usage
        prompt, cached = prompt + usage.prompt_tokens, cached + usage.cached_prompt_tokens
        output, n_sequences = output + usage.output_tokens, n_sequences + request.num_sequences
    series = at_rest(served)
    assert series["imp_prompt_tokens_total[kind=cached]"] == cached > 0
    assert series["imp_prompt_tokens_total[kind=computed]"] == prompt - cached
    assert series["imp_output_tokens_total"] == output
    firsts = series["imp_time_to_first_token_seconds_count"]
    assert firsts + series["imp_inter_token_seconds_count"] == output
    finished = sum(n for name, n in series.items() if name.startswith("imp_request_finish_total"))
    assert finished == n_sequences
    assert outcomes(series)["finished"] == series["imp_requests_started_total"] == 250
    assert series["imp_request_seconds_count"] == series["imp_queue_seconds_count"] == 250
    assert_adds_up(series)


def test_obs_1_obs_2_steps_of_sessions_count_their_tokens(served: Served) -> None:
    client = SessionCalls(served)
    sessions = [client.prefill([300 + i, 301]).session_id for i in range(3)]
    for _ in range(4):
        client.steps(*(pb.SessionStep(session_id=name) for name in sessions))
    served.wait_for_calls()
    series = scrape(served)
    assert series["imp_prompt_tokens_total[kind=computed]"] == 6
    assert series["imp_time_to_first_token_seconds_count"] == 3
    assert series["imp_inter_token_seconds_count"] == 12
    assert series["imp_output_tokens_total"] == 15
    assert_adds_up(series)


def cancel_one(served: Served) -> None:
    endless = ask([400], None)
    endless.stop.ignore_eos = True
    stream = served.inference.Generate(endless)
    next(stream)
    stream.cancel()


def end_in_some_way(served: Served, kind: str, held: Gate) -> list[str]:
    """Makes calls of this kind, and returns the outcomes of the requests that it took."""
    match kind:
        case "finished":
            list(served.inference.Generate(ask([400], 3)))
        case "refused":
            assert failed(lambda: list(served.inference.Generate(ask([400], 3, model="nobody")))).code == "NOT_FOUND"
        case "cancelled":
            cancel_one(served)
        case "timed_out":
            # The deadline passes within a step, so that a slow machine makes the deadline neither too long nor too
            # short.
            seconds = deadline_beyond(lambda: end_in_some_way(served, "finished", held))
            stream = served.inference.Generate(ask([HELD], 9), timeout=seconds)
            held.wait()
            assert failed(lambda: list(stream)).code == "DEADLINE_EXCEEDED"
            served.wait_for_calls()
            held.open()
            return ["finished", kind]
        case "failed":
            failed_ = failed(lambda: list(served.inference.Generate(ask([HANGING], 3))))
            assert failed_.reason == "BUG"
    return [kind]


@pytest.mark.long
def test_obs_1_each_kind_of_end_has_its_own_count(monkeypatch: pytest.MonkeyPatch, repeats: Repeats) -> None:
    let_requests_travel(monkeypatch)
    draw = random.Random(3)
    asked = draw.choices(["finished", "refused", "cancelled", "failed"], k=repeats(240)) + ["timed_out"] * 3
    # However many tokens a stream gets before its deadline, it never draws the failing one.
    table = [FAILING + 1 + i % 100 for i in range(ENDLESS["max_context"])]
    script = {"failing_token": FAILING}
    with gate() as held, serve(model=held.model("table", table, script=script, **ENDLESS)) as served:
        kinds = [ended for kind in asked for ended in end_in_some_way(served, kind, held)]
        series = at_rest(served)
        found = outcomes(series)
        assert found == {kind: kinds.count(kind) for kind in found}
        assert_adds_up(series)
        assert series["imp_errors_total[code=NOT_FOUND][reason=MODEL_NOT_SERVED]"] == kinds.count("refused")
        # Each abandoned run was cancelled in the engine, and its time to free blocks was recorded. On a busy machine a
        # deadline may pass before the engine has the run.
        n_cancelled, n_timed_out = kinds.count("cancelled"), kinds.count("timed_out")
        assert n_cancelled <= series["imp_cancel_to_free_seconds_count"] <= n_cancelled + n_timed_out


@pytest.mark.long
def test_obs_9_every_cancel_is_timed(served: Served) -> None:
    for _ in range(20):
        cancel_one(served)
    series = at_rest(served)
    assert series["imp_cancel_to_free_seconds_count"] == 20


def seconds(value: Any) -> float:
    return float(value.ToNanoseconds()) / 1e9


@pytest.mark.long
def test_obs_3_the_parts_of_a_request_are_no_more_than_the_whole(served: Served) -> None:
    for request in generations(20):
        began = time.monotonic()
        times = list(served.inference.Generate(request))[-1].finished.timings
        parts = [seconds(part) for part in (times.queue, times.prefill, times.decode)]
        assert sum(parts) <= time.monotonic() - began
        assert min(parts[:2]) > 0
    client = SessionCalls(served)
    began = time.monotonic()
    opened = client.prefill([300, 301])
    prefilled = opened.timings
    spent = sum(seconds(part) for part in (prefilled.queue, prefilled.prefill, prefilled.decode))
    for _ in range(10):
        reply = client.steps(pb.SessionStep(session_id=opened.session_id))
        spent += seconds(reply.forward)
    assert 0 < spent <= time.monotonic() - began


class Hung:
    """A server whose engine hangs at one token until it is released."""

    def __init__(self, *settings: str) -> None:
        self._gate, self._opener = os.pipe()
        self._hung, hung_fd = os.pipe()
        self._descriptors = [self._gate, self._opener, self._hung, hung_fd]
        script = {"hanging_token": HANGING, "hung_fd": hung_fd, "gate_fd": self._gate}
        self._serving = serve(*settings, model=scripted(script=script))
        self.served = self._serving.__enter__()

    def hang(self) -> Any:
        """Starts a request and waits until the engine hangs at the token."""
        stream = self.served.inference.Generate(ask([HANGING], 2))
        os.read(self._hung, 1)
        return stream

    def release(self) -> None:
        os.write(self._opener, b"x")

    def close(self) -> None:
        self.release()  # if a test failed before
        self._serving.__exit__(None, None, None)
        for descriptor in self._descriptors:
            os.close(descriptor)


@pytest.fixture
def hung() -> Iterator[Hung]:
    found = Hung("watchdog.engine_stall=50ms")
    yield found
    found.close()


def test_obs_8_rpc_16_silence_is_reported_by_load_and_by_metrics(hung: Hung) -> None:
    served = hung.served
    stub = model_pb2_grpc.ModelServiceStub(served.channel())
    served.wait_for_rest()
    idle = stub.GetLoad(model_pb2.GetLoadRequest()).load
    assert (seconds(idle.silence), scrape(served)["imp_engine_silence_seconds"]) == (0, 0)
    stream = hung.hang()
    told = stub.GetLoad(model_pb2.GetLoadRequest()).load
    later = scrape(served)["imp_engine_silence_seconds"]
    last = stub.GetLoad(model_pb2.GetLoadRequest()).load
    assert 0 < seconds(told.silence) < later < seconds(last.silence)
    hung.release()
    list(stream)
    served.wait_until(lambda: served.state.utilization.snapshot().silence == 0, "silence is over")


def test_l02_lif_2_liveness_fails_while_the_engine_hangs_and_only_then(hung: Hung) -> None:
    served = hung.served
    health = health_pb2_grpc.HealthStub(served.channel())

    def status(service: str) -> str:
        reply = health.Check(health_pb2.HealthCheckRequest(service=service))
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))

    assert (status("liveness"), status("")) == ("SERVING", "SERVING")
    stream = hung.hang()
    served.wait_until(lambda: not served.state.watchdog.is_alive, "the watchdog sees it")
    assert status("liveness") == "NOT_SERVING"
    hung.release()
    list(stream)
    served.wait_until(lambda: served.state.watchdog.is_alive, "the watchdog sees it")
    assert status("liveness") == "SERVING"


def test_r16_a_lost_wake_up_ends_as_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve("watchdog.request_stall=60s", model=scripted()) as served, ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(GenerationStream, "_wake", lambda self: None)
        ended = threads.submit(lambda: failed(lambda: list(served.inference.Generate(ask([400], 5)))))
        requests = served.state.requests
        served.wait_until(lambda: len(requests) == 1 and all(not each.is_open for each in requests), "it is made")
        # The watchdog first sees the stall, and then that its time limit has passed.
        for _ in range(2):
            served.call(served.state.watchdog.check)
            served.jump(61)
        stalled = ended.result()
        assert (stalled.code, stalled.reason) == ("INTERNAL", "STALLED")
        monkeypatch.undo()
        series = at_rest(served)
    assert series["imp_requests_stalled_total"] == 1
    assert series["imp_errors_total[code=INTERNAL][reason=STALLED]"] == 1


def test_obs_7_metrics_are_served_where_they_are_asked_for() -> None:
    with serve("listen.metrics=127.0.0.1:0", model=scripted()) as served:
        list(served.inference.Generate(ask([400], 7)))
        with urllib.request.urlopen(f"http://{served.http.metrics_address}/metrics") as reply:
            series = series_of(reply.read().decode())
    assert series["imp_output_tokens_total"] == 7
    (model,) = [name for name in series if name.startswith("imp_model_info")]
    assert "[model=imp demo]" in model and "[architecture=qwen3]" in model and f"[version={__version__}]" in model
    labels = "[grpc_method=Generate][grpc_service=imp.v1.InferenceService][grpc_type=server_stream]"
    assert series[f"grpc_server_started_total{labels}"] == 1
    with serve(model=scripted()) as served:
        assert served.http.metrics_address is None


def test_obs_7_a_method_that_is_not_ours_makes_no_series(served: Served) -> None:
    before = scrape(served).keys()
    for i in range(20):
        call = served.channel().unary_unary(f"/imp.v1.InferenceService/Made{i}")
        with pytest.raises(grpc.RpcError):
            call(b"")
    assert scrape(served).keys() == before


@pytest.mark.long
def test_smp_17_d01_logits_that_are_not_finite_end_one_request_of_four_and_are_counted() -> None:
    bad = 777
    with serve(model=scripted("counter", script={"nan_token": bad})) as served:
        stub = served.inference
        calls = [stub.GenerateUnary.future(unary(ask([first], 20))) for first in (300, 400, bad, 500)]
        refusal = failed(calls[2].result)
        assert (refusal.code, refusal.reason, refusal.metadata) == ("INTERNAL", "NON_FINITE", {"position": "1"})
        for each, first in zip(calls, (300, 400, None, 500), strict=True):
            if first is not None:
                assert list(each.result().sequences[0].output.token_ids) == list(range(first + 1, first + 21))
        assert at_rest(served)["imp_errors_total[code=INTERNAL][reason=NON_FINITE]"] == 1


def unary(request: pb.GenerateRequest) -> pb.GenerateUnaryRequest:
    return pb.GenerateUnaryRequest(request=request)
