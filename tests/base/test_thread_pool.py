"""The thread pool runs each task once, serves one caller at a time, sets the floating-point mode, sleeps when idle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.weights import random_rows, random_weight

# The bits of x86's MXCSR: exceptions masked, flush to zero, denormals are zero, to nearest.
COMPUTE = 0x1F80 | 0x8000 | 0x0040
# The mode of another library: rounds up, does not flush.
DISTURBED = 0x1F80 | 0x4000
x86_only = pytest.mark.skipif(core.float_mode() == -1, reason="only x86 has these modes")


@pytest.fixture
def restored_mode() -> Iterator[None]:
    before = core.float_mode()
    yield
    core.set_float_mode(before)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
def test_det_4_every_task_runs_once(n_threads: int) -> None:
    pool = core.ThreadPool(n_threads)
    for n_tasks in [0, 1, 2, n_threads, 5, 1000]:
        counts, threads = pool.count_tasks(n_tasks)
        assert counts == [1] * n_tasks
        assert set(threads) <= set(range(n_threads))


def test_callers_are_taken_one_at_a_time() -> None:
    assert core.ThreadPool(3).wrong_sums(4, 300, 11) == 0


@x86_only
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_det_15_compute_threads_set_their_mode_and_give_the_callers_back(n_threads: int, restored_mode: None) -> None:
    core.set_float_mode(DISTURBED)
    pool = core.ThreadPool(n_threads)  # its threads start in the mode of the thread that creates them
    assert pool.float_modes() == [COMPUTE] * n_threads
    assert core.float_mode() == DISTURBED


@x86_only
@pytest.mark.parametrize("dtype", ["q8_0", "f32", "q4_k"])
def test_d04_det_15_a_mode_changed_in_pool_threads_changes_no_bit(dtype: str, restored_mode: None) -> None:
    """The inputs are so small that flushing and rounding change the result."""
    weight, x = random_weight(dtype, 100, 512), random_rows(5, 512) * np.float32(1e-38)
    x[3:] *= np.float32(3e38)
    term = (dtype, weight.file, 100, None)
    pool = core.ThreadPool(3)
    (expected,), _ = core.gemm_linear([term], x, pool)
    for disturb in (pool.disturb_float_modes, core.set_float_mode):
        disturb(DISTURBED)
        (actual,), _ = core.gemm_linear([term], x, pool)
        assert_same_bits(actual, expected)
    assert core.float_mode() == DISTURBED
    if dtype == "f32":  # negative control: flushing does change these results
        exact = np.abs(x.astype(np.float64) @ weight.values.T.astype(np.float64))
        assert ((expected == 0) & (exact > 0)).any()


def test_threads_stay_on_the_cpus_they_are_given() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    cpus = [allowed[i % len(allowed)] for i in range(3)][::-1]
    assert core.ThreadPool(3, cpus).cpus()[1:] == cpus[1:]
    assert os.sched_getaffinity(0) == set(allowed)  # the caller is not moved


@pytest.mark.parametrize(
    ("n_threads", "cpus", "message"),
    [
        (0, [], "n_threads: 0, expected 1 to 1024"),
        (1025, [], "n_threads: 1025, expected 1 to 1024"),
        (2, [0], "cpus: 1 given for 2 threads"),
        (1, [-1], "cpus: -1 is not a CPU this process may use"),
        (1, [100000], "cpus: 100000 is not a CPU this process may use"),
    ],
)
def test_impossible_teams_are_refused(n_threads: int, cpus: list[int], message: str) -> None:
    with pytest.raises(_core.InvalidArgument) as caught:
        core.ThreadPool(n_threads, cpus)
    assert caught.value.message == message


def states_of_other_threads(before: set[str]) -> list[str]:
    """Returns the state of each thread that is not in `before`: R (running) or S (sleeping)."""
    states = []
    for task in Path("/proc/self/task").iterdir():
        if task.name not in before:
            states.append((task / "stat").read_text().rsplit(")")[-1].split()[0])
    return states


def test_an_idle_team_sleeps_and_still_works() -> None:
    before = {task.name for task in Path("/proc/self/task").iterdir()}
    pool = core.ThreadPool(4, [], 0)
    for _ in range(3):
        assert pool.count_tasks(100)[0] == [1] * 100
        # Counts attempts instead of time: each attempt is a system call, and a pool that never sleeps fails.
        assert any(states_of_other_threads(before) == ["S"] * 3 for _ in range(100_000))


def test_hundreds_of_teams_leave_no_thread_behind() -> None:
    before = len(list(Path("/proc/self/task").iterdir()))
    for n_threads in range(1, 9):
        for _ in range(25):
            assert core.ThreadPool(n_threads).count_tasks(3)[0] == [1, 1, 1]
    assert len(list(Path("/proc/self/task").iterdir())) == before


def test_iso_16_a_team_at_rest_has_no_thread_and_computes_the_same() -> None:
    before = len(list(Path("/proc/self/task").iterdir()))
    weight, x = random_weight("q8_0", 100, 512), random_rows(5, 512)
    pool = core.ThreadPool(4)
    (expected,), _ = core.gemm_linear([("q8_0", weight.file, 100, None)], x, pool)
    for _ in range(3):
        pool.rest()
        pool.rest()  # it rests already
        assert len(list(Path("/proc/self/task").iterdir())) == before
        assert pool.count_tasks(100) == [[1] * 100, [0] * 100]  # all by the caller
        (actual,), _ = core.gemm_linear([("q8_0", weight.file, 100, None)], x, pool)
        assert_same_bits(actual, expected)
        pool.begin()
        pool.begin()  # it runs already
        assert len(list(Path("/proc/self/task").iterdir())) == before + 3
        assert pool.count_tasks(1000)[0] == [1] * 1000
    assert pool.n_threads == 4


def test_a_team_that_begins_again_checks_its_cpus() -> None:
    allowed = os.sched_getaffinity(0)
    pool = core.ThreadPool(2, [max(allowed)] * 2)
    pool.rest()
    os.sched_setaffinity(0, {min(allowed)})
    try:
        if len(allowed) > 1:
            with pytest.raises(_core.InvalidArgument) as caught:
                pool.begin()
            assert caught.value.message == f"cpus: {max(allowed)} is not a CPU this process may use"
    finally:
        os.sched_setaffinity(0, allowed)
    pool.begin()
    assert pool.count_tasks(10)[0] == [1] * 10
