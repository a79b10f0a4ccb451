"""If the system refuses memory, imp reports NO_MEMORY in one line. It neither aborts nor reports a bug."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from imp_service.cli.failure import describe
from imp_service.config.errors import system_refusal
from imp_service.serving.errors.failures import failure_of
from support.limited import MIB, limited
from support.patience import HANGS_AFTER
from support.quick_run import Repeats

ROOT = Path(__file__).parents[3]
# From less than Python's libraries need to more than a whole start needs.
ADDRESSES = (60, 90, 110, 130, 160, 190, 220, 300)


def ended(words: list[str], n_bytes: int) -> tuple[int, str]:
    """Runs imp with these words and an address space of `n_bytes`. Returns its status and stderr."""
    command = [*limited(**{"as": n_bytes}), sys.executable, "-m", "imp_service", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_AFTER)
    return ran.returncode, ran.stderr


@pytest.mark.long
@pytest.mark.parametrize("n_mib", ADDRESSES)
@pytest.mark.parametrize(
    "words", [["run", "--max-tokens", "1", "a"], ["serve", "--listen", "127.0.0.1:0"]], ids=["run", "serve"]
)
def test_y01_a_start_that_is_refused_memory_ends_with_one_line(words: list[str], n_mib: int) -> None:
    status, text = ended(words, n_mib * MIB)
    lines = [line for line in text.splitlines() if not line.startswith("{")]  # the other lines are the server's log
    assert status == 71, text
    assert [line.startswith("imp: error: NO_MEMORY: ") for line in lines] == [True], text


@pytest.mark.long
def test_y01_with_room_it_answers() -> None:
    status, text = ended(["run", "--max-tokens", "1", "a"], 2048 * MIB)
    assert status == 0, text


@pytest.mark.long
@pytest.mark.parametrize("deed", ["open", "inspect", "load", "probe", "time"])
def test_y01_the_core_refuses_and_never_aborts(deed: str, repeats: Repeats) -> None:
    """The limit can hit anything: a thread's stack, a chunk of the arena, a small allocation."""
    sizes = [*range(0, MIB, MIB // 16), *range(MIB, 32 * MIB, MIB), *range(32 * MIB, 512 * MIB, 16 * MIB)]
    sizes = sizes[:: 20 // repeats(20)]
    sizes.append(4096 * MIB)  # enough for texts and messages beyond the plan
    command = [sys.executable, "-m", "support.refused_growth", deed, *map(str, sizes)]
    quiet = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "tests")}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet, timeout=HANGS_AFTER)
    outcomes = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    assert list(outcomes) == [str(size) for size in sizes], ran.stderr
    # A refusal to Python itself raises its MemoryError.
    told = {text.partition(":")[0] for text in outcomes.values()}
    assert told <= {"ok", "NO_MEMORY", "MemoryError"}, outcomes
    assert outcomes["0"] != "ok" or deed in ("open", "inspect")
    assert set(outcomes.values()) >= {"ok"} | ({"NO_MEMORY"} if deed not in ("open",) else set())


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("/x/_core.so: failed to map segment from shared object", name="_core"),
        ImportError("numpy cannot be imported: libopenblas.so: Cannot allocate memory"),
    ],
)
def test_y01_what_the_system_refused_is_no_bug(error: Exception) -> None:
    assert system_refusal(error)
    assert describe(error)[0] == "NO_MEMORY"
    assert failure_of(error, request_id="r").reason == "NO_MEMORY"


@pytest.mark.parametrize(
    "error", [RuntimeError("another"), ImportError("No module named 'x'"), OSError(errno.ENOENT, "no such file")]
)
def test_hon_1_what_is_wrong_with_us_is_not_taken_for_it(error: Exception) -> None:
    assert system_refusal(error) == ""
    assert describe(error)[0] in ("BUG", "IO_FAILED")
