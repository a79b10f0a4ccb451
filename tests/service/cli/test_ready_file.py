"""The ready file of imp serve: where it is written, when it is absent, and which files it never changes."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from imp_service.cli.failure import CommandError
from imp_service.cli.serve.ready_file import ReadyFile
from support.calls.raw_calls import HEALTH
from support.run.patience import HANGS_AFTER
from support.servers.server_process import server_process, start_to_its_end

NOT_SERVING = b"\x08\x02"
FACTS: dict[str, object] = {"grpc": ["127.0.0.1:1"]}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_lif_17_l19_the_file_is_written_whole_and_is_readable_by_everyone(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    ready = ReadyFile(path)
    ready.write(FACTS)
    assert json.loads(path.read_text()) == FACTS
    assert stat.S_IMODE(path.stat().st_mode) & ~0o644 == 0
    assert names(tmp_path) == ["ready"]
    ready.remove()
    ready.remove()
    assert names(tmp_path) == []


def test_lif_17_l19_a_planted_link_leads_to_no_other_file(tmp_path: Path) -> None:
    """Links are planted at a name made of the process id, and at the file's own name after the start."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    path = tmp_path / "ready"
    ready = ReadyFile(path)
    (tmp_path / f".ready.{os.getpid()}").symlink_to(victim)
    ready.write(FACTS)
    assert victim.read_text() == "kept" and not path.is_symlink()
    ready.remove()
    path.symlink_to(victim)
    with pytest.raises(CommandError, match=r"CANNOT_CREATE.*found a symbolic link"):
        ready.write(FACTS)
    assert path.is_symlink() and victim.read_text() == "kept"
    assert names(tmp_path) == [f".ready.{os.getpid()}", "ready", "victim"]


def test_lif_17_l19_a_name_that_is_taken_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O_EXCL and O_NOFOLLOW protect even a guessed name."""
    monkeypatch.setattr("imp_service.cli.atomic_file.secrets.token_hex", lambda _: "guessed")
    victim = tmp_path / "victim"
    victim.write_text("kept")
    ready = ReadyFile(tmp_path / "ready")
    (tmp_path / ".ready.guessed").symlink_to(victim)
    with pytest.raises(CommandError, match="CANNOT_CREATE"):
        ready.write(FACTS)
    assert victim.read_text() == "kept" and not (tmp_path / "ready").exists()


OTHERS: dict[str, Callable[[Path], None]] = {
    "a symbolic link": lambda path: path.symlink_to("/dev/null"),
    "a FIFO": os.mkfifo,
    "a directory": Path.mkdir,
}


@pytest.mark.long
@pytest.mark.parametrize("kind", OTHERS)
def test_lif_17_l19_what_is_no_regular_file_ends_the_start_and_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ready"
    OTHERS[kind](path)
    before = path.lstat()
    ran = start_to_its_end(tmp_path, "--ready-file", str(path), "-m", f"{tmp_path}/none.gguf")
    assert ran.returncode == 73
    expected = f"imp: error: CANNOT_CREATE: --ready-file: {path}: found {kind}, expected a regular file or none\n"
    assert ran.stderr == expected
    assert path.lstat() == before


@pytest.mark.long
def test_lif_17_a_folder_that_is_missing_is_reported_before_a_model_is_loaded(tmp_path: Path) -> None:
    ran = start_to_its_end(tmp_path, "--ready-file", f"{tmp_path}/none/ready", "-m", f"{tmp_path}/none.gguf")
    assert (ran.returncode, ran.stderr.count("CANNOT_CREATE"), ran.stderr.count("\n")) == (73, 1, 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "status"),
    [(["-m", "none.gguf"], 66), (["--config", "none.conf"], 78), (["--set", "limits.max_tokens=x"], 78)],
)
def test_lif_17_l19_a_failed_start_leaves_no_old_file(tmp_path: Path, words: list[str], status: int) -> None:
    path = tmp_path / "ready"
    path.write_text(json.dumps(FACTS))
    ran = start_to_its_end(tmp_path, "--ready-file", str(path), *words)
    assert ran.returncode == status, ran.stderr
    assert not path.exists()


@pytest.mark.long
def test_lif_17_l19_a_server_that_drained_leaves_no_file(tmp_path: Path) -> None:
    with server_process(tmp_path, is_traced=False) as server:
        server.wait_until_ready()
        assert server.terminate() == 0
    assert names(tmp_path) == ["stderr.txt"]


@pytest.mark.long
def test_lif_17_l19_a_drain_that_a_second_signal_cuts_leaves_no_file(tmp_path: Path) -> None:
    with server_process(tmp_path, settings=("drain.delay=1h",), is_traced=False) as server:
        with server.connection() as channel:
            server.signal(signal.SIGTERM)
            watch = channel.stream_stream(f"/{HEALTH}/Watch")(iter((b"",)), timeout=HANGS_AFTER)
            assert any(status == NOT_SERVING for status in watch)
            assert server.ready_file.exists()  # it still answers
        server.signal(signal.SIGTERM)
        assert server.wait_for_end() == 143
    assert names(tmp_path) == ["stderr.txt"]


@pytest.mark.long
def test_lif_17_l19_a_killed_servers_file_is_gone_as_soon_as_the_next_one_starts(tmp_path: Path) -> None:
    with server_process(tmp_path) as first:
        old = first.wait_until_ready()
        first.kill()
    assert json.loads((tmp_path / "ready.json").read_text()) == old
    ready = ReadyFile(tmp_path / "ready.json")
    assert not (tmp_path / "ready.json").exists()
    ready.remove()


def test_lif_17_l19_a_server_that_ends_leaves_the_file_of_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    first = ReadyFile(path)
    first.write(FACTS)
    second = ReadyFile(path)
    second.write({"grpc": ["127.0.0.1:2"]})
    first.remove()
    assert json.loads(path.read_text()) == {"grpc": ["127.0.0.1:2"]}


def test_lif_17_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    seen: list[str] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            if path.exists():
                try:
                    seen.append(path.read_text())
                except FileNotFoundError:
                    continue

    reader = threading.Thread(target=read)
    reader.start()
    facts: dict[str, object] = {"grpc": ["127.0.0.1:1"] * 5000}
    for _ in range(100):
        ready = ReadyFile(path)
        ready.write(facts)
        ready.remove()
    is_over.set()
    reader.join()
    assert all(json.loads(text) == facts for text in seen)
