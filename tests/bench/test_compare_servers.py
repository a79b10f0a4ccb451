"""Servers get the requests that a load describes, and the figures follow from their answers."""

import asyncio
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from compare.ceiling import Ceiling, LeastWork
from compare.outcome import Outcome, Round, Run, Sample
from compare.servers.clients import llama_client
from compare.servers.goals import FRACTION, TAIL, verdicts
from compare.servers.load import Load, figures_of, run_load
from imp_service.client.bench.measure import LevelRun, RequestResult
from imp_service.core.bench.work import ModelWork, Work
from imp_service.models import demo_model_path
from support.deploy.offered_commands import compared, rectangles

RATES = {"bytes": 1.0, "int8": 1.0}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.long
def test_imp_is_measured_under_every_load(tmp_path: Path) -> None:
    svg, words = tmp_path / "report.svg", ("--quick", "--threads", "1", "--reps", "2")
    _, report = compared("servers", demo_model_path(), *words, "--svg", svg, report=tmp_path / "report.json")
    assert report["complete"]
    assert [(load["clients"], load["api"]) for load in report["cases"]] == [
        (1, "native"), (1, "OpenAI"), (4, "native"), (4, "OpenAI"),
    ]  # fmt: skip
    for load in report["cases"]:
        (server,) = load["engines"].values()
        rounds, n_tokens = server["samples"], 8 * load["clients"]
        assert 1 <= len(rounds) <= 2  # other processes may have disturbed one
        speeds = [n_tokens / round_["seconds"] for round_ in rounds]
        np.testing.assert_allclose(server["tokens_per_s"]["samples"], speeds)
        fractions = [speed / round_["ceiling_tokens_per_s"] for speed, round_ in zip(speeds, rounds, strict=True)]
        np.testing.assert_allclose(server["ceiling_fraction"]["samples"], fractions)
        tails = [round_["inter_token_p99"] / round_["inter_token_p50"] for round_ in rounds]
        np.testing.assert_allclose(server["inter_token_p99_in_p50"]["samples"], tails)
        found = [server["ceiling_fraction"]["median"], server["inter_token_p99_in_p50"]["median"]]
        met = [found[0] >= FRACTION, found[1] <= TAIL]
        goals = {goal["found"]: goal["met"] for goal in load["goals"]}
        n_goals = 2 if load["clients"] > 1 else 1  # nothing else arrives between one client's tokens
        assert goals == dict(zip(found[:n_goals], met[:n_goals], strict=True))
        assert all(round_["first_token_p50"] < round_["seconds"] for round_ in rounds)
        assert all(min(round_["client_cpu_seconds"], round_["server_cpu_seconds"]) > 0 for round_ in rounds)
    assert rectangles(svg) == 1 + 4


def asked_over_http(*chunks: bytes, head: bytes = HEAD) -> tuple[RequestResult, dict]:
    """Returns a client's result for an answer in these chunks, and the client's request."""
    asked = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(line.split(": ")[1] for line in request.splitlines() if line.startswith("Content-Length"))
        asked.update(json.loads(await reader.readexactly(int(length))))
        writer.write(head)
        for chunk in [*chunks, b""]:
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        await writer.drain()
        writer.close()

    async def run() -> RequestResult:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with llama_client(address) as ask:
                return await ask([5, 6, 7], 3)

    return asyncio.run(run()), asked


def test_events_are_read_whole_whatever_the_chunks() -> None:
    events = b"".join(b'data: {"content":"x","tokens_predicted":%d,"stop":false}\n\n' % n for n in (1, 2, 4))
    stop = b'data: {"content":"","stop":true,"tokens_predicted":5}\n\ndata: [DONE]\n\n'
    result, asked = asked_over_http(events[:60], events[60:61], events[61:] + stop[:9], stop[9:])
    assert result.failure == ""
    assert [n_tokens for _, n_tokens in result.arrivals] == [1, 1, 2, 1]  # the third and the last have no text
    assert asked["prompt"] == [5, 6, 7]
    assert (asked["n_predict"], asked["ignore_eos"], asked["temperature"], asked["cache_prompt"]) == (3, True, 0, False)


