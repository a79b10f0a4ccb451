"""Counters of calls: each call and each token counts once, however they end and arrive."""

import random

import pytest

from imp_service.telemetry import Method
from imp_service.telemetry.access_log import access_fields
from support.servers.telemetry_bench import GENERATE, GET_LOAD, Sparse, Spent, TelemetryBench, Used


def test_obs_1_counters_add_up_over_every_kind_of_end(bench: TelemetryBench) -> None:
    """500 mixed calls, some of which are still active."""
    draw = random.Random(11)
    endings = ["finished", "refused", "failed", "timed_out", "cancelled", "active"]
    expected = dict.fromkeys(endings, 0)
    prompt = cached = output = 0
    for _ in range(500):
        kind = draw.choice(endings)
        expected[kind] += 1
        record = bench.call()
        if kind == "refused":
            record.ended("RESOURCE_EXHAUSTED", "QUEUE_FULL")
            continue
        usage = Used(draw.randint(1, 50), 0, draw.randint(1, 30))
        usage.cached_prompt_tokens = draw.randint(0, usage.prompt_tokens)
        record.started(usage.prompt_tokens, usage.cached_prompt_tokens)
        record.sampled(usage.output_tokens, bench.now)
        prompt, cached, output = (
            prompt + usage.prompt_tokens,
            cached + usage.cached_prompt_tokens,
            output + usage.output_tokens,
        )
        if kind == "finished":
            record.finished(["stop"], usage, Spent())
            record.ended("OK")
        elif kind != "active":
            code = {"failed": "INTERNAL", "timed_out": "DEADLINE_EXCEEDED", "cancelled": "CANCELLED"}[kind]
            record.ended(code, "BUG" if kind == "failed" else "")
    series = bench.series()
    found = {kind: series[f"imp_requests_ended_total[outcome={kind}]"] for kind in endings if kind != "active"}
    assert found | {"active": series["imp_requests_active"]} == expected
    assert series["imp_requests_started_total"] == sum(expected.values()) == 500
    assert series["imp_prompt_tokens_total[kind=computed]"] == prompt - cached
    assert series["imp_prompt_tokens_total[kind=cached]"] == cached
    assert series["imp_output_tokens_total"] == output
    assert series["imp_request_finish_total[reason=stop]"] == expected["finished"]
    assert series["imp_errors_total[code=RESOURCE_EXHAUSTED][reason=QUEUE_FULL]"] == expected["refused"]
    assert series["imp_errors_total[code=INTERNAL][reason=BUG]"] == expected["failed"]


@pytest.mark.parametrize(
    ("code", "is_started", "outcome"),
    [
        ("OK", True, "finished"),
        ("RESOURCE_EXHAUSTED", False, "refused"),
        ("RESOURCE_EXHAUSTED", True, "failed"),
        ("UNAVAILABLE", False, "refused"),
        ("UNAVAILABLE", True, "failed"),
        ("INTERNAL", False, "failed"),
        ("DEADLINE_EXCEEDED", False, "timed_out"),
        ("CANCELLED", True, "cancelled"),
    ],
)
def test_obs_1_what_was_evaluated_is_a_failure_and_no_refusal(
    bench: TelemetryBench, code: str, is_started: bool, outcome: str
) -> None:
    record = bench.call()
    if is_started:
        record.started(3, 0)
    record.ended(code, "SOME")
    assert record.facts.outcome == outcome


def test_obs_1_a_second_end_is_our_bug(bench: TelemetryBench) -> None:
    record = bench.call()
    record.ended("OK")
    with pytest.raises(RuntimeError, match="ended twice"):
        record.ended("OK")


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_obs_2_every_token_is_observed_once_however_they_came(bench: TelemetryBench, chunk: int) -> None:
    record = bench.call()
    left, n_streams = 1000, 2
    while left:
        n = min(chunk, left)
        left -= n
        bench.now += 0.01 * n
        for stream in range(n_streams):
            record.sampled(n, bench.now, stream)
    # A stop token in the output comes with the end.
    record.finished(["stop", "stop"], Used(5, 0, 2002), Spent())
    series = bench.series()
    first, between = series["imp_time_to_first_token_seconds_count"], series["imp_inter_token_seconds_count"]
    assert (first, first + between) == (n_streams, 2002)
    assert series["imp_output_tokens_total"] == first + between
    # Twice a thousand tokens of 10 ms each, except each stream's first chunk. Stop tokens add nothing.
    assert series["imp_inter_token_seconds_sum"] == pytest.approx(2 * 10.0 - 2 * 0.01 * chunk)


