"""Servers get the requests that a load describes, and the figures follow from their answers."""

import asyncio
import json
import math
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from bench.compare_servers.goals import FRACTION, TAIL, verdicts
from bench.compare_servers.http_client import http_client
from bench.compare_servers.limit import Limit
from bench.compare_servers.load import Load, Run, run_load
from bench.compare_servers.outcome import Outcome, Sample
from imp_service.client.bench.measure import LevelRun, RequestResult
from imp_service.core.bench.work import ModelWork
from imp_service.models import demo_model_path
from support.command_line import FOUND_IN

COMMAND = Path(__file__).with_name("compare_servers")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.long
def test_imp_is_measured_under_every_load(tmp_path: Path) -> None:
    files = {option: tmp_path / f"report.{option}" for option in ("json", "svg")}
    options = [word for option, path in files.items() for word in (f"--{option}", str(path))]
    ran = subprocess.run(
        [sys.executable, str(COMMAND), str(demo_model_path()), "--quick", "--threads", "1", "--reps", "2", *options],
        env={**os.environ, "PYTHONPATH": str(FOUND_IN)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = json.loads(files["json"].read_text())
    assert [(load["clients"], load["api"]) for load in report["loads"]] == [
        (1, "native"), (1, "OpenAI"), (4, "native"), (4, "OpenAI"),
    ]  # fmt: skip
    for load in report["loads"]:
        (server,) = load["servers"].values()
        rounds, n_tokens = server["rounds"], 8 * load["clients"]
        assert len(rounds) == 2
        speeds = [n_tokens / round_["seconds"] for round_ in rounds]
        np.testing.assert_allclose(server["tokens_per_s"]["samples"], speeds)
        fractions = [speed / round_["limit_tokens_per_s"] for speed, round_ in zip(speeds, rounds, strict=True)]
        np.testing.assert_allclose(server["limit_fraction"]["samples"], fractions)
        tails = [round_["inter_token_p99"] / round_["inter_token_p50"] for round_ in rounds]
        np.testing.assert_allclose(server["inter_token_p99_in_p50"]["samples"], tails)
        found = [server["limit_fraction"]["median"], server["inter_token_p99_in_p50"]["median"]]
        met = [found[0] >= FRACTION, found[1] <= TAIL]
        goals = {goal["found"]: goal["met"] for goal in load["goals"]}
        n_goals = 2 if load["clients"] > 1 else 1  # nothing else arrives between one client's tokens
        assert goals == dict(zip(found[:n_goals], met[:n_goals], strict=True))
        assert all(round_["first_token_p50"] < round_["seconds"] for round_ in rounds)
        assert all(min(round_["client_cpu_seconds"], round_["server_cpu_seconds"]) > 0 for round_ in rounds)
    assert len(list(ET.fromstring(files["svg"].read_text()).iter("{http://www.w3.org/2000/svg}rect"))) == 1 + 4


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
            async with http_client(address) as ask:
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
    assert result.failure == "HTTP/1.1 503 Service Unavailable"

    async def refused(_prompt: list[int], _n_tokens: int) -> RequestResult:
        return result

    with pytest.raises(RuntimeError, match=r"2 clients, 8 . 4 tokens: HTTP/1.1 503"):
        asyncio.run(run_load(Load(2, 8, 4, requests=1), 100, refused))


def test_the_limit_is_the_time_of_the_work_at_the_rates() -> None:
    work = ModelWork(
        body_bytes=1000, body_ops=70, head_bytes=100, head_ops=30, kv_bytes=2, attention_ops=0,
        windows=((0, 1),), peak="int8",
    )  # fmt: skip
    limit = Limit(work, vocab_size=9, cpus=[0], chunk=8)
    load = Load(4, prompt_tokens=8, output_tokens=3, requests=5)
    # A prompt takes 8 · 70 + 30 operations; two steps read the weights and four caches, of 10 and 11 tokens.
    slow_arithmetic = limit.tokens_per_s(load, {"bytes": math.inf, "int8": 10.0})
    assert slow_arithmetic == pytest.approx(12 / (4 * 59 + 2 * 4 * 10))
    slow_memory = limit.tokens_per_s(load, {"bytes": 10.0, "int8": math.inf})
    assert slow_memory == pytest.approx(12 / (4 * (1100 + 16) / 10 + (2 * 1100 + 4 * 2 * (10 + 11)) / 10))


def sample_of(first: float, between: list[float]) -> Sample:
    """Returns a sample of 16 clients with one request each."""
    arrivals = [(sum(between[:i]) + first, 1) for i in range(len(between) + 1)]
    result = RequestResult(0.0, arrivals, arrivals[-1][0])
    return Sample(Run(LevelRun(16, [result] * 16), 0.1), 0.9, 0.0, limit=100.0)


def test_goals_of_a_server_are_held_against_its_peer() -> None:
    ours, theirs = sample_of(0.25, [0.5, 0.5, 0.5, 1.25]), sample_of(1.0, [2.0, 2.0, 2.0, 2.0])
    outcome = Outcome(Load(16, 8, 5, 1), [{"imp": ours, "llama-server": theirs}], {"imp": 1.0, "llama-server": 2.0})
    got = {verdict.of: (verdict.found, verdict.is_met) for verdict in verdicts(outcome)}
    assert got == {
        "its tokens a second": (3.0, True),
        "its first token": (0.25, True),
        "its start": (0.5, True),
        "the usual wait for a token, p99": (2.5, True),
        "the limit": (16 * 5 / 3.0 / 100.0, False),
    }
    assert ours.client_share == pytest.approx(0.1)
    outcome = Outcome(Load(4, 8, 5, 1), [{"imp": theirs, "llama-server": ours}], {"imp": 3.0, "llama-server": 2.0})
    assert [verdict.is_met for verdict in verdicts(outcome)] == [False, False, True, False]


def test_imp_and_llama_server_are_measured_under_every_load(tmp_path: Path) -> None:
    if "IMP_LLAMA_SERVER" not in os.environ:
        pytest.skip("IMP_LLAMA_SERVER names no llama-server")
    report = tmp_path / "report.json"
    peer = ["--llama-server", os.environ["IMP_LLAMA_SERVER"], "--json", str(report)]
    ran = subprocess.run(
        [sys.executable, str(COMMAND), str(demo_model_path()), "--quick", "--threads", "1", "--reps", "1", *peer],
        env={**os.environ, "PYTHONPATH": str(FOUND_IN)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    loads = json.loads(report.read_text())["loads"]
    assert [sorted(load["servers"]) for load in loads] == [["imp", "llama-server"]] * 4