def test_a_refusal_is_a_failure_and_ends_the_comparison() -> None:
    result, _ = asked_over_http(b"busy", head=b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n")
    assert result.failure == "HTTP_503"

    async def refused(_prompt: list[int], _n_tokens: int) -> RequestResult:
        return result

    with pytest.raises(RuntimeError, match=r"2 clients, 8 . 4 tokens: HTTP_503"):
        asyncio.run(run_load(Load(2, 8, 4, requests=1), 100, refused))


def test_the_limit_is_the_time_of_the_work_at_the_rates() -> None:
    work = ModelWork(
        body_bytes=1000, body_ops=70, head_bytes=100, head_ops=30, kv_bytes=2, attention_ops=0,
        windows=((0, 1),), peak="int8",
    )  # fmt: skip
    load = Load(4, prompt_tokens=8, output_tokens=3, requests=5)
    limit = load.work(Ceiling(work, vocab_size=9, cpus=[0], chunk=8))
    # A prompt takes 8 · 70 + 30 operations; two steps read the weights and four caches, of 10 and 11 tokens.
    slow_arithmetic = limit.tokens_per_s({"bytes": math.inf, "int8": 10.0})
    assert slow_arithmetic == pytest.approx(12 / (4 * 59 + 2 * 4 * 10))
    slow_memory = limit.tokens_per_s({"bytes": 10.0, "int8": math.inf})
    assert slow_memory == pytest.approx(12 / (4 * (1100 + 16) / 10 + (2 * 1100 + 4 * 2 * (10 + 11)) / 10))


def sample_of(first: float, between: list[float], start: float) -> Sample:
    """Returns a sample of 16 clients with one request each, of a server that was ready after `start`."""
    arrivals = [(sum(between[:i]) + first, 1) for i in range(len(between) + 1)]
    run = LevelRun(16, [RequestResult(0.0, arrivals, arrivals[-1][0])] * 16)
    return Sample(Run(run.seconds, figures={**figures_of(run), "start_seconds": start}), RATES)


def outcome_of(clients: int, ours: Sample, theirs: Sample) -> Outcome:
    """Returns an outcome of one round, with a ceiling of 100 tokens a second."""
    work = LeastWork(16 * 5, "int8", [Work(16 * 5, 0.8, 0.8)], dict)
    return Outcome(Load(clients, 8, 5, 1), work, [Round({"imp": ours, "llama-server": theirs})])


def test_goals_of_a_server_are_held_against_its_peer() -> None:
    fast, slow = (0.25, [0.5, 0.5, 0.5, 1.25]), (1.0, [2.0, 2.0, 2.0, 2.0])
    outcome = outcome_of(16, sample_of(*fast, start=1.0), sample_of(*slow, start=2.0))
    got = {verdict.of: (verdict.found, verdict.is_met) for verdict in verdicts(outcome)}
    assert got == {
        "its tokens a second": (3.0, True),
        "its first token": (0.25, True),
        "its start": (0.5, True),
        "the usual wait for a token, p99": (2.5, True),
        "the limit": (16 * 5 / 3.0 / 100.0, False),
    }
    outcome = outcome_of(4, sample_of(*slow, start=3.0), sample_of(*fast, start=2.0))
    assert [verdict.is_met for verdict in verdicts(outcome)] == [False, False, True, False]


def test_imp_and_llama_server_are_measured_under_every_load(tmp_path: Path) -> None:
    if "IMP_LLAMA_SERVER" not in os.environ:
        pytest.skip("IMP_LLAMA_SERVER names no llama-server")
    words = ("--quick", "--threads", "1", "--llama-server", os.environ["IMP_LLAMA_SERVER"])
    _, report = compared("servers", demo_model_path(), *words, report=tmp_path / "report.json")
    assert report["complete"]
    assert [sorted(load["engines"]) for load in report["cases"]] == [["imp", "llama-server"]] * 4
