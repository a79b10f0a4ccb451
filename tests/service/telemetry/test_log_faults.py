"""A log whose descriptor accepts nothing: writers go on, and lost lines are counted."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import threading
import warnings

import pytest
from grpc._cython.cygrpc import ExecuteBatchError

from imp_service.config.server_settings import LogSettings
from imp_service.telemetry import Log, capture
from imp_service.telemetry.log_writer import MAX_WAITING, LogWriter

JSON = LogSettings(format="json")
N = 100


def lost(log: Log) -> int:
    return log.n_dropped["failed"] + log.n_dropped["backlog"]


def test_y07_a_full_disk_loses_lines_and_says_how_many() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    log = Log(JSON, full)
    os.close(full)
    for i in range(N):
        log.info("line", n=i)
    log.close()
    assert lost(log) == N


def test_y07_a_closed_pipe_loses_lines() -> None:
    read_end, write_end = os.pipe()
    log = Log(JSON, write_end)
    os.close(read_end)
    for i in range(N):
        log.info("line", n=i)
    log.close()
    os.close(write_end)
    assert lost(log) == N


def test_y07_a_closed_descriptor_loses_lines_and_hits_nobody_elses() -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    log = Log(JSON, write_end)
    taken = os.dup(read_end)  # most likely the same number
    log.info("line")
    log.close()
    os.close(taken)
    os.close(read_end)
    assert log.n_dropped == {"rate": 0, "backlog": 0, "failed": 1}


@pytest.mark.long
@pytest.mark.parametrize("is_blocking", [True, False])
def test_y07_a_pipe_nobody_reads_never_makes_a_writer_wait(is_blocking: bool) -> None:
    """Lines that fit the pipe and the queue are kept, and the rest is counted. A later reader gets that count."""
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(write_end, is_blocking)
    log = Log(JSON, write_end)
    n_lines = 4 * MAX_WAITING
    for i in range(n_lines):
        log.info("line", n=i)
    assert log.n_dropped["backlog"] >= n_lines - MAX_WAITING - 4096
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.extend(iter(lambda: os.read(read_end, 65536), b"")))
    reader.start()
    log.close()
    os.close(write_end)
    reader.join()
    os.close(read_end)
    lines = [json.loads(line) for line in b"".join(found).splitlines()]
    kept = [line["n"] for line in lines if line["event"] == "line"]
    told = sum(line["dropped"] for line in lines if line["event"] == "log")
    assert kept == sorted(kept)
    assert len(kept) + told == len(kept) + lost(log) == n_lines


def test_y07_a_line_that_was_torn_does_not_join_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    written = bytearray()
    answers = iter([5, OSError(errno.ENOSPC, "full"), None])

    def write(descriptor: int, data: memoryview) -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        n = len(data) if answer is None else answer
        written.extend(data[:n])
        return n

    writer = LogWriter(-1, lambda entry: entry.message)
    monkeypatch.setattr(os, "write", write)
    assert not writer._write(b"first line\n")
    assert writer._write(b"second\n")
    assert bytes(written) == b"first\nsecond\n"


def test_obs_5_what_libraries_say_goes_through_the_log() -> None:
    read_end, write_end = os.pipe()
    log = Log(JSON, write_end)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        give_back = capture(log)
        logging.getLogger("grpc._cython.cygrpc").error("broken %s\n", "frame")
        logging.getLogger("asyncio").warning("bad %d", "format")
        warnings.warn("odd", stacklevel=1)
        try:
            raise KeyError("x")
        except KeyError:
            logging.getLogger("concurrent.futures").exception("exception calling callback")
        try:
            raise ExecuteBatchError("the client is gone")  # a client that leaves is no error of ours
        except ExecuteBatchError:
            logging.getLogger("grpc._cython.cygrpc").exception("ExecuteBatchError raised in core by servicer method")
        thread = threading.Thread(target=list[int]().pop)
        thread.start()
        thread.join()
        give_back()
    log.close()
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        lines = [json.loads(line) for line in file]
    found = [(line["event"], line["level"], line["message"].split(":")[0]) for line in lines]
    assert found == [
        ("grpc._cython.cygrpc", "error", "broken frame\n"),
        ("asyncio", "warning", "a message that cannot be formatted"),
        ("py.warnings", "warning", lines[2]["message"].split(":")[0]),
        ("concurrent.futures", "error", "KeyError"),
        ("thread", "error", "IndexError"),
    ]
    assert "odd" in lines[2]["message"]
