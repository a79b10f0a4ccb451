"""The soak, for less than twenty seconds: every fault at least once."""

from pathlib import Path

from soak.soak import Plan, run_soak


def test_a_short_soak_with_every_fault_is_good(tmp_path: Path) -> None:
    plan = Plan(18, fault_seconds=2.5, stopped_seconds=0.5, requests_per_second=8, sample_seconds=0.5, lease_seconds=2)
    verdict = run_soak(tmp_path, plan)
    assert verdict["problems"] == []
    assert set(verdict["faults"]) == {
        "client_killed",
        "connections_cut",
        "server_stopped",
        "log_unwritable",
        "bad_requests",
    }
    assert verdict["n_requests"] > 50 and verdict["canary_songs"] > 3
