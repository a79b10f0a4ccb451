"""The table of a load test: one row per level, with digits and units for people."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from imp_service.client.bench import LadderPlan, Percentiles
from imp_service.client.bench.imp_server import facts_of, request_of
from imp_service.client.bench.level_table import HEADINGS, duration_text, level_row, rate_text
from imp_service.client.bench.measure import LevelRun, RequestResult
from imp_service.client.bench.page import page
from imp_service.client.bench.report import report_of
from imp_service.pb.model_pb2 import GetModelInfoResponse, GetServerInfoResponse

GOOD = RequestResult(1.0, arrivals=[(1.5, 1), (2.0, 3)], ended_at=3.0)
QUICK = RequestResult(1.0, arrivals=[(1.25, 2)], ended_at=2.0)
FULL = RequestResult(1.0, ended_at=1.5, failure="QUEUE_FULL")
LATE = RequestResult(1.0, arrivals=[(1.75, 1)], ended_at=2.0, failure="SLOW_CLIENT")
MODEL = GetModelInfoResponse(
    model="m", architecture="llama", parameters=1_260_000, weight_format="Q8_0", max_context_tokens=192
)
SERVER = GetServerInfoResponse(version="9", device="cpu", device_names=["a", "b"], threads=2)


def report(*runs: LevelRun):
    plan = LadderPlan(levels=tuple(sorted({run.level for run in runs})))
    return report_of(facts_of("here:1", MODEL, SERVER), plan, runs)


def test_a_level_adds_up_all_of_its_repetitions_and_no_other_level():
    made = report(LevelRun(2, [GOOD, FULL]), LevelRun(1, [LATE]), LevelRun(2, [QUICK, FULL, LATE]))
    [one, two] = made.levels
    assert (two.level, two.requests, two.failures) == (2, 5, {"QUEUE_FULL": 2, "SLOW_CLIENT": 1})
    assert two.tokens_per_s == (2.0, 3.0)  # tokens of a request that later fails count too
    assert two.first_token == Percentiles(0.25, 0.5, 0.5, 2)  # only of requests that ended well
    assert two.inter_token == Percentiles(1 / 6, 1 / 6, 1 / 6, 3)
    assert two.tokens_per_message == 2.0
    assert (one.requests, one.first_token.n) == (1, 0) and math.isnan(one.tokens_per_message)
    assert level_row(two) == (
        "2", "2", "2 – 3", "250 ms", "500 ms", "500 ms", "167 ms", "167 ms", "167 ms", "2", "5",
        "2 QUEUE_FULL, 1 SLOW_CLIENT",
    )  # fmt: skip
    assert level_row(one)[3:] == ("–",) * 7 + ("1", "1 SLOW_CLIENT")
    assert len(HEADINGS) == len(level_row(one))


def test_a_report_says_what_was_measured_and_json_has_null_for_what_was_not():
    made = report(LevelRun(1, [FULL]), LevelRun(4, [GOOD]))
    assert (made.address, made.model, made.server) == ("here:1", "m", "imp 9")
    assert made.weights == "llama, 1.3M parameters, Q8_0"
    assert made.device == "cpu: a, b; 2 threads"
    plain = made.as_json()
    assert (plain["version"], plain["plan"]["levels"]) == (1, [1, 4])
    [nothing, good] = plain["levels"]
    assert (nothing["first_token"]["p50"], nothing["tokens_per_message"]) == (None, None)
    assert (good["first_token"]["p50"], good["tokens_per_s"]) == (0.5, [2.0])


def test_a_page_draws_no_times_where_no_request_ended_well():
    failed, good = page(report(LevelRun(1, [FULL]))), page(report(LevelRun(1, [GOOD])))
    assert failed.count("<p>No request ended well.</p>") == 2 and failed.count("<svg") == 1
    assert "No request ended well" not in good and good.count("<svg") == 3
    assert "1 from each stream" not in good and "2 from each stream, 3 repetitions" in good


def test_tokens_without_any_time_between_them_are_drawn_at_the_least_time():
    together = RequestResult(1.0, arrivals=[(1.5, 1), (1.5, 1), (2.5, 1)], ended_at=3.0)
    text = page(report(LevelRun(1, [together])))
    assert text.count("<svg") == 3
    assert "median, 1: 1 s" in text  # the page prints the drawn value of a point


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.0, "1 s"), (0.9994, "999 ms"), (100.0, "100 s"), (99.94, "99.9 s"), (1e-3, "1 ms"), (9.99e-4, "999 µs"),
        (0.0, "0 µs"), (123.4e-3, "123 ms"),
    ],
)  # fmt: skip
def test_durations_change_their_unit_at_one(seconds: float, text: str):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(0.0, "0"), (0.12345, "0.123"), (99.94, "99.9"), (100.0, "100"), (1234.5, "1234")]
)
def test_rates_have_three_digits_or_all_before_the_point(rate: float, text: str):
    assert rate_text(rate) == text


def test_a_plan_fits_a_context_up_to_its_last_token():
    server = facts_of("here:1", MODEL, SERVER)
    LadderPlan(prompt_tokens=128, output_tokens=64).check(server)
    with pytest.raises(Exception, match="are 193, expected at most 192: the context of m"):
        LadderPlan(prompt_tokens=129, output_tokens=64).check(server)
    LadderPlan(prompt_tokens=129, output_tokens=64).check(replace(server, max_context=None))


def test_a_request_draws_from_every_token_that_has_no_meaning():
    model = GetModelInfoResponse(num_tokens=5, vocab_size=9, eos_token_ids=[2], bos_token_id=1)
    request = request_of(model, (0, 1), 200, 7)
    assert set(request.token_ids.ids) == {0, 3, 4} and len(request.token_ids.ids) == 200
    assert request.stop.max_tokens == 7 and request == request_of(model, (0, 1), 200, 7)
    assert request != request_of(model, (1, 0), 200, 7)
    assert request_of(model, (0, 1), 200, 0).stop.max_tokens == 0
    of_file = GetModelInfoResponse(vocab_size=3, eos_token_ids=[2])
    assert set(request_of(of_file, (0,), 200, 7).token_ids.ids) == {0, 1}