def test_obs_2_a_gap_is_shared_by_the_tokens_that_came_after_it(bench: TelemetryBench) -> None:
    record = bench.call()
    bench.now += 0.2
    record.sampled(1, bench.now)
    bench.now += 0.16
    record.sampled(4, bench.now)
    series = bench.series()
    assert series["imp_time_to_first_token_seconds_bucket[le=0.25]"] == 1
    assert series["imp_time_to_first_token_seconds_bucket[le=0.1]"] == 0
    # Four gaps of 40 ms each.
    assert series["imp_inter_token_seconds_bucket[le=0.03]"] == 0
    assert series["imp_inter_token_seconds_bucket[le=0.05]"] == 4
    assert series["imp_inter_token_seconds_sum"] == pytest.approx(0.16)


def test_obs_2_steps_of_sessions_count_their_tokens_too(bench: TelemetryBench) -> None:
    record = bench.call()
    record.prefilled(40, 16, 1, 0.03)
    record.stepped(8, 0.012)
    record.stepped(0, 0.012)
    series = bench.series()
    assert series["imp_time_to_first_token_seconds_count"] == 1
    assert series["imp_inter_token_seconds_count"] == 8
    assert series["imp_output_tokens_total"] == 9
    assert series["imp_prompt_tokens_total[kind=computed]"] == 24


def test_obs_7_o13_labels_have_a_bound_whoever_calls(bench: TelemetryBench) -> None:
    """Ten thousand tenants, ids and invented methods add no series."""
    bench.call(tenant="first").ended("OK")
    bench.telemetry.call("/made.Up/Method", "r", "", "").ended("UNIMPLEMENTED", "")
    before = bench.series().keys()
    for i in range(10_000):
        method = Method("made.up", f"Method{i}", "unary") if i % 2 else GENERATE
        code, reason = ("OK", "") if i % 2 == 0 else ("UNIMPLEMENTED", "")
        bench.call(method, tenant=f"tenant{i}", request_id=f"id{i}").ended(code, reason)
    assert bench.series().keys() == before


def test_obs_7_what_is_not_built_has_no_series(bench: TelemetryBench) -> None:
    names = bench.series().keys()
    assert [name for name in names if any(word in name for word in ("spec", "sparse", "graph", "parity"))] == []


def test_spc_47_a_sparse_prompt_is_counted_by_what_was_evaluated(bench: TelemetryBench) -> None:
    """10 cached tokens, 90 that were scored, and 30 of those evaluated; then a dense prompt with its reason."""
    bench.call().started(100, 10, Sparse(True, "", 90, 30))
    bench.call().started(50, 0, Sparse(False, "below_threshold"))
    bench.call().started(7, 0)
    series = bench.series()
    kinds = ("computed", "cached", "sparse_skipped")
    assert [series[f"imp_prompt_tokens_total[kind={kind}]"] for kind in kinds] == [30 + 50 + 7, 10, 60]
    assert series["imp_sparse_prefill_total[effective=sparse][reason=]"] == 1
    assert series["imp_sparse_prefill_total[effective=dense][reason=below_threshold]"] == 1


@pytest.mark.parametrize(
    ("sparse", "shown"),
    [
        (Sparse(True, "", 9000, 2700), "2700/9000"),
        (Sparse(False, "not_profitable"), "dense:not_profitable"),
        (None, None),
    ],
)
def test_spc_47_the_access_line_says_what_was_evaluated(
    bench: TelemetryBench, sparse: Sparse | None, shown: str | None
) -> None:
    record = bench.call()
    record.started(9000, 0, sparse)
    assert access_fields(record.facts, "m").get("sparse_prefill") == shown


def test_obs_1_reads_are_calls_but_no_requests(bench: TelemetryBench) -> None:
    bench.call(GET_LOAD).ended("OK")
    series = bench.series()
    labels = "[grpc_method=GetLoad][grpc_service=imp.v1.ModelService][grpc_type=unary]"
    assert series[f"grpc_server_started_total{labels}"] == 1
    assert series["grpc_server_handled_total[grpc_code=OK]" + labels] == 1
    assert series["imp_requests_started_total"] == 0


def test_obs_2_the_time_in_the_queue_is_observed_in_seconds_once_for_each_generation(bench: TelemetryBench) -> None:
    for queue in (0.25, 3.5):
        record = bench.call()
        record.started(5, 0)
        record.finished(["stop", "stop"], Used(5, 0, 2), Spent(queue=queue, prefill=7.0, decode=11.0))
        record.ended("OK")
    refused = bench.call()
    refused.ended("RESOURCE_EXHAUSTED", "QUEUE_FULL")
    series = bench.series()
    assert (series["imp_queue_seconds_count"], series["imp_queue_seconds_sum"]) == (2, 3.75)
    assert series["imp_queue_seconds_bucket[le=0.25]"] == 1
