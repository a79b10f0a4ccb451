"""Streams go on while their servers are killed, stopped, cut off, drained and started again."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

import imp_service
from imp_service.api.errors import StateError
from soak.fleet import KINDS, Member, ResumingLoad, fleet, goldens, run_chaos
from support.run.release_run import repetitions
from support.servers.cutting_proxy import cutting_proxy

# Of each kind, and as many cuts again. Two of five kinds are kills.
FAULTS = repetitions(500, 1)
ROUNDS = repetitions(20, 1)


def test_rsm_4_no_stream_is_lost_while_two_servers_are_killed_stopped_cut_drained_and_restarted(tmp_path: Path) -> None:
    kinds = [*KINDS * FAULTS, "killed", *["cut"] * 4]
    verdict = run_chaos(tmp_path, kinds)
    assert verdict["problems"] == []
    assert verdict["resumed"] > FAULTS and verdict["streams"] > FAULTS


def test_rsm_15_no_stream_of_one_server_is_lost_that_its_supervisor_starts_again(tmp_path: Path) -> None:
    member, known = Member(tmp_path / "one"), goldens()
    try:
        member.wait()
        load = ResumingLoad(member.address, known, 8)
        try:
            for _ in range(repetitions(200, 2)):
                member.wait()
                threading.Event().wait(0.3)
                member.process.kill()
                threading.Event().wait(0.2)  # RestartSec of the unit
                member.start()
        finally:
            problems = load.stop()
    finally:
        member.process.kill()
    assert problems == []
    assert load.n_resumed > 0


@pytest.mark.long
def test_rsm_8_a_rolling_restart_of_three_servers_loses_no_stream_and_does_not_wait_for_the_grace(
    tmp_path: Path,
) -> None:
    known = goldens()
    with fleet(tmp_path, 3) as it:
        load = ResumingLoad(it.target, known, 12)
        # It knows nothing of this; the servers wait for its streams, which are shorter than the grace.
        plain = ResumingLoad(it.target, known[:1], 2, may_be_refused=True, resume=False)
        try:
            for _ in range(ROUNDS):
                for i in range(3):
                    it.drained(i)
                    it.members[i].wait()
        finally:
            problems = [*load.stop(), *plain.stop()]
    assert problems == []
    assert load.n_streams > 0 and plain.n_streams > 0


def test_rsm_8_a_server_that_is_another_one_is_an_error_and_not_other_tokens(tmp_path: Path) -> None:
    """The second server stores the cache in another type, as if its arithmetic were of another revision."""
    first, second = Member(tmp_path / "0"), Member(tmp_path / "1", "kv.dtype=q8_0")
    try:
        for each in (first, second):
            each.wait()
        with cutting_proxy(first.address) as proxy, imp_service.connect(proxy.address) as client:
            generation = client.generate("Once upon a time", max_tokens=400, num_sequences=4, ignore_eos=True)
            next(generation)
            first.process.signal(signal.SIGSTOP)
            proxy.lead_to(second.address)
            proxy.cut()
            with pytest.raises(StateError) as caught:
                generation.results()
        assert (caught.value.reason, caught.value.details) == ("RESUME_MISMATCH", {"differs": "server"})
    finally:
        first.process.kill()
        second.process.kill()
