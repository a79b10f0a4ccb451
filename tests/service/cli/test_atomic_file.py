"""imp writes files atomically: never through a planted link, nor over a device, FIFO or directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from imp_service.cli.atomic_file import write_atomically

Call = Callable[..., tuple[int, str, str]]


def test_l19_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in ("one", "zwö"):
        write_atomically(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_l19_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    n_open = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr("os.fdopen", _full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old" and [found.name for found in tmp_path.iterdir()] == ["file"]
    assert len(list(Path("/proc/self/fd").iterdir())) == n_open


def _full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.long
def test_l19_what_imp_tune_writes_goes_through_no_link_and_over_no_fifo(call: Call, tmp_path: Path) -> None:
    victim, fifo = tmp_path / "victim", tmp_path / "tuning.json"
    victim.write_text("kept")
    os.mkfifo(fifo)
    (tmp_path / f".tuning.json.{os.getpid()}").symlink_to(victim)
    words = ("tune", "--types", "q8_0", "--reps", "1", "--set", "device.threads=1", "-o", str(fifo))
    status, _, err = call(*words)
    assert (status, victim.read_text(), fifo.is_fifo()) == (74, "kept", True)
    assert err.splitlines()[-1] == f"imp: error: IO_FAILED: {fifo}: found a FIFO, expected a regular file or none"
    fifo.unlink()
    assert call(*words)[0] == 0
    assert fifo.is_file() and victim.read_text() == "kept"
