"""Runs the soak for about twenty seconds, or for eight minutes in the release run, with every fault at least once."""

from dataclasses import replace
from pathlib import Path

import pytest

from soak.soak import Plan, run_soak
from soak.watch import Growth
from support.run.release_run import repetitions

SECONDS = repetitions(480, 18)


@pytest.mark.long
def test_lif_16_a_short_soak_with_every_fault_is_good(tmp_path: Path) -> None:
    plan = Plan(
        SECONDS, fault_seconds=2.5, stopped_seconds=0.5, requests_per_second=8, sample_seconds=0.5, lease_seconds=2,
        least_requests=21, least_canary_runs=4,
    )  # fmt: skip
    verdict = run_soak(tmp_path, plan)
    assert verdict["problems"] == []
    assert set(verdict["faults"]) == {
        "client_killed",
        "connections_cut",
        "server_stopped",
        "log_unwritable",
        "bad_requests",
    }
    # An idle machine does far more.
    assert verdict["n_requests"] > SECONDS and verdict["canary_runs"] > 3


def test_lif_16_a_leak_is_a_problem() -> None:
    flat = Growth(100.0, 110.0, 40, 44, 15, 17, n_samples=100, cpu_seconds=9.0)
    assert flat.problems() == []
    for leak in ({"resident_mib_last": 117.0}, {"descriptors_last": 57}, {"threads_last": 24}):
        assert len(replace(flat, **leak).problems()) == 1  # type: ignore[arg-type]
