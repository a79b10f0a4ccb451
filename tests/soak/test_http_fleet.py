"""Streams of the packages `openai` and `anthropic` go on while the processes that write them die in every way."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from soak.http_fleet import BY_ITSELF, BY_SIGNAL, MIXED, SurvivingServer, kinds_of, mixed, run_http_chaos
from soak.http_streams import HttpLoad, goldens
from support.machine.lasting_port import lasting_port
from support.run.patience import HANGS_AFTER
from support.run.release_run import IS_RELEASE, repetitions
from support.servers.scraped import series_of

QUICK = ("SIGKILL", "SIGSEGV", "exit", "memory", "twice")


def test_iso_2_c01_c02_c13_no_stream_is_lost_while_the_engine_process_dies(tmp_path: Path) -> None:
    """A release has a thousand deaths, of which 20 are hangs that the watchdog ends."""
    kinds = mixed(1000, kinds_of(1)) if IS_RELEASE else QUICK
    verdict = run_http_chaos(tmp_path, kinds)
    assert verdict["problems"] == []
    assert verdict["kills"] == verdict["deaths"] > len(kinds) and verdict["joined"] > len(kinds)


@pytest.mark.long
def test_iso_2_iso_6_iso_11_no_stream_is_lost_while_it_hangs_or_its_parent_dies(tmp_path: Path) -> None:
    kinds = [kind for kind in MIXED if kind not in (*QUICK, "loop")]
    verdict = run_http_chaos(tmp_path, kinds)
    assert verdict["problems"] == [] and verdict["joined"] > 0
    assert sum(n for how, n in verdict["deaths_by"].items() if "watchdog" in how) == 3


@pytest.mark.long
def test_frt_1_c01_no_stream_is_lost_while_two_servers_behind_a_front_die(tmp_path: Path) -> None:
    kinds = mixed(repetitions(300, 8), [*BY_SIGNAL, *BY_ITSELF])
    verdict = run_http_chaos(tmp_path, kinds, n_servers=2)
    assert verdict["problems"] == []
    assert verdict["kills"] == len(kinds) and verdict["joined"] > 0


def is_full(metrics: str) -> bool:
    """Whether the engine process that serves has preempted a sequence."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=HANGS_AFTER) as reply:
        return series_of(reply.read().decode())["imp_preemptions_total"] > 0


def test_c16_streams_that_do_not_fit_together_return_when_the_engine_process_dies(tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{lasting_port()}"
    it = SurvivingServer(tmp_path, "kv.bytes=1MiB", f"listen.metrics={metrics}")
    try:
        load = HttpLoad(it.url, goldens(it.url), 16)
        try:
            for kind in ("SIGKILL", "exit"):
                while not is_full(metrics):
                    load.wait_for_events(load.events(), any)
                it.strike(kind, load)
        finally:
            problems = load.stop()
        assert problems == [] and it.report()["joined"] > 0
    finally:
        it.close()
