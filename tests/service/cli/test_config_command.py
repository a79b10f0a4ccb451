"""imp config show, check and init, as a user meets them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from imp_service.cli.shell import main
from imp_service.config import Settings, load

SHIPPED = Path(__file__).parents[3] / "conf/imp.conf"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory and no variable of imp's own."""
    import os

    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("IMP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def test_cfg_6_show_prints_each_value_with_its_origin(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    (machine / "imp.conf").write_text("[kv]\nblock_tokens = 32\n")
    monkeypatch.setenv("IMP_KV__DTYPE", "f32")
    assert main(["config", "show", "--origin", "--set", "kv.prefix_cache=false"]) == 0
    rows = dict(line.split("  # ") for line in capfd.readouterr().out.splitlines())
    shown = {line.rstrip(): origin for line, origin in rows.items()}
    assert shown["kv.block_tokens = 32"] == "imp.conf:2"
    assert shown['kv.dtype = "f32"'] == "IMP_KV__DTYPE"
    assert shown["kv.prefix_cache = false"] == "--set"
    assert shown["scheduler.max_running = 64"] == "default"
    (threads,) = [line for line in shown if line.startswith("device.threads = ")]
    assert shown[threads].startswith("auto: ")
    assert threads.partition(" = ")[2].isdigit()


def test_cfg_6_show_as_json(capfd: pytest.CaptureFixture[str]):
    assert main(["config", "show", "--json", "--set", "scheduler.max_wait=90s"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["scheduler.max_wait"] == "90s"
    assert shown["kv.block_tokens"] == 16


def test_check_says_what_it_read(machine: Path, capfd: pytest.CaptureFixture[str]):
    assert main(["config", "check"]) == 0
    assert capfd.readouterr().out == "no imp.conf: 0 keys set, all good\n"
    (machine / "mine.conf").write_text("[kv]\nblock_tokens = 32\n")
    assert main(["config", "check", "--config", "mine.conf"]) == 0
    assert capfd.readouterr().out == "mine.conf: 1 key set, all good\n"


@pytest.mark.parametrize("action", ["show", "check"])
def test_cfg_3_l07_a_bad_file_ends_with_78_and_one_line(action: str, machine: Path, capfd: pytest.CaptureFixture[str]):
    (machine / "imp.conf").write_text("[scheduler]\nmax_runing = 8\n")
    assert main(["config", action]) == 78
    assert capfd.readouterr() == (
        "",
        "imp: error: CONFIG_INVALID: imp.conf:2:scheduler.max_runing: "
        "unknown key; nearest known: scheduler.max_running\n",
    )


def test_cfg_4_l09_a_named_file_that_is_missing_ends_with_78(capfd: pytest.CaptureFixture[str]):
    assert main(["config", "show", "--config", "nowhere.conf"]) == 78
    assert capfd.readouterr().err == "imp: error: CONFIG_INVALID: --config: nowhere.conf: no such file\n"


def test_cfg_5_kubernetes_variables_change_nothing(machine: Path):
    """In a process of its own, with the variables that a Service named imp brings."""
    result = subprocess.run(
        [sys.executable, "-m", "imp_service", "config", "check"],
        env={
            "PATH": "/usr/bin",
            "PYTHONPATH": ":".join(sys.path),
            "IMP_SERVICE_HOST": "10.0.0.7",
            "IMP_SERVICE_PORT_GRPC": "50051",
            "IMP_PORT_50051_TCP_ADDR": "10.0.0.7",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "no imp.conf: 0 keys set, all good\n", "")


def test_cfg_1_init_writes_the_shipped_file_and_never_over_another(machine: Path, capfd: pytest.CaptureFixture[str]):
    assert main(["config", "init", "new.conf"]) == 0
    assert (machine / "new.conf").read_bytes() == SHIPPED.read_bytes()
    assert load("new.conf", variables={}).settings == Settings()
    (machine / "new.conf").write_text("mine")
    capfd.readouterr()
    assert main(["config", "init", "new.conf"]) == 73
    assert capfd.readouterr().err == "imp: error: CANNOT_CREATE: new.conf: File exists\n"
    assert (machine / "new.conf").read_text() == "mine"


def test_init_to_stdout(capfd: pytest.CaptureFixture[str]):
    assert main(["config", "init", "-"]) == 0
    assert capfd.readouterr().out == SHIPPED.read_text(encoding="utf-8")
