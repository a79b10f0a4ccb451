"""Log lines: one per call, bounded in number and length, and nothing in them can forge another line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from imp_service.config.server_settings import LogSettings
from imp_service.telemetry import Log
from imp_service.telemetry.log_entry import MAX_TEXT, LogEntry, as_json, as_text
from support.run.release_run import repetitions
from support.servers.telemetry_bench import GENERATE, Spent, TelemetryBench, Used

# Characters that could end a line, hide it or change its direction.
CONTROLS = "".join(map(chr, [*range(32), *range(127, 160), 0x200F, 0x202E, 0x2028, 0x2029, 0xD800]))
MIB = 1024**2


class LogFile:
    """A file that a log writes to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "log")


@pytest.fixture
def make_log(file: LogFile) -> Callable[..., Log]:
    return lambda clock=lambda: 7.0, **settings: Log(
        LogSettings(**{"format": "json", **settings}), file.descriptor, clock=clock, wall=lambda: 0.125
    )


def test_obs_5_a_request_leaves_one_line(file: LogFile) -> None:
    bench = TelemetryBench(log_to=file.descriptor)
    bench.telemetry.set_model("tiny", architecture="qwen3")
    record = bench.call(tenant="blue", request_id="r-1")
    record.started(12, 8)
    bench.now += 0.5
    record.sampled(3, bench.now)
    record.finished(["stop", "max_tokens"], Used(12, 8, 3), Spent(0.1, 0.2, 0.3))
    bench.now += 0.25
    record.ended("OK")
    bench.call(request_id="r-2").ended("RESOURCE_EXHAUSTED", "QUEUE_FULL")
    bench.telemetry.close()
    finished, refused = file.lines()
    assert finished == {
        "time": finished["time"],
        "level": "info",
        "event": "call finished",
        "id": "r-1",
        "tenant": "blue",
        "model": "tiny",
        "method": "imp.v1.InferenceService/Generate",
        "peer": "ipv4:127.0.0.1:1",
        "code": "OK",
        "finish": "stop,max_tokens",
        "seconds": 0.75,
        "prompt_tokens": 12,
        "cached_tokens": 8,
        "output_tokens": 3,
        "first_token": 0.5,
        "queue": 0.1,
        "prefill": 0.2,
        "decode": 0.3,
    }
    assert (refused["event"], refused["id"], refused["reason"]) == ("call refused", "r-2", "QUEUE_FULL")


@pytest.mark.long
def test_l12_obs_5_a_minute_of_bad_requests_is_less_than_a_mebibyte_of_log(file: LogFile) -> None:
    """Each field has maximal length and is full of control characters. Suppressed lines are counted and reported."""
    bench = TelemetryBench(log_to=file.descriptor)
    n_calls = repetitions(1_000_000, 60_000)
    for _ in range(n_calls):
        bench.now += 60 / n_calls
        record = bench.telemetry.call(GENERATE.path, CONTROLS * 3, CONTROLS, "ipv4:10.0.0.1:1234")
        record.ended("INVALID_ARGUMENT", "FIELD_INVALID")
    bench.telemetry.close()
    lines = file.lines()
    assert {line["event"] for line in lines} == {"call refused"}
    written = [line for line in lines if "id" in line]
    assert len(written) + sum(line.get("suppressed", 0) for line in lines) == n_calls
    assert len(written) == n_calls - bench.telemetry.log.n_dropped["rate"]
    assert file.path.stat().st_size <= MIB
    assert bench.series()["imp_requests_ended_total[outcome=refused]"] == n_calls


def test_obs_5_what_finished_is_never_held_back(file: LogFile) -> None:
    bench = TelemetryBench(log_to=file.descriptor)
    for i in range(500):
        bench.call(request_id=f"r{i}").ended("OK")
    bench.telemetry.close()
    assert [line["id"] for line in file.lines()] == [f"r{i}" for i in range(500)]


@pytest.mark.parametrize("write", [as_json, as_text])
def test_obs_5_no_control_character_comes_through(write: Callable[[LogEntry], str]) -> None:
    entry = LogEntry(0.0, "warning", "event", f"a{CONTROLS}b", {"id": f"c{CONTROLS}d", "frames": (CONTROLS,)})
    line = write(entry)
    assert (line.isascii(), line.isprintable()) == (True, True)


@pytest.mark.parametrize("text", ["\x01" * 1000, "\\" * 1000, "é" * 1000, "a" * 1000, "a" * (MAX_TEXT - 1) + "\n"])
def test_l12_a_text_is_cut_at_a_whole_escape(text: str) -> None:
    line = as_json(LogEntry(0.0, "info", "event", "", {"id": text}))
    found = json.loads(line)["id"]
    assert found.endswith("…")
    assert text.startswith(found[:-1])
    assert len(json.dumps(found)) - 2 <= MAX_TEXT
    # The text is as long as possible: one more character would not fit.
    assert len(json.dumps(text[: len(found)])) - 2 > MAX_TEXT - len(r"\u2026")


def test_obs_5_text_for_people(file: LogFile, make_log: Callable[..., Log]) -> None:
    log = make_log(format="text")
    address, note = "127.0.0.1:50051", 'a "b" = c'
    log.info("listening", message="on two ports", grpc=address, note=note, seconds=0.25, names=("x", "y"))
    log.close()
    expected = '1970-01-01T00:00:00.125Z info    listening: on two ports grpc=127.0.0.1:50051 note="a \\"b\\" = c"'
    assert file.path.read_text() == f'{expected} seconds=0.25 names=["x", "y"]\n'


def test_obs_5_a_value_of_any_type_is_reported(file: LogFile, make_log: Callable[..., Log]) -> None:
    """The writing thread survives it."""
    log = make_log()
    log.info("odd", path=Path("/x"), nothing=None, many=["a\n", 1], ratio=float("nan"))  # type: ignore[arg-type]
    log.info("next")
    log.close()
    odd, following = (json.loads(line) for line in file.path.read_bytes().splitlines())
    assert (odd["path"], odd["nothing"], odd["many"], following["event"]) == ("/x", None, ["a\n", 1], "next")


def test_obs_5_errors_of_one_kind_do_not_hide_another(file: LogFile, make_log: Callable[..., Log]) -> None:
    now = 5.0
    log = make_log(lambda: now, max_lines_per_second=3)
    for _ in range(10):
        log.warning("first")
    log.error("second")
    now += 1.0
    log.warning("first")
    log.close()
    lines = [(line["event"], line.get("suppressed")) for line in file.lines()]
    assert lines == [("first", None)] * 3 + [("second", None), ("first", 7)]


def test_obs_5_a_level_is_a_threshold(file: LogFile, make_log: Callable[..., Log]) -> None:
    log = make_log(level="warning")
    log.debug("a")
    log.info("b")
    log.notice("c")
    log.warning("d")
    log.error("e")
    log.close()
    assert [line["event"] for line in file.lines()] == ["d", "e"]


def test_an_error_is_reported_with_where_it_came_from(file: LogFile, make_log: Callable[..., Log]) -> None:
    log = make_log()

    def inner(secret: str) -> None:
        raise ValueError(f"cannot read {secret}")

    try:
        inner("canary")
    except ValueError as error:
        log.raised("bug", error, id="r-9")
    log.close()
    (line,) = file.lines()
    assert (line["message"], line["id"]) == ("ValueError", "r-9")
    assert [frame.split(" ")[1] for frame in line["frames"]][-1] == "inner"
    assert "canary" not in json.dumps(line)
